#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
#[lock_key("all")]
enum Key {
    All,
}

fn main() {}
