#![allow(unused)]

use redlock_sync::distributed_lock;

struct ShopError;

#[distributed_lock("order:{id}")]
fn ship(id: u64) -> Result<u64, ShopError> {
    Ok(id)
}

fn main() {}
