#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> Result<u64, Error> {
    let _ = id;
}

fn main() {}
