#![allow(unused)]

use std::future::{Ready, ready};

use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}", failed = panic)]
fn pack(id: u64) -> Ready<u64> {
    ready(id)
}

fn main() {}
