//! Locks on five nodes: near, 1 ms away, and with one node that is stopped.

use std::time::Duration;

use redlock_sync::{Mutex, Redlock};
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::delay::Delay;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{Rounds, float, p50_in_turns, p50_us};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan, clock};
use redlock_tests::{Server, poll, servers};

use super::{LONG_ROUNDS, mutex, pairs, urls};

pub(super) const NODES: usize = 5;
const RAW: &str = "bare: write to all, then read";
/// The time that the delay proxy adds to each round trip.
const AWAY: Duration = Duration::from_millis(1);

pub(super) fn pair(plan: Plan) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    let near = in_turns(plan, &urls(&servers), 25)?;
    let delay = Delay::start(&servers.iter().map(Server::addr).collect::<Vec<_>>(), AWAY)?;
    let far = in_turns(plan, &delay.urls(), 10)?;
    Ok(vec![
        Line::beside("lock and unlock, p50", "us", near, RAW).gate(Gate::RatioAtMost(1.5)),
        Line::beside("the same, each server 1 ms away", "us", far, RAW).gate(Gate::RatioAtMost(1.2)),
    ])
}

fn in_turns(plan: Plan, urls: &[String], block: usize) -> Outcome<Rounds> {
    let mut raw = RawLock::open(urls, "raw")?;
    let ours = mutex(urls, "ours")?;
    let mut of_raw = |samples: &mut Vec<u64>| raw.pairs(block, samples);
    p50_in_turns(plan.rounds(), plan.count(25), &mut of_raw, &mut |samples| pairs(&ours, block, samples))
}

/// The default node timeout of a client, and the time that Linux can add to it: it rounds timeouts of sockets up.
const FIRST_MS: f64 = 250.0 + 40.0;
const LEASE: Duration = Duration::from_secs(10);

pub(super) fn one_stopped(plan: Plan) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    // The restart guard is off. So the node that comes back votes at once, and each round begins with five good nodes.
    let locks = Redlock::builder().nodes(urls(&servers)).restart_guard(false).lease(LEASE).build()?;
    let mutex = locks.mutex("outage");
    let count = plan.count(500);
    let mut first = Vec::new();
    let mut later = Rounds::default();
    let mut alone = Vec::new();
    let mut left = Vec::new();
    p50(&mutex, count)?;
    for round in 0..LONG_ROUNDS {
        let sick = &servers[round % NODES];
        let healthy = p50(&mutex, count)?;
        sick.stop();
        let start = clock::now();
        let guard = mutex.lock()?;
        first.push(float(clock::now() - start) / 1e6);
        guard.unlock()?;
        later.push(p50(&mutex, count)?, healthy);
        let start = clock::now();
        let guard = mutex.lock()?;
        alone.push(float(clock::now() - start) / 1e3);
        left.push(guard.remaining().as_secs_f64());
        guard.unlock()?;
        sick.cont();
        recover(&mutex, sick)?;
    }
    Ok(vec![
        Line::alone("the first lock after it", "ms", first).gate(Gate::AtMost(FIRST_MS)),
        Line::beside("lock and unlock from then on, p50", "us", later, "before").gate(Gate::RatioAtMost(1.3)),
        Line::alone("a lock alone, without the unlock", "us", alone),
        Line::alone("of a lease of 10 s, for the holder", "s", left),
    ])
}

fn p50(mutex: &Mutex, count: usize) -> Outcome<f64> {
    let mut samples = Vec::new();
    pairs(mutex, count, &mut samples)?;
    Ok(p50_us(&samples))
}

/// Locks and unlocks until the client uses this server again.
fn recover(mutex: &Mutex, server: &Server) -> Outcome<()> {
    let used = poll(Duration::from_secs(20), || {
        let before = requests(server);
        match pairs(mutex, 20, &mut Vec::new()) {
            // These are the releases. A first attempt is a plain command, and does not count.
            Ok(()) => (requests(server) >= before + 20).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    });
    used.unwrap_or_else(|| Err("the client does not use a node again that is back".into()))
}
