//! Threads with a key each, as fast as they can. They lock and unlock, or lock and drop, compared with bare commands
//! and tasks of rslock.

use std::time::Duration;

use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::foreign::LockCrate;

use crate::crew::{Pace, Tally};
use crate::sides::Sides;

const THREADS: [u16; 7] = [1, 2, 4, 8, 32, 128, 600];
const RAW: &str = "bare commands, a connection for each thread";
/// The length of a block, and the number of blocks of each side in a round.
const BLOCK: Duration = Duration::from_millis(100);
const BLOCKS: u64 = 2;
/// From this number of threads on, the calls of several threads share packets, and a drop must pay.
const MANY: u16 = 32;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    let mut failed = Tally::default();
    for threads in THREADS {
        let [unlock, drop, rslock] = measure(plan, threads, &mut failed)?;
        let line = |what: &str, rounds| Line::beside(format!("{threads}: {what}"), "/s", rounds, RAW);
        lines.push(line("lock and unlock", unlock));
        let dropped = line("lock and drop", drop);
        lines.push(if threads >= MANY { dropped.gate(Gate::RatioAtLeast(1.0)) } else { dropped });
        lines.push(line("rslock, async tasks", rslock));
    }
    failed.tell("threads");
    lines.push(Line::none("errors", failed.failures()));
    Ok(lines)
}

/// Measures blocks in turns. One block of each comes first and does not count.
fn measure(plan: Plan, threads: u16, failed: &mut Tally) -> Outcome<[Rounds; 3]> {
    let mut sides = Sides::start(usize::from(threads))?;
    let (url, pace) = (sides.ours.server.url(), Pace::default());
    // It takes a moment until many threads all run.
    let span = plan.span(BLOCK * if threads > 128 { 4 } else { 1 });
    let mut rounds = [const { Rounds { ours: Vec::new(), raw: Vec::new() } }; 3];
    for round in 0..=plan.rounds() {
        let (mut raw, mut rates) = (0.0, [0.0; 3]);
        for _ in 0..BLOCKS {
            raw += sides.raw(pace, span)?.0;
            let (unlock, of_unlock) = sides.ours.block(pace, span)?;
            let (drop, of_drop) = sides.ours.dropping(pace, span)?;
            let rslock = LockCrate::RSLOCK_TASKS.pairs(&url, usize::from(threads), span);
            failed.add(of_unlock.without_pairs());
            failed.add(of_drop.without_pairs());
            rates = [rates[0] + unlock, rates[1] + drop, rates[2] + rslock];
        }
        if round > 0 {
            for (rounds, rate) in rounds.iter_mut().zip(rates) {
                rounds.push(rate / float(BLOCKS), raw / float(BLOCKS));
            }
        }
    }
    Ok(rounds)
}
