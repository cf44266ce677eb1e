//! Hundreds of threads, each with a lock of its own, as in a blocking service.

use std::time::Duration;

use redlock_tests::bench::stats::Rounds;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::none;
use crate::crew::{Pace, Tally};
use crate::sides::Sides;
use crate::witness::Witnesses;

const ROUNDS: usize = 3;
const RAW: Duration = Duration::from_millis(800);
const OURS: Duration = Duration::from_millis(2500);
/// The lease of the locks that are held beside the load. It is short, so a client that delays renewals for one block
/// loses these locks.
const LEASE: Duration = Duration::from_secs(3);
/// The pace of each thread. Hold and pause permit 25 locks per second.
pub(super) const WORK: Pace = Pace { hold: Duration::from_millis(20), pause: Duration::from_millis(20) };

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for threads in [600, 1000] {
        lines.extend(crowd(plan, threads)?);
    }
    Ok(lines)
}

fn crowd(plan: Plan, threads: usize) -> Outcome<Vec<Line>> {
    let mut sides = Sides::start(1, threads, None)?;
    let witnesses = Witnesses::take(&sides.ours.locks, LEASE)?;
    let (mut rate, mut sum) = (Rounds::default(), Tally::default());
    for _ in 0..ROUNDS {
        let (of_raw, _) = sides.raw(WORK, plan.span(RAW))?;
        let (of_ours, tally) = sides.ours.block(WORK, plan.span(OURS))?;
        rate.push(of_ours, of_raw);
        sum.add(tally.without_pairs());
    }
    sum.tell("crowd");
    let lost = sum.lost + witnesses.lost();
    Ok(vec![
        Line::new(format!("{threads} threads (hold, pause: {}/s)", 25 * threads), "/s", rate, Bar::RatioAtLeast(0.7)),
        none(format!("{threads} threads, leases lost"), lost),
        none(format!("{threads} threads, other errors"), sum.errors + sum.unconfirmed),
    ])
}
