#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}", max_hold = "10s", min_hold = "11s")]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
