#![allow(unused)]

use redlock_sync::distributed_lock;

type Id = u64;

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> Id {
    id
}

fn main() {}
