//! Acquires a lock, works, and releases the lock: `cargo run --example hello`. It uses a server on this machine, or the
//! server that `REDIS_URL` names.

use std::env;

use redlock_sync::{Error, Redlock};

fn main() -> Result<(), Error> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = Redlock::open(url)?;
    let guard = locks.mutex("hello").lock()?;
    println!("no other process has the lock now");
    guard.check()?; // Checks that the lock is still held. It compares a clock and sends no request.
    guard.unlock()
}
