//! One of several processes leads, and the others stand by. Run this several times at once:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run --example leader
//! ```
//!
//! If the leading process is killed, another one leads after the lease has ended.
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
            lease.check()?; // Check before each step. An error ends the term.
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
