#![allow(unused)]

use redlock_sync::{Error, distributed_lock};
use std::panic::Location;

trait Work {
    fn work(&self, n: u8) -> Result<u32, Error>;
}

struct Shop;

impl Work for Shop {
    #[distributed_lock("order:{n}")]
    #[track_caller]
    fn work(&self, n: u8) -> Result<u32, Error> {
        Ok(Location::caller().line())
    }
}

fn main() {}
