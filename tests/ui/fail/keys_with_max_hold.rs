#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock(["order:{id}", "stock"], max_hold = "5s")]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
