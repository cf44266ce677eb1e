#![allow(unused)]

use std::pin::Pin;

use redlock_sync::{Error, distributed_lock};

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[distributed_lock("order:{id}", failed = panic)]
fn ship(id: u64) -> Later<Result<(), Error>> {
    Box::pin(async { Ok(()) })
}

fn main() {}
