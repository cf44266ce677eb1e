#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}", max_hold = "10s", at_least = "11s")]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
