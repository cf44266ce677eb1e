#![allow(unused)]

use redlock_sync::assert_locked;

fn main() {
    assert_locked!("order", client = "redis://127.0.0.1/");
}
