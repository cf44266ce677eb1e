#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}", lease = "10s", at_least = "11s")]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
