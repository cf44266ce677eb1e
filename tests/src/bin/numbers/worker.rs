//! Processes that acquire a lock, with a lease of 3 s. Each line that they print is the name of an event, its time, and
//! a value.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use redlock_sync::{Event, Observer, Redlock};
use redlock_tests::bench::clock;

const LEASE: Duration = Duration::from_secs(3);

/// Runs `worker WHAT URL`.
pub(crate) fn main(args: &[String]) {
    let [what, url] = args else { panic!("worker WHAT URL") };
    let builder = Redlock::builder().node(url).lease(LEASE).node_timeout(LEASE / 15);
    let locks = builder.observer(Arc::new(Told)).build().expect("the settings are valid");
    match what.as_str() {
        "hold" => hold(&locks),
        "write" => write(&locks),
        other => panic!("no worker is called {other}"),
    }
}

fn tell(event: &str, rest: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{event} {} {rest}", clock::now()).and_then(|()| out.flush()).expect("the parent reads");
}

/// Prints a line for each renewal.
struct Told;

impl Observer for Told {
    fn event(&self, event: &Event<'_>) {
        if let Event::Renewed { .. } = event {
            tell("renewed", "");
        }
    }
}

/// Waits for the lock, holds it for 2.2 s, and releases it.
fn hold(locks: &Redlock) {
    tell("wants", "");
    let guard = locks.mutex("order:42").lock().expect("the lock can be taken");
    tell("takes", "");
    sleep(Duration::from_millis(2200));
    guard.unlock().expect("the lock is held");
    tell("releases", "");
}

/// Acquires the lock, and writes at once with its fencing token. Later it checks the lock, and writes again half a
/// second after the check.
fn write(locks: &Redlock) {
    tell("wants", "");
    let guard = locks.mutex("order:42").lock().expect("the lock can be taken");
    tell("takes", "");
    let fence = guard.fencing_token().expect("the lock is held").to_string();
    tell("writes", &fence);
    sleep(Duration::from_millis(900));
    guard.check().expect("the lock is held");
    tell("checks", "");
    sleep(Duration::from_millis(500));
    tell("writes", &fence);
    tell(if guard.check().is_ok() { "holds" } else { "lost" }, "");
    drop(guard);
    tell("releases", "");
}
