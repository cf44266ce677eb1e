#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
#[lock_key("order", prefix = "a")]
struct Order;

fn main() {}
