#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("daemon")]
fn serve() -> ! {
    loop {}
}

fn main() {}
