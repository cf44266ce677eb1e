//! One of several processes leads, the others stand by: `REDIS_URL=redis://127.0.0.1/ cargo run --example leader`, several times at once.
//!
//! Kill the one that leads: another one goes on after its lease.
#![allow(clippy::disallowed_methods, reason = "an example sleeps by the real clock")]

use std::time::Duration;
use std::{env, thread};

use redlock_sync::{Error, Redlock};

fn main() -> Result<(), Error> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = Redlock::open(url)?;
    let leading = locks.leader("example:scheduler").lease(Duration::from_secs(5)).spawn(|lease| {
        println!("this process leads");
        loop {
            lease.check()?; // before each step: an error ends the term
            println!("a step of the work");
            thread::sleep(Duration::from_millis(500));
        }
        #[allow(unreachable_code, reason = "it tells the type of the error")]
        Ok::<_, Error>(())
    })?;
    thread::sleep(Duration::from_secs(3));
    println!("leads after 3 s: {}", leading.is_leader());
    leading.resign();
    leading.join()
}
