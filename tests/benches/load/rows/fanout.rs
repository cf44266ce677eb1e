//! Threads with a key each on five nodes, beside bare connections that write to all nodes and then read from all.

use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::threads::{Figures, OF_MANY};
use super::{connections, none};
use crate::crew::Tally;
use crate::sides::Sides;

const THREADS: usize = 32;
const NODES: usize = 5;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut sides = Sides::start(NODES, THREADS, None)?;
    let mut failed = Tally::default();
    let figures = Figures::measure(&mut sides, OF_MANY, plan, &mut failed)?;
    connections::note("fanout", sides.ours.census.most()?);
    failed.tell("fanout");
    Ok(vec![
        Line::new("32 threads, pairs per second", "/s", figures.rate, Bar::RatioAtLeast(1.5)),
        Line::new("32 threads, p99", "us", figures.p99, Bar::None),
        none("errors", failed.errors + failed.unconfirmed + failed.lost),
    ])
}
