//! Some rows on a server that has many other keys, compared with the same rows on a server that has none. Here "raw" is
//! the empty server.

use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::raw::Wire;
use redlock_tests::bench::ring::Use;
use redlock_tests::bench::stats::{Rounds, blocks_in_turns, p50_in_turns};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::handover::field;
use super::threads::OurThreads;
use super::{BLOCK, LONG_ROUNDS, mutex, pairs};

const KEYS: usize = 100_000;
/// The number of keys in one pipeline.
const BATCH: usize = 1000;
const SLOWER: Bar = Bar::RatioAtMost(1.1);
const FEWER: Bar = Bar::RatioAtLeast(0.9);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = pair(plan)?;
    lines.extend(handover(plan)?);
    Ok(lines)
}

fn pair(plan: Plan) -> Outcome<Vec<Line>> {
    let (empty, full) = (Server::start(), Server::start());
    fill(&full)?;
    let (raw, ours) = (mutex(&[empty.url()], "one")?, mutex(&[full.url()], "one")?);
    let one = p50_in_turns(plan.rounds(), plan.count(50), &mut |s| pairs(&raw, 50, s), &mut |s| pairs(&ours, 50, s))?;
    let (raw, ours) = (OurThreads::open(&empty)?, OurThreads::open(&full)?);
    let eight =
        blocks_in_turns(plan.rounds(), plan.blocks(), &mut || raw.per_second(BLOCK), &mut || ours.per_second(BLOCK))?;
    Ok(vec![
        Line::new("uncontended, p50 (raw: no other keys)", "us", one, SLOWER),
        Line::new("threads8 (raw: no other keys)", "/s", eight, FEWER),
    ])
}

fn handover(plan: Plan) -> Outcome<Vec<Line>> {
    let (mut empty, mut full) = (field()?, field()?);
    fill(&full.server)?;
    let block = plan.span(Duration::from_secs(2));
    let wanted = Use { block, hold: Duration::from_millis(1), pause: Duration::ZERO };
    empty.ours(wanted.warm_up())?;
    full.ours(wanted.warm_up())?;
    let (mut rate, mut gap) = (Rounds::default(), Rounds::default());
    for _ in 0..LONG_ROUNDS {
        let (without, with) = (empty.ours(wanted)?, full.ours(wanted)?);
        rate.push(with.per_second, without.per_second);
        gap.push(with.gap_us, without.gap_us);
    }
    Ok(vec![
        Line::new("handover0, rate (raw: no other keys)", "/s", rate, FEWER),
        Line::new("handover0, gap p50 (raw: no other)", "us", gap, SLOWER),
    ])
}

/// Fills the server with keys. Half of them never expire. The others expire within the next ten minutes, so the server
/// has this work too.
fn fill(server: &Server) -> Outcome<()> {
    let mut wire = Wire::open(&server.url())?;
    for first in (0..KEYS).step_by(BATCH) {
        let mut pipe = redis::pipe();
        for i in first..first + BATCH {
            let set = pipe.cmd("SET").arg(format!("other:{i}")).arg("value");
            if i % 2 == 0 {
                set.arg("PX").arg(1000 + i * 6);
            }
        }
        wire.send(&pipe.get_packed_pipeline())?;
        for _ in 0..BATCH {
            wire.receive()?;
        }
    }
    Ok(())
}
