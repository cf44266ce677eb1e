//! The time that a release takes to reach the thread that waits for it, among many threads with other waits.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redlock_sync::{MutexGuard, Redlock};
use redlock_tests::Server;
use redlock_tests::bench::raw::RawRing;
use redlock_tests::bench::stats::{Rounds, p50_us, p99};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use crate::sides::Place;

/// The time from one release to the next, in nanoseconds.
const EVERY: u64 = 5_000_000;
/// The largest number of measured releases in a pass.
const MOST: usize = 400;
/// The least number of measured releases in a round. With few threads, a round has several passes.
const LEAST: usize = 80;
/// A lease that is long enough for all measurements.
const LEASE: Duration = Duration::from_secs(120);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let place = Place::start(1, None)?;
    let waiter = Redlock::builder().nodes(&place.urls).build()?;
    let patient = Duration::from_secs(5); // The time of a release counts from before its call.
    let releaser = Redlock::builder().node(place.servers[0].url()).lease(LEASE).node_timeout(patient).build()?;
    let mut lines = Vec::new();
    for (threads, rounds) in [(8, 3), (128, 3), (512, 2), (2000, 2)] {
        let (mut middle, mut tail) = (Rounds::default(), Rounds::default());
        for _ in 0..if plan.quick { 1 } else { rounds } {
            let raw = hops(&place.servers[0], plan.count(100))?;
            let mut samples = Vec::new();
            while samples.len() < plan.count(LEAST) {
                samples.extend(pass(&waiter, &releaser, threads, plan.count(MOST).max(8))?);
            }
            middle.push(p50_us(&samples) / 1e3, p50_us(&raw) / 1e3);
            tail.push(p99(samples.into_iter()) / 1e6, p99(raw.into_iter()) / 1e6);
        }
        lines.push(Line::new(format!("{threads} wait; release -> return, p50"), "ms", middle, Bar::AtMost(0.6)));
        lines.push(Line::new(format!("{threads} wait; release -> return, p99"), "ms", tail, Bar::AtMost(3.0)));
    }
    Ok(lines)
}

/// Measures messages through a list: from before a message is sent until the waiting thread has it. Returns
/// nanoseconds.
pub(super) fn hops(server: &Server, count: usize) -> Outcome<Vec<u64>> {
    let (mut from, mut to) = (RawRing::open(&server.url(), "hop")?, RawRing::open(&server.url(), "hop")?);
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..count).try_for_each(|_| {
                let is_there = to.pop();
                tell.send(is_there.map(|_| clock::now())).ok()
            })
        });
        let mut samples = Vec::new();
        let start = clock::now() + EVERY;
        for due in (start..).step_by(usize::try_from(EVERY)?).take(count) {
            clock::sleep_until(due);
            let sent = clock::now();
            from.push()?;
            samples.push(told.recv()?? - sent);
        }
        Ok(samples)
    })
}

/// A thread waits for each key. Some keys are released one by one and measured, and then the others are released at
/// once.
fn pass(waiter: &Redlock, releaser: &Redlock, threads: usize, most: usize) -> Outcome<Vec<u64>> {
    let key = |i: usize| format!("wakes:{i}");
    let held = (0..threads).map(|i| releaser.mutex(key(i)).lock()).collect::<Result<Vec<_>, _>>()?;
    thread::scope(|scope| {
        let wait = |i: usize| -> Outcome<u64> {
            let guard = waiter.mutex(key(i)).lock()?;
            let got = clock::now();
            drop(guard);
            Ok(got)
        };
        let waiters: Vec<_> = (0..threads).map(|i| scope.spawn(move || wait(i))).collect();
        thread::sleep(Duration::from_millis(300 + threads as u64));
        let mut sent = Vec::new();
        let mut held: Vec<(usize, MutexGuard)> = held.into_iter().enumerate().collect();
        fastrand::shuffle(&mut held);
        let start = clock::now();
        for (nth, (i, guard)) in held.into_iter().enumerate() {
            if nth < most {
                clock::sleep_until(start + EVERY * nth as u64);
                sent.push((i, clock::now()));
            }
            guard.unlock()?;
        }
        let got = waiters.into_iter().map(|waiter| waiter.join().map_err(|_| "a waiter panicked")?);
        let got = got.collect::<Outcome<Vec<u64>>>()?;
        Ok(sent.into_iter().map(|(i, at)| got[i].saturating_sub(at)).collect())
    })
}
