#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}", failed = skip)]
fn ship(id: u64) -> u64 {
    id
}

fn main() {}
