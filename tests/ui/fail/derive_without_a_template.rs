#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
struct Order {
    id: u64,
}

fn main() {}
