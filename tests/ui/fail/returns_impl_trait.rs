#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> impl Iterator<Item = u64> {
    0..id
}

fn main() {}
