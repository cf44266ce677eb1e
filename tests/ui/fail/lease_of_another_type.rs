#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}", lease = id * 1000)]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
