//! Threads that try to lock a free lock each, all at the same time and over a long distance. They can fail only if the
//! client queues badly.

use std::time::Duration;

use redlock_sync::Mutex;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use super::none;
use crate::crew::{Tally, all, start_of};
use crate::sides::Sides;

const THREADS: usize = 500;
/// The time that is added to each round trip.
pub(super) const DELAY: Duration = Duration::from_millis(10);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut sides = Sides::start(1, THREADS, Some(DELAY))?;
    let (mut took, mut sum) = (Rounds::default(), Tally::default());
    for _ in 0..plan.rounds() {
        let start = start_of(THREADS);
        let raw = all(&mut sides.raw, |lock: &mut RawLock| -> Outcome<()> {
            clock::sleep_until(start);
            lock.pair()
        })?;
        raw.into_iter().collect::<Outcome<()>>()?;
        let of_raw = since(start);
        let start = start_of(THREADS);
        let ours = all(&mut sides.ours.mutexes, |mutex: &mut Mutex| {
            clock::sleep_until(start);
            mutex.try_lock().and_then(redlock_sync::MutexGuard::unlock)
        })?;
        took.push(since(start), of_raw);
        for outcome in ours {
            sum.count(outcome.map(|()| 0));
        }
    }
    sum.tell("trylocks");
    Ok(vec![
        none(format!("errors of {} calls", THREADS * plan.rounds()), sum.errors + sum.lost),
        none("releases not confirmed", sum.unconfirmed),
        Line::new("until all are done", "ms", took, Bar::None),
    ])
}

/// The time since `start` in milliseconds.
fn since(start: u64) -> f64 {
    float(clock::now() - start) / 1e6
}
