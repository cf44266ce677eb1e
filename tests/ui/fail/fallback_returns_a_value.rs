#![allow(unused)]

use redlock_sync::distributed_lock;

fn later(id: u64) -> u64 {
    id
}

#[distributed_lock("order:{id}", wait = "0s", busy = later)]
fn ship(id: u64) -> u64 {
    id
}

fn main() {}
