//! A waiter in a process of its own, to be killed or stopped while it waits.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

use redlock_sync::{Error, Redlock};

/// `wait KEY LEASE_MS URL…`: waits for the lock and prints its token; then, for each line on stdin, one line with what came of it:
///
/// 1. `check`: `check()`;
/// 2. `unlock`: `unlock()`, and the end.
pub(crate) fn main(args: &[String]) {
    let [key, lease, urls @ ..] = args else { panic!("wait KEY LEASE_MS URL…") };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let timeout = Duration::from_millis(400);
    let builder = Redlock::builder().nodes(urls).lease(lease).node_timeout(timeout).restart_guard(false);
    let guard = builder.build().unwrap().mutex(key.as_str()).lock().unwrap();
    tell(guard.id().as_str());
    for order in stdin().lock().lines() {
        match order.unwrap().as_str() {
            "check" => tell(word(&guard.check())),
            _unlock => break,
        }
    }
    tell(word(&guard.unlock()));
}

fn tell(what: &str) {
    println!("{what}");
    stdout().flush().unwrap();
}

fn word<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Error::Lost { .. }) => "lost",
        Err(_) => "other",
    }
}
