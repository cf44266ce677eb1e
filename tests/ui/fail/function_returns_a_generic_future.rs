#![allow(unused)]

use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}", failed = panic)]
fn pass_on<F: Future>(id: u64, work: F) -> F {
    work
}

fn main() {}
