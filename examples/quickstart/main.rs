//! A small shop: several processes work on one feed of orders, and no unit is sold twice.
//!
//! ```text
//! cargo run -p quickstart
//! cargo run -p quickstart -- --no-locks     # the same without locks: see the damage
//! ```
//!
//! Starts a private Redis (or uses the one in `REDIS_URL`) and four worker processes with two threads each. All of them go through the same
//! feed, `../data/orders.csv`, which has duplicates and contradictions as real feeds have. Stock is kept in an `SQLite` file, and is sold by
//! reading it, taking some time, and writing it back: a race that would show. To make it harder, one worker is killed in the middle of an
//! order, one is paused for longer than its lease, and one is told to stop by SIGTERM. At the end the books are checked. Exits with 1 if anything is wrong in them.
//!
//! Where to look:
//! 1. `shop.rs`: **two functions with `#[distributed_lock]`**. This is the part that a program of your own would have.
//! 2. `worker.rs`: a worker process: sets the default client, starts threads, **stops when it is told to**.
//! 3. `store.rs`: the `SQLite` file, which refuses stale fencing tokens.
//! 4. `feed.rs`: reads the CSV files.
//! 5. `director.rs`: starts the workers, kills one, pauses one, stops one.
//! 6. `books.rs`: what was sold, and what must not be; the table at the end.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the locks is to sleep")]

mod books;
mod director;
mod feed;
mod shop;
mod store;
mod worker;

use std::env;
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Some(args) = redlock_examples::work() {
        return worker::run(&args).map(|()| ExitCode::SUCCESS);
    }
    match env::args().nth(1).as_deref() {
        None => director::run(true),
        Some("--no-locks") => director::run(false),
        Some(other) => {
            eprintln!("unknown argument `{other}`\nusage: quickstart [--no-locks]");
            Ok(ExitCode::from(64))
        }
    }
}
