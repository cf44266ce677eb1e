//! Threads with a key each, as fast as they can over a long distance.

use std::time::Duration;

use redlock_tests::bench::stats::Rounds;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::none;
use super::trylocks::DELAY;
use crate::crew::{Pace, Tally};
use crate::sides::Sides;

const THREADS: usize = 300;
const ROUNDS: usize = 3;
const RAW: Duration = Duration::from_secs(1);
const OURS: Duration = Duration::from_millis(2500);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut sides = Sides::start(1, THREADS, Some(DELAY))?;
    let (mut rate, mut sum) = (Rounds::default(), Tally::default());
    for _ in 0..ROUNDS {
        let (of_raw, _) = sides.raw(Pace::default(), plan.span(RAW))?;
        let (of_ours, tally) = sides.ours.block(Pace::default(), plan.span(OURS))?;
        rate.push(of_ours, of_raw);
        sum.add(tally.without_pairs());
    }
    sum.tell("slow");
    Ok(vec![
        Line::new("pairs per second", "/s", rate, Bar::AtLeast(5000.0)),
        none("releases not confirmed", sum.unconfirmed),
        none("other errors", sum.errors + sum.lost),
    ])
}
