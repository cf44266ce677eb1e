//! Hundreds of threads, each with a lock of its own, as in a blocking service. Then their server is stopped.

use std::thread;
use std::time::Duration;

use redlock_sync::{MutexGuard, Redlock};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use crate::crew::{Pace, Tally, run as work, start_of};
use crate::sides::{Ours, Sides};

const THREADS: usize = 1000;
const ROUNDS: usize = 3;
const BLOCK: Duration = Duration::from_secs(2);
/// The pace of each thread. Hold and pause permit 25 locks per second.
const WORK: Pace = Pace { hold: Duration::from_millis(20), pause: Duration::from_millis(20) };
/// The lease of the locks that are held beside the load. It is short, so a client that delays renewals for one block
/// loses these locks.
const LEASE: Duration = Duration::from_secs(3);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut sides = Sides::start(THREADS)?;
    let held = Held::take(&sides.ours.locks, LEASE)?;
    let mut rate = Rounds::default();
    let mut sum = Tally::default();
    for _ in 0..ROUNDS {
        let (of_raw, _) = sides.raw(WORK, plan.span(BLOCK))?;
        let (of_ours, tally) = sides.ours.block(WORK, plan.span(BLOCK))?;
        rate.push(of_ours, of_raw);
        sum.add(tally.without_pairs());
    }
    sum.tell("crowd");
    Ok(vec![
        Line::beside("locks per second", "/s", rate, "a bare connection for each").gate(Gate::RatioAtLeast(0.7)),
        Line::none("locks lost", sum.lost + held.lost()),
        Line::none("other errors", sum.errors + sum.unconfirmed),
    ])
}

const STOPPED_THREADS: usize = 200;
const BEFORE: Duration = Duration::from_millis(1500);
const STOPPED: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_millis(2200);
/// The lease of locks that are held in the meantime. It is long enough that the client can renew them afterwards.
const LONG_LEASE: Duration = Duration::from_secs(10);
const ENOUGH: f64 = 0.8;

pub(super) fn stopped(plan: Plan) -> Outcome<Vec<Line>> {
    let mut ours = Ours::start(STOPPED_THREADS)?;
    let held = Held::take(&ours.locks, LONG_LEASE)?;
    let mut back = Vec::new();
    let mut sum = Tally::default();
    for _ in 0..if plan.quick { 1 } else { 3 } {
        let (after_ms, tally) = stop(&mut ours)?;
        back.push(after_ms);
        sum.add(tally.without_pairs());
    }
    sum.tell("stopped");
    Ok(vec![
        Line::alone("from its return to 80 % of the former rate", "ms", back).gate(Gate::AtMost(1000.0)),
        Line::none("locks lost", sum.lost + held.lost()),
        Line::alone("releases not confirmed meanwhile", "", vec![float(sum.unconfirmed)]),
        Line::none("other errors", sum.errors),
    ])
}

/// Stops the server for a while. Returns the time in ms from its return until the rate is back.
fn stop(ours: &mut Ours) -> Outcome<(f64, Tally)> {
    let Ours { server, mutexes, .. } = ours;
    let start = start_of(STOPPED_THREADS);
    let stop = start + clock::nanos(BEFORE);
    let end = stop + clock::nanos(STOPPED + AFTER);
    thread::scope(|scope| {
        let crew = scope.spawn(|| work(mutexes, WORK, start, end));
        clock::sleep_until(stop);
        server.stop();
        thread::sleep(STOPPED);
        server.cont();
        let back = clock::now();
        let tally = crew.join().map_err(|_| "the crew panicked")??;
        let former = tally.per_second(start + clock::nanos(BEFORE) / 5, stop);
        Ok((first_full(&tally, back, end, former), tally))
    })
}

/// The end of the first fifth of a second with enough of the former rate, in milliseconds. It is infinity if the rate
/// never came back.
fn first_full(tally: &Tally, back: u64, end: u64, former: f64) -> f64 {
    const WINDOW: u64 = 200_000_000;
    const STEP: usize = 20_000_000;
    let mut starts = (back..).step_by(STEP).take_while(|start| start + WINDOW <= end);
    let found = starts.find(|start| tally.per_second(*start, start + WINDOW) >= ENOUGH * former);
    found.map_or(f64::INFINITY, |start| float(start + WINDOW - back) / 1e6)
}

/// Locks that are held during a load. The client of the load renews them.
struct Held(Vec<MutexGuard>);

impl Held {
    fn take(locks: &Redlock, lease: Duration) -> Outcome<Self> {
        let take = |i| locks.mutex(format!("held:{i}")).lease(lease).lock();
        Ok(Self((0..10).map(take).collect::<Result<_, _>>()?))
    }

    /// The number of locks that were lost.
    fn lost(&self) -> u64 {
        self.0.iter().filter(|guard| guard.check().is_err()).count() as u64
    }
}
