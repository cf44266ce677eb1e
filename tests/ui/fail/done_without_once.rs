#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("report:{date}", done = skip)]
fn report(date: &str) -> Result<(), Error> {
    Ok(())
}

fn main() {}
