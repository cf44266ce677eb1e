//! A lock that four processes hand over, compared with a token that they pass on.

use std::time::Duration;

use redlock_tests::bench::counts::requests;
use redlock_tests::bench::ring::{Field, Ring, Use};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::servers;

use super::nodes::NODES;
use super::{LONG_ROUNDS, urls};

const PROCESSES: usize = 4;
const KEY: &str = "handed";
const RAW: &str = "a list with BLPOP";

fn wanted(plan: Plan, block: Duration) -> Use {
    Use { block: plan.span(block), hold: Duration::from_millis(1), pause: Duration::ZERO }
}

pub(super) fn one_node(plan: Plan) -> Outcome<Vec<Line>> {
    let wanted = wanted(plan, Duration::from_secs(2));
    let mut field = Field::start(PROCESSES, KEY)?;
    field.raw(wanted.warm_up())?;
    field.ours(wanted.warm_up())?;
    let [mut rate, mut gap, mut late, mut jain, mut wait] = [const { Rounds { ours: Vec::new(), raw: Vec::new() } }; 5];
    let mut asked = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let raw = field.raw(wanted)?;
        let before = requests(&field.server);
        let ours = field.ours(wanted)?;
        asked.push(float(requests(&field.server) - before) / float(ours.acquisitions as u64));
        rate.push(ours.per_second, raw.per_second);
        gap.push(ours.gap_us, raw.gap_us);
        late.push(ours.gap_p95_us, raw.gap_p95_us);
        jain.push(ours.jain, raw.jain);
        wait.push(ours.longest_wait_ms, raw.longest_wait_ms);
    }
    Ok(vec![
        Line::beside("locks per second", "/s", rate, RAW).gate(Gate::RatioAtLeast(0.75)),
        Line::beside("from a release to the next holder, p50", "us", gap, RAW).gate(Gate::RatioAtMost(3.5)),
        Line::beside("the same, p95", "us", late, RAW),
        Line::beside("Jain index of the processes", "", jain, RAW).gate(Gate::AtLeast(0.99)),
        Line::beside("longest wait", "ms", wait, RAW).gate(Gate::AtMost(50.0)),
        Line::alone("requests for each lock", "", asked).gate(Gate::AtMost(3.0)),
    ])
}

/// On several nodes the waits can stand in another order on each, so there is no order of service to compare.
pub(super) fn five_nodes(plan: Plan) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    let mut ring = Ring::start(PROCESSES, KEY, &urls(&servers))?;
    let wanted = wanted(plan, Duration::from_secs(10));
    ring.block("ours", wanted.warm_up())?;
    let done = ring.block("ours", wanted)?;
    Ok(vec![
        Line::alone("locks per second", "/s", vec![done.per_second]),
        Line::alone("from a release to the next holder, p50", "us", vec![done.gap_us]),
        Line::alone("longest time without a holder", "ms", vec![done.stall_ms]).gate(Gate::AtMost(500.0)),
        Line::alone("Jain index of the processes", "", vec![done.jain]).gate(Gate::AtLeast(0.95)),
    ])
}
