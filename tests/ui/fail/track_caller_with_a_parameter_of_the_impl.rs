#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

struct Shop<T>(T);

impl<T: ToString> Shop<T> {
    #[distributed_lock("order:{n}")]
    #[track_caller]
    fn write(n: u8, value: T) -> Result<String, Error> {
        Ok(value.to_string())
    }
}

fn main() {}
