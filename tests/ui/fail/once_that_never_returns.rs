#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("report:{date}", once, failed = panic, busy = panic)]
fn report(date: &str) -> ! {
    panic!()
}

fn main() {}
