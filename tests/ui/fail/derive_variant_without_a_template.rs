#![allow(unused)]

use redlock_sync::LockKey;

#[derive(LockKey)]
enum Key {
    #[lock_key("all")]
    All,
    One(u64),
}

fn main() {}
