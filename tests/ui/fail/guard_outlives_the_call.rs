#![allow(unused)]

use redlock_sync::{Error, Lease, distributed_lock};

#[distributed_lock("order:{id}", guard = lock)]
fn ship(id: u64) -> Result<&'static Lease, Error> {
    Ok(lock)
}

fn main() {}
