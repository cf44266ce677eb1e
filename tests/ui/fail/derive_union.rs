#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
#[lock_key("key")]
union Key {
    id: u64,
}

fn main() {}
