#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

fn later(both: (u64, String)) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("order:{id}", wait = "0s", busy = later)]
fn ship((id, note): (u64, String)) -> Result<(), Error> {
    Ok(())
}

fn main() {}
