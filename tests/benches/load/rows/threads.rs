//! Threads with a key each, as fast as they can. They lock and unlock, or lock and drop, compared with bare commands
//! and rslock.

use std::time::Duration;

use redlock_tests::bench::counts::server_cpu;
use redlock_tests::bench::stats::{Rounds, float, p99};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};
use redlock_tests::foreign::LockCrate;

use super::none;
use crate::crew::{Pace, Tally};
use crate::sides::Sides;

/// The numbers of threads and their bars. A bar is a multiple of the rate of bare commands: first for lock and unlock,
/// then for lock and drop.
const ON_THIS_MACHINE: [(usize, Option<(f64, f64)>); 7] = [
    (1, Some((0.95, 1.11))),
    (2, Some((0.9, 1.0))),
    (4, Some((0.75, 1.0))),
    (8, Some((0.85, 1.2))),
    (32, Some((1.4, 2.0))),
    (128, Some((1.7, 2.6))),
    (600, None),
];
const ONE_MS_AWAY: [(usize, Option<(f64, f64)>); 3] =
    [(1, Some((0.95, 1.72))), (8, Some((0.9, 1.7))), (32, Some((0.9, 1.7)))];
/// The number of threads from which on lock and drop is compared with rslock.
const MANY: usize = 32;
/// The bar for the processor time of a lock and drop with 128 threads, client and server together. It is in
/// microseconds.
const CPU_US: f64 = 30.0;

/// The length of a block, and the number of blocks of each side in a round.
pub(super) const BLOCK: Duration = Duration::from_millis(100);
pub(super) const BLOCKS: usize = 3;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    measure(plan, "threads", &ON_THIS_MACHINE, 1, None)
}

/// Measures the same with a proxy that delays each request by a millisecond.
pub(super) fn run_delayed(plan: Plan) -> Outcome<Vec<Line>> {
    measure(plan, "threads1ms", &ONE_MS_AWAY, 1, Some(Duration::from_millis(1)))
}

/// Measures the same on five servers.
pub(super) fn run_on_five(plan: Plan) -> Outcome<Vec<Line>> {
    measure(plan, "fanout", &[(1, Some((0.91, 1.11))), (32, Some((1.5, 1.7)))], 5, None)
}

fn measure(
    plan: Plan,
    row: &'static str,
    loads: &[(usize, Option<(f64, f64)>)],
    nodes: usize,
    delay: Option<Duration>,
) -> Outcome<Vec<Line>> {
    let (mut lines, mut failed) = (Vec::new(), Tally::default());
    for (threads, bars) in loads {
        let mut sides = Sides::start(nodes, *threads, delay)?;
        let figures = Figures::measure(&mut sides, plan, &mut failed)?;
        let [unlock, drop] = bars.map_or([Bar::None; 2], |(unlock, drop)| [unlock, drop].map(Bar::RatioAtLeast));
        let line = |what: &str, unit, rounds, bar| Line::new(format!("{threads} threads, {what}"), unit, rounds, bar);
        lines.push(line("lock + unlock", "/s", figures.unlock, unlock));
        lines.push(line("lock + drop", "/s", figures.drop.clone(), drop));
        if delay.is_none() && nodes == 1 {
            let beside = Rounds { ours: figures.drop.ours, raw: figures.rslock.ours.clone() };
            lines.push(line("rslock", "/s", figures.rslock, Bar::None));
            let bar = if *threads >= MANY { Bar::RatioAtLeast(1.0) } else { Bar::None };
            lines.push(line("lock + drop (raw: rslock)", "/s", beside, bar));
            let bar = if *threads == 128 { Bar::AtMost(CPU_US) } else { Bar::None };
            lines.push(line("lock + drop, processor time of client and server", "us", figures.cpu, bar));
        }
        lines.push(line("lock + unlock, p99", "us", figures.p99, Bar::None));
    }
    failed.tell(row);
    lines.push(none("errors", failed.errors + failed.unconfirmed + failed.lost));
    Ok(lines)
}

/// The figures of a load. Each has the values of bare commands beside it.
#[derive(Default)]
struct Figures {
    unlock: Rounds,
    drop: Rounds,
    rslock: Rounds,
    cpu: Rounds,
    p99: Rounds,
}

impl Figures {
    /// Measures blocks in turns. One block of each comes first and does not count. Errors are added to `failed`.
    fn measure(sides: &mut Sides, plan: Plan, failed: &mut Tally) -> Outcome<Self> {
        let threads = sides.ours.mutexes.len();
        let one = sides.ours.place.servers.len() == 1;
        let rslock = (one && !sides.is_delayed()).then(|| sides.ours.place.servers[0].url());
        let pace = Pace::default();
        // It takes a moment until many threads all run.
        let span = plan.span(
            BLOCK
                * if threads > 128 {
                    6
                } else if threads > MANY {
                    2
                } else {
                    1
                },
        );
        sides.raw(pace, span)?;
        failed.add(sides.ours.block(pace, span)?.1.without_pairs());
        failed.add(sides.ours.dropping(pace, span)?.1.without_pairs());
        let mut figures = Self::default();
        for _ in 0..plan.rounds() {
            let (mut raw, mut unlock, mut drop) = (Sum::default(), Sum::default(), Sum::default());
            let mut others = 0.0;
            for _ in 0..BLOCKS {
                raw.add(sides, |sides| sides.raw(pace, span))?;
                unlock.add(sides, |sides| sides.ours.block(pace, span))?;
                drop.add(sides, |sides| sides.ours.dropping(pace, span))?;
                others += rslock.as_ref().map_or(0.0, |url| LockCrate::RSLOCK_TASKS.pairs(url, threads, span));
            }
            figures.unlock.push(unlock.rate(), raw.rate());
            figures.drop.push(drop.rate(), raw.rate());
            figures.rslock.push(others / float(BLOCKS as u64), raw.rate());
            figures.cpu.push(drop.cpu_us(), raw.cpu_us());
            let p99_us = |tally: &Tally| p99(tally.took().into_iter()) / 1e3;
            figures.p99.push(p99_us(&unlock.tally), p99_us(&raw.tally));
            failed.add(unlock.tally.without_pairs());
            failed.add(drop.tally.without_pairs());
        }
        Ok(figures)
    }
}

/// The sum of the blocks of one side in a round.
#[derive(Default)]
struct Sum {
    rates: f64,
    /// The processor time of this process and of the servers, in nanoseconds.
    cpu: u64,
    tally: Tally,
}

impl Sum {
    fn add(&mut self, sides: &mut Sides, block: impl Fn(&mut Sides) -> Outcome<(f64, Tally)>) -> Outcome<()> {
        let cpu = |sides: &Sides| {
            let servers = sides.ours.place.servers.iter().map(server_cpu).sum::<u64>();
            clock::process_cpu() + servers
        };
        let before = cpu(sides);
        let (rate, tally) = block(sides)?;
        self.cpu += cpu(sides).saturating_sub(before);
        self.rates += rate;
        self.tally.add(tally);
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.rates / float(BLOCKS as u64)
    }

    fn cpu_us(&self) -> f64 {
        float(self.cpu) / float(self.tally.took().len() as u64) / 1e3
    }
}
