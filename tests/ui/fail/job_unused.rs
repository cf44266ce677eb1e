#![deny(unused_must_use)]

use redlock_sync::{Error, Redlock};

fn main() -> Result<(), Error> {
    let mails = Redlock::open("redis://127.0.0.1/")?.queue("emails");
    mails.claim()?;
    Ok(())
}
