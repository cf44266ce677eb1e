#![allow(unused)]

use redlock_sync::LockKey;

struct Id;

#[derive(LockKey)]
#[lock_key("order:{id}")]
struct Order {
    id: Id,
}

fn main() {}
