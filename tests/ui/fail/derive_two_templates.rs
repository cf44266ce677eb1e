#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
#[lock_key("order:{id}")]
#[lock_key("orders:{id}")]
struct Order {
    id: u64,
}

fn main() {}
