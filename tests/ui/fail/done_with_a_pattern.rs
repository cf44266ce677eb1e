#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("report:x", once, done = before)]
fn report((a, b): (u8, u8)) -> Result<(), Error> {
    Ok(())
}

fn before(a: u8, b: u8) -> Result<(), Error> {
    Ok(())
}

fn main() {}
