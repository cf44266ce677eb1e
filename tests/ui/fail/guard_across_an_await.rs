#![allow(unused)]

use redlock_sync::{Error, Redlock};
use std::future::{Future, ready};

/// As runtimes with several threads have it.
fn spawn(task: impl Future<Output = Result<(), Error>> + Send + 'static) {}

async fn ship(locks: Redlock) -> Result<(), Error> {
    let guard = locks.mutex("order:42").lock()?;
    ready(()).await;
    guard.unlock()
}

fn main() {
    spawn(ship(Redlock::open("redis://127.0.0.1/").unwrap()));
}
