#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> impl Future<Output = Result<(), Error>> {
    std::future::ready(Ok(()))
}

fn main() {}
