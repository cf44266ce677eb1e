//! A small shop: several processes work on one feed of orders, and no unit is sold twice.
//!
//! ```text
//! cargo run -p quickstart
//! cargo run -p quickstart -- --no-locks     # the same without locks: see the damage
//! ```
//!
//! The program starts a private Redis, or uses the server that `REDIS_URL` names. It also starts four worker processes
//! with two threads each. All of them go through the same feed, `../data/orders.csv`. Like real feeds, it has
//! duplicates and contradictions. The stock is in an `SQLite` file. A sale reads it, takes some time, and writes it
//! back, so a race would show. One worker is killed in the middle of an order. Another one is paused for longer than
//! its lease, and a third one is told to stop by SIGTERM. At the end, the program checks the books. It exits with 1 if
//! anything in them is wrong.
//!
//! The files:
//! 1. `shop.rs`: **two functions with `#[distributed_lock]`**. Your own program would have this part.
//! 2. `worker.rs`: a worker process. It sets the default client, starts threads, and **stops when it is told to**.
//! 3. `store.rs`: the `SQLite` file, which refuses stale fencing tokens.
//! 4. `feed.rs`: reads the CSV files.
//! 5. `director.rs`: starts the workers, kills one, pauses one, and stops one.
//! 6. `books.rs`: the sales, the facts that must not occur, and the table at the end.
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
