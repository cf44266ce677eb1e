//! Take a lock, work, release it: `cargo run --example hello`, with a server on this machine or the URL of one in `REDIS_URL`.

use std::env;

use redlock_sync::{Error, Redlock};

fn main() -> Result<(), Error> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = Redlock::open(url)?;
    let guard = locks.mutex("hello").lock()?;
    println!("no other process has the lock now");
    guard.check()?; // still held? compares a clock, no request
    guard.unlock()
}
