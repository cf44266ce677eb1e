#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("order")]
struct Order;

fn main() {}
