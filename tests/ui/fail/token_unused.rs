#![deny(unused_must_use)]

use redlock_sync::{Error, Redlock};

fn main() -> Result<(), Error> {
    let locks = Redlock::open("redis://127.0.0.1/")?;
    let guard = locks.mutex("order:42").lock()?;
    guard.into_token()?;
    Ok(())
}
