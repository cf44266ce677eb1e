#![deny(dead_code)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
