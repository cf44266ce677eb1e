#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}", wait = "0s", busy = skip)]
fn ship(id: u64) {}

fn main() {}
