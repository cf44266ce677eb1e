#![deny(unused_variables)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}")]
fn ship(id: u64, qty: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = ship(42, 1);
}
