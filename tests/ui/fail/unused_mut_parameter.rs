#![deny(unused_mut)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}")]
fn ship(mut id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = ship(42);
}
