#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock(["order:{id}", "stock"], min_hold = "5s")]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
