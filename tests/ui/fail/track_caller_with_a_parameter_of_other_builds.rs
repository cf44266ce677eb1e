#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{n}")]
#[track_caller]
fn write<T, #[cfg(any())] U>(n: u8, value: T) -> Result<T, Error> {
    Ok(value)
}

fn main() {}
