//! Locks on five nodes.

use std::time::Duration;

use redlock_tests::bench::counts::requests;
use redlock_tests::bench::delay::Delay;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::ring::{Ring, Use};
use redlock_tests::bench::stats::{Rounds, float, p50_in_turns};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::{Server, servers};

use super::handover::PROCESSES;
use super::{mutex, pairs, urls};

pub(super) const NODES: usize = 5;

/// The time that the delay proxy adds to each round trip.
const DELAY: Duration = Duration::from_millis(1);

pub(super) fn loopback(plan: Plan) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    let rounds = in_turns(plan, &urls(&servers), 25)?;
    Ok(vec![Line::new("lock + unlock, p50", "us", rounds, Bar::RatioAtMost(1.10))])
}

pub(super) fn delayed(plan: Plan) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    let delay = Delay::start(&servers.iter().map(Server::addr).collect::<Vec<_>>(), DELAY)?;
    let rounds = in_turns(plan, &delay.urls(), 10)?;
    Ok(vec![Line::new("lock + unlock, p50", "us", rounds, Bar::RatioAtMost(1.05))])
}

fn in_turns(plan: Plan, urls: &[String], block: usize) -> Outcome<Rounds> {
    let mut raw = RawLock::open(urls, "raw")?;
    let ours = mutex(urls, "ours")?;
    let mut of_raw = |samples: &mut Vec<u64>| raw.pairs(block, samples);
    p50_in_turns(plan.rounds(), plan.count(40), &mut of_raw, &mut |samples| pairs(&ours, block, samples))
}

/// Four processes contend for the same lock on five nodes for half a minute.
pub(super) fn contended(plan: Plan) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    let mut ring = Ring::start(PROCESSES, "contended", &urls(&servers))?;
    let block = if plan.quick { Duration::from_secs(4) } else { Duration::from_secs(30) };
    let wanted = Use { block, hold: Duration::from_millis(1), pause: Duration::ZERO };
    ring.block("ours", wanted.warm_up())?;
    let before = requests(&servers[0]);
    let done = ring.block("ours", wanted)?;
    let sent = float(requests(&servers[0]) - before) / float(done.acquisitions as u64);
    let alone = |value| Rounds::alone(vec![value]);
    Ok(vec![
        Line::new("longest time without a new holder", "ms", alone(done.stall_ms), Bar::AtMost(500.0)),
        Line::new("Jain index over processes", "", alone(done.jain), Bar::AtLeast(0.95)),
        Line::new("acquisitions per second", "/s", alone(done.per_second), Bar::None),
        Line::new("longest wait", "ms", alone(done.longest_wait_ms), Bar::None),
        Line::new("requests per acquisition and node", "", alone(sent), Bar::None),
    ])
}
