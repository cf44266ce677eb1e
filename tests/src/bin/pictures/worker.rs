//! Processes that acquire a lock. Each line that they print is the name of an event, its time, and a value.

use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use redlock_sync::{Event, Observer, Redlock};
use redlock_tests::bench::clock;

/// Runs `worker WHAT URL LEASE_MS …`.
pub(crate) fn main(args: &[String]) {
    let [what, url, lease, rest @ ..] = args else { panic!("worker WHAT URL LEASE_MS …") };
    let lease = Duration::from_millis(lease.parse().expect("a number of milliseconds"));
    let builder = Redlock::builder().node(url).lease(lease).node_timeout(Duration::from_millis(200).min(lease / 3));
    let locks = builder.observer(Arc::new(Told)).build().expect("the settings are valid");
    match what.as_str() {
        "hold" => hold(&locks),
        "write" => write(&locks),
        "many" => many(&locks, lease, rest[0].parse().expect("a number of locks")),
        "contend" => contend(&locks, rest[0].parse().expect("a number of milliseconds")),
        other => panic!("no worker is called {other}"),
    }
}

fn tell(event: &str, rest: &str) {
    tell_at(event, clock::now(), rest);
}

fn tell_at(event: &str, at: u64, rest: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{event} {at} {rest}").and_then(|()| out.flush()).expect("the parent reads");
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

/// Acquires locks one after the other, so that their leases differ in age. Holds them until the process is killed.
fn many(locks: &Redlock, lease: Duration, count: u32) {
    let mut guards = Vec::new();
    for i in 0..count {
        guards.push(locks.mutex(format!("many:{i}")).lock().expect("the lock can be taken"));
        sleep(lease / 3 / count);
    }
    tell("has-all", "");
    stdin().read_line(&mut String::new()).expect("stdin is a pipe");
}

/// Acquires and releases one lock for this many milliseconds. Prints all turns at the end.
fn contend(locks: &Redlock, span: u64) {
    let mutex = locks.mutex("order:42");
    let end = clock::now() + span * 1_000_000;
    let mut turns = Vec::new();
    while clock::now() < end {
        let guard = mutex.lock().expect("the lock can be taken");
        let taken = clock::now();
        sleep(Duration::from_millis(1));
        let released = clock::now();
        guard.unlock().expect("the lock is held");
        turns.push((taken, released));
    }
    for (taken, released) in turns {
        tell_at("turn", taken, &released.to_string());
    }
}
