#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {}
