#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock("order:{order.idd}")]
fn ship(order: &Order) -> Result<(), Error> {
    Ok(())
}

fn main() {}
