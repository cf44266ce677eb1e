//! A waiter in a process of its own. Tests kill or stop it while it waits.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

use redlock_sync::{Error, Redlock};

/// `wait KEY LEASE_MS[/NODE_TIMEOUT_MS] URL…`: waits for the lock and prints its token. Then, for each line on stdin,
/// it prints a line with the outcome:
///
/// 1. `check`: calls `check()`.
/// 2. `fence`: calls `fencing_token()`.
/// 3. `unlock`: calls `unlock()` and ends.
pub(crate) fn main(args: &[String]) {
    let [key, lease, urls @ ..] = args else { panic!("wait KEY LEASE_MS[/NODE_TIMEOUT_MS] URL…") };
    let (lease, timeout) =
        lease.split_once('/').map_or((lease.as_str(), None), |(lease, timeout)| (lease, Some(timeout)));
    let ms = |text: &str| Duration::from_millis(text.parse().unwrap());
    let (lease, timeout) = (ms(lease), timeout.map_or(ms(lease) / 3, ms));
    let builder = Redlock::builder().nodes(urls).lease(lease).node_timeout(timeout).restart_guard(false);
    let guard = builder.build().unwrap().mutex(key.as_str()).lock().unwrap();
    tell(guard.id().as_str());
    for order in stdin().lock().lines() {
        match order.unwrap().as_str() {
            "check" => tell(word(&guard.check())),
            "fence" => tell(word(&guard.fencing_token())),
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
