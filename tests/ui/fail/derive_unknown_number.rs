#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
#[lock_key("order:{2}")]
struct Order(u64, u64);

fn main() {}
