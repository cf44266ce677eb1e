//! A server that is stopped for three seconds under a crowd.

use std::thread;
use std::time::Duration;

use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use super::crowd::WORK;
use super::{alone, none};
use crate::crew::{Tally, run as work, start_of};
use crate::sides::Ours;
use crate::witness::Witnesses;

const THREADS: usize = 200;
const BEFORE: Duration = Duration::from_millis(1500);
const STOPPED: Duration = Duration::from_secs(3);
/// The lease of locks that are held in the meantime. It is long enough that the client can renew them afterwards.
const LEASE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_millis(2200);
/// The time in nanoseconds by which the rate must be back.
const GRACE: u64 = 1_000_000_000;
const ENOUGH: f64 = 0.8;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut ours = Ours::start(1, THREADS, None)?;
    let witnesses = Witnesses::take(&ours.locks, LEASE)?;
    let (mut rate, mut back, mut sum) = (Rounds::default(), Vec::new(), Tally::default());
    for _ in 0..if plan.quick { 1 } else { 2 } {
        let storm = storm(&mut ours)?;
        rate.push(storm.after, storm.former);
        back.push(storm.back_ms);
        sum.add(storm.tally.without_pairs());
    }
    sum.tell("stopped");
    let lost = sum.lost + witnesses.lost();
    Ok(vec![
        Line::new("rate 1 to 2 s after it (raw: before)", "/s", rate, Bar::RatioAtLeast(ENOUGH)),
        Line::new("return -> 80 % of the former rate", "ms", Rounds::alone(back), Bar::AtMost(1000.0)),
        none("leases lost", lost),
        alone("releases not confirmed meanwhile", "", float(sum.unconfirmed), Bar::None),
        none("other errors", sum.errors),
    ])
}

struct Storm {
    former: f64,
    after: f64,
    /// The time in ms until the rate is back. It ends with the first fifth of a second in which the rate is high enough
    /// again.
    back_ms: f64,
    tally: Tally,
}

fn storm(ours: &mut Ours) -> Outcome<Storm> {
    let server = &ours.place.servers[0];
    let start = start_of(THREADS);
    let stop = start + clock::nanos(BEFORE);
    let end = stop + clock::nanos(STOPPED + AFTER);
    let (mutexes, returned) = (&mut ours.mutexes, |server: &redlock_tests::Server| {
        clock::sleep_until(stop);
        server.stop();
        thread::sleep(STOPPED);
        server.cont();
        clock::now()
    });
    let (tally, back) = thread::scope(|scope| {
        let crew = scope.spawn(|| work(mutexes, WORK, start, end));
        let back = returned(server);
        let tally = crew.join().map_err(|_| "the crew panicked")??;
        Outcome::Ok((tally, back))
    })?;
    let former = tally.per_second(start + clock::nanos(BEFORE) / 5, stop);
    let after = tally.per_second(back + GRACE, back + 2 * GRACE);
    Ok(Storm { former, after, back_ms: first_full(&tally, back, end, former), tally })
}

/// Returns the time in milliseconds, or infinity if the rate never came back.
fn first_full(tally: &Tally, back: u64, end: u64, former: f64) -> f64 {
    const WINDOW: u64 = 200_000_000;
    const STEP: u64 = 20_000_000;
    let mut starts = (back..).step_by(usize::try_from(STEP).unwrap_or(1)).take_while(|start| start + WINDOW <= end);
    let found = starts.find(|start| tally.per_second(*start, start + WINDOW) >= ENOUGH * former);
    found.map_or(f64::INFINITY, |start| float(start + WINDOW - back) / 1e6)
}
