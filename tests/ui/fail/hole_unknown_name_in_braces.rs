#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{idd}")]
fn nightly() -> Result<(), Error> {
    Ok(())
}

fn main() {}
