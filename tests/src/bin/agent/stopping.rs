//! `stopping GRACE_MS LEASE_S HOW URL…`: a service that is stopped by a signal, or by a line on stdin.
//!
//! One thread acquires and releases `turns` again and again. One thread waits for `theirs`, which the test holds. One
//! thread holds `stuck` and hangs.
//!
//! If `HOW` is `shutdown`, the service reacts to SIGTERM or SIGINT: it shuts its client down, prints the keys that it
//! gave up, and exits. Otherwise it waits for a line on stdin. Then its `main` returns (`return`), or the process exits
//! (`exit`) or aborts (`abort`).

use std::io;
use std::process::{abort, exit};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use redlock_tests::eventually;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub(crate) fn main(args: &[String]) {
    let [grace, lease, how, urls @ ..] = args else { panic!("unknown arguments {args:?}") };
    let grace = Duration::from_millis(grace.parse().unwrap());
    let lease = Duration::from_secs(lease.parse().unwrap());
    let mut signals = Signals::new([SIGTERM, SIGINT]).unwrap();
    let locks = Redlock::builder().nodes(urls).restart_guard(false).lease(lease).build().unwrap();
    let stuck = locks.mutex("stuck").lock().unwrap().into_send();
    let (turns, theirs) = (locks.mutex("turns"), locks.mutex("theirs"));
    thread::spawn(move || {
        let turn = |guard: redlock_sync::MutexGuard| {
            thread::sleep(Duration::from_millis(20));
            guard.unlock()
        };
        while turns.lock().and_then(turn) != Err(Error::Closed) {}
    });
    thread::spawn(move || println!("waiting: {:?}", theirs.lock().map(drop)));
    thread::spawn(move || {
        loop {
            thread::park();
            assert!(!stuck.key().is_empty(), "the guard lives");
        }
    });
    eventually("it works", Duration::from_secs(30), || locks.mutex("turns").is_locked().unwrap());
    println!("ready");
    match how.as_str() {
        "shutdown" => {
            signals.forever().next();
            println!("gave up: {:?}", locks.shutdown(grace).map(|ended| ended.given_up));
            exit(0);
        }
        _ => end(how),
    }
}

fn end(how: &str) {
    _ = io::stdin().read_line(&mut String::new()).unwrap();
    match how {
        "return" => {}
        "exit" => exit(0),
        "abort" => abort(),
        other => panic!("no such end: {other}"),
    }
}
