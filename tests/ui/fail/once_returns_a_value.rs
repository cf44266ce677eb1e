#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("report:{date}", once)]
fn report(date: &str) -> Result<u32, Error> {
    Ok(7)
}

fn main() {}
