#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
#[lock_key("order:{idd}")]
struct Order {
    id: u64,
}

fn main() {}
