#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:<id>:<qty>")]
fn ship(id: u64, #[cfg(any())] qty: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
