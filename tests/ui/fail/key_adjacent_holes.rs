#![allow(unused)]

use redlock_sync::key;

fn main() {
    let id = 5;
    key!("order:{id}<id>");
}
