//! Threads with a key each, as fast as they can, beside the other Rust crates of locks.

use std::time::Duration;

use redlock_tests::bench::stats::Rounds;
use redlock_tests::bench::table::Line;
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::foreign::LockCrate;

use crate::crew::{Pace, Tally};
use crate::sides::Ours;

/// The numbers of threads, or tasks.
const THREADS: [usize; 3] = [1, 8, 128];
const BLOCK: Duration = Duration::from_millis(300);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let (mut lines, mut failed) = (Vec::new(), Tally::default());
    for threads in THREADS {
        let mut ours = Ours::start(threads)?;
        let (pace, span, url) = (Pace::default(), plan.span(BLOCK), ours.server.url());
        let mut unlock = Vec::new();
        let mut measured = LockCrate::ALL.map(|peer| (peer, Rounds::default()));
        failed.add(ours.dropping(pace, span)?.1.without_pairs());
        for _ in 0..plan.rounds() {
            let (rate, tally) = ours.dropping(pace, span)?;
            failed.add(tally.without_pairs());
            let (with_unlock, tally) = ours.block(pace, span)?;
            failed.add(tally.without_pairs());
            unlock.push(with_unlock);
            for (peer, rounds) in &mut measured {
                rounds.push(rate, peer.pairs(&url, threads, span));
            }
        }
        lines.push(Line::alone(format!("{threads}: lock and unlock"), "/s", unlock));
        for (peer, rounds) in measured {
            lines.push(Line::beside(format!("{threads}: lock and drop"), "/s", rounds, peer.name));
        }
    }
    failed.tell("crates");
    lines.push(Line::none("errors", failed.failures()));
    Ok(lines)
}
