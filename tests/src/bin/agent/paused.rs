//! A holder that tests stop while it holds a lock.
#![allow(clippy::disallowed_methods, reason = "measures how long a call took")]

use std::io::{BufRead, stdin};
use std::time::{Duration, Instant};

use redlock_sync::{Error, Lease, Redlock};

/// `paused mutex|reentrant|permit|writer|several LEASE_MS URL…`: acquires the lock `a` and prints its token and its
/// fencing token. Then, for each line on stdin, it prints a line with the outcome:
///
/// 1. `check`: calls `check()`. The line includes how many ms the call took.
/// 2. `use`: calls `fencing_token()`, then `extend()`.
/// 3. `unlock`: calls `unlock()`.
pub(crate) fn run(args: &[String]) {
    let [kind, lease, urls @ ..] = args else { panic!("paused KIND LEASE_MS URL…") };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let locks =
        Redlock::builder().nodes(urls).lease(lease).node_timeout(lease / 3).restart_guard(false).build().unwrap();
    let end = match kind.as_str() {
        "mutex" => {
            let guard = locks.mutex("a").lock().unwrap();
            serve(&guard);
            guard.unlock()
        }
        "reentrant" => {
            let guard = locks.reentrant_mutex("a").lock().unwrap();
            serve(&guard);
            guard.unlock().map(drop)
        }
        "permit" => {
            let permit = locks.semaphore("a", 1).acquire().unwrap();
            serve(&permit);
            permit.release()
        }
        "writer" => {
            let guard = locks.rw_lock("a").write().unwrap();
            serve(&guard);
            guard.unlock().map(drop)
        }
        "several" => {
            let guard = locks.multi_lock(["a"]).lock().unwrap();
            serve(guard.leases().next().unwrap());
            guard.unlock()
        }
        other => panic!("no such kind: {other}"),
    };
    println!("{}", word(&end));
}

fn serve(lease: &Lease) {
    println!("{} {}", lease.id().as_str(), lease.fencing_token().unwrap());
    for order in stdin().lock().lines() {
        match order.unwrap().as_str() {
            "check" => {
                let start = Instant::now();
                let said = word(&lease.check());
                println!("{said} {}", start.elapsed().as_millis());
            }
            "use" => println!("{} {}", word(&lease.fencing_token()), word(&lease.extend(Duration::from_secs(60)))),
            _unlock => return,
        }
    }
}

fn word<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Error::Lost { .. }) => "lost",
        Err(_) => "other",
    }
}
