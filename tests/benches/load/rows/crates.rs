//! Threads with a key each, as fast as they can, beside the other Rust crates of locks.

use redlock_tests::bench::stats::Rounds;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::foreign::LockCrate;

use super::none;
use super::threads::BLOCK;
use crate::crew::{Pace, Tally};
use crate::sides::Sides;

/// The numbers of threads, or tasks.
const THREADS: [usize; 3] = [1, 8, 128];

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let (mut lines, mut failed) = (Vec::new(), Tally::default());
    for threads in THREADS {
        let mut sides = Sides::start(1, threads, None)?;
        let (pace, span, url) = (Pace::default(), plan.span(BLOCK * 3), sides.ours.place.servers[0].url());
        let mut unlock = Vec::new();
        let mut measured = LockCrate::ALL.map(|peer| (peer, Rounds::default()));
        failed.add(sides.ours.dropping(pace, span)?.1.without_pairs());
        for _ in 0..plan.rounds() {
            let (rate, tally) = sides.ours.dropping(pace, span)?;
            failed.add(tally.without_pairs());
            let (with_unlock, tally) = sides.ours.block(pace, span)?;
            failed.add(tally.without_pairs());
            unlock.push(with_unlock);
            for (peer, rounds) in &mut measured {
                rounds.push(rate, peer.pairs(&url, threads, span));
            }
        }
        lines.push(Line::new(format!("{threads} threads, lock + unlock"), "/s", Rounds::alone(unlock), Bar::None));
        for (peer, rounds) in measured {
            let measure = format!("{threads} threads, lock + drop (raw: {})", peer.name);
            lines.push(Line::new(measure, "/s", rounds, Bar::RatioAtLeast(1.0)));
        }
    }
    failed.tell("crates");
    lines.push(none("errors", failed.errors + failed.unconfirmed + failed.lost));
    Ok(lines)
}
