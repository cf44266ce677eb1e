#![allow(unused)]

use redlock_sync::assert_locked;

fn main() {
    assert_locked!("order", wait = "5s");
}
