//! Threads with a key each, as fast as they can.

use std::time::Duration;

use redlock_tests::bench::stats::{Rounds, p50_us, p99};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::{connections, none};
use crate::crew::{Pace, Tally};
use crate::sides::Sides;

/// Blocks of a round: how many, and how long. One thread is quick to say what it can, and sees more of what else the machine does.
pub(super) type Blocks = (usize, Duration);
const OF_ONE: Blocks = (15, Duration::from_millis(20));
pub(super) const OF_MANY: Blocks = (3, Duration::from_millis(100));

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let (mut lines, mut failed) = (Vec::new(), Tally::default());
    let mut sides = Sides::start(1, 1, None)?;
    let figures = Figures::measure(&mut sides, OF_ONE, plan, &mut failed)?;
    lines.push(Line::new("1 thread, p50", "us", figures.p50, Bar::RatioAtMost(1.10)));
    let mut most = sides.ours.census.most()?;
    for (threads, least) in [(8, 1.2), (32, 1.8), (128, 2.2)] {
        let mut sides = Sides::start(1, threads, None)?;
        let figures = Figures::measure(&mut sides, OF_MANY, plan, &mut failed)?;
        let bar = Bar::RatioAtLeast(least);
        lines.push(Line::new(format!("{threads} threads, pairs per second"), "/s", figures.rate, bar));
        lines.push(Line::new(format!("{threads} threads, p99"), "us", figures.p99, Bar::None));
        most = most.max(sides.ours.census.most()?);
    }
    connections::note("threads", most);
    failed.tell("threads");
    lines.push(none("errors", failed.errors + failed.unconfirmed + failed.lost));
    Ok(lines)
}

/// What the rounds of a load without a pause say.
pub(super) struct Figures {
    pub(super) rate: Rounds,
    pub(super) p50: Rounds,
    pub(super) p99: Rounds,
}

impl Figures {
    /// Blocks in turns: raw, ours, raw, ours. One of each goes before and does not count. What went wrong is added to `failed`.
    pub(super) fn measure(sides: &mut Sides, (count, span): Blocks, plan: Plan, failed: &mut Tally) -> Outcome<Self> {
        let pace = Pace::default();
        let span = plan.span(span);
        sides.raw(pace, span)?;
        failed.add(sides.ours.block(pace, span)?.1);
        let mut figures = Self { rate: Rounds::default(), p50: Rounds::default(), p99: Rounds::default() };
        for _ in 0..plan.rounds() {
            let (mut rates, mut raw, mut ours) = ((0.0, 0.0), Tally::default(), Tally::default());
            for _ in 0..count {
                let (of_raw, tally) = sides.raw(pace, span)?;
                raw.add(tally);
                let (of_ours, tally) = sides.ours.block(pace, span)?;
                ours.add(tally);
                rates = (rates.0 + of_ours, rates.1 + of_raw);
            }
            let blocks = f64::from(u32::try_from(count)?);
            figures.rate.push(rates.0 / blocks, rates.1 / blocks);
            let (of_ours, of_raw) = (ours.took(), raw.took());
            figures.p50.push(p50_us(&of_ours), p50_us(&of_raw));
            figures.p99.push(p99(of_ours.into_iter()) / 1e3, p99(of_raw.into_iter()) / 1e3);
            failed.add(ours.without_pairs());
        }
        Ok(figures)
    }
}
