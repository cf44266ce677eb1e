//! The shortest leases. CI also runs this test in release mode, where overflowing arithmetic wraps: `cargo test
//! --release --test it contract::short_lease`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Redlock, Retry};
use redlock_tests::{Server, eventually, servers};

use super::rig::{SOON, ms, urls};

/// A time just after the lock was granted, and the last time at which it was certainly still held.
type Hold = (Instant, Instant);

fn short(urls: &[String]) -> Redlock {
    let builder = Redlock::builder().nodes(urls).lease(ms(100)).node_timeout(ms(20));
    builder.retry(Retry::every(ms(3))).build().unwrap()
}

/// Holds the lock for `length`, or until its lease ends. However the thread is paused, the noted interval lies within
/// the hold. Its start was read after the grant, and its end before a successful `check`.
fn hold(locks: &Redlock, renew: bool, length: Duration) -> Option<Hold> {
    let guard = locks.mutex("short").renew(renew).try_lock_for(ms(200)).ok()?;
    let start = Instant::now();
    let mut last = None;
    while start.elapsed() < length {
        let now = Instant::now();
        if guard.check().is_err() {
            break;
        }
        last = Some((start, now));
        thread::sleep(ms(1));
    }
    last
}

/// Contends until `stop`, with holds of one millisecond up to some leases. Every other hold has no renewals, so its
/// lease expires during the hold, and only its own deadline shows this.
fn contend(urls: &[String], seed: u64, stop: &AtomicBool, holds: &Mutex<Vec<Hold>>) {
    let locks = short(urls);
    for i in seed.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Some(hold) = hold(&locks, i % 2 == 0, ms(1 + (i * 37) % 230)) {
            holds.lock().unwrap().push(hold);
        }
    }
}

/// Stops the servers in turn, each for 300 ms, at least ten times and until `is_enough`.
fn pause_in_turn(servers: &[Server], is_enough: impl Fn() -> bool) {
    for (_, server) in servers.iter().cycle().enumerate().take_while(|(round, _)| *round < 10 || !is_enough()) {
        server.stop();
        thread::sleep(ms(300));
        server.cont();
    }
}

#[test]
fn a_paused_node_never_makes_two_holders() {
    let servers = servers(5);
    let urls = urls(&servers);
    let (stop, holds) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for client in 0..4 {
            let (urls, stop, holds) = (&urls, &stop, &holds);
            scope.spawn(move || contend(urls, client * 11, stop, holds));
        }
        eventually("the contenders take the lock", SOON, || holds.lock().unwrap().len() >= 8);
        let end = Instant::now() + 3 * SOON;
        pause_in_turn(&servers, || holds.lock().unwrap().len() >= 20 || Instant::now() > end);
        stop.store(true, Ordering::Relaxed);
    });
    let mut holds = holds.into_inner().unwrap();
    holds.sort();
    println!("{} holds", holds.len());
    assert!(holds.len() >= 20, "only {} holds, too few to show anything", holds.len());
    for pair in holds.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "the lock had two holders: {:?} and {:?}", pair[0], pair[1]);
    }
}
