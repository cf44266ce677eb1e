//! Five nodes, one of which is stopped or killed.

use std::time::Duration;

use redlock_sync::{Mutex, Redlock};
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::stats::{Rounds, float, p50_us};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};
use redlock_tests::{Server, poll, servers};

use super::nodes::NODES;
use super::{LONG_ROUNDS, pairs, urls};

/// The default node timeout of a client.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// The time that Linux can add to a socket timeout of this length. Its timers tick in steps of eight jiffies there.
const KERNEL: Duration = Duration::from_millis(40);

pub(super) fn stopped(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, Server::stop, Server::cont)
}

pub(super) fn killed(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, Server::kill, Server::restart)
}

fn lines(plan: Plan, away: fn(&Server), back: fn(&Server)) -> Outcome<Vec<Line>> {
    let servers = servers(NODES);
    // The restart guard is off. So the node that comes back votes at once, and each round begins with five good nodes.
    let locks = Redlock::builder().nodes(urls(&servers)).node_timeout(NODE_TIMEOUT).restart_guard(false).build()?;
    let mutex = locks.mutex("outage");
    let count = plan.count(1000);
    let (mut first, mut call) = (Vec::new(), Rounds::default());
    p50(&mutex, count / 5)?;
    for round in 0..LONG_ROUNDS {
        let sick = &servers[round % NODES];
        let healthy = p50(&mutex, count)?;
        away(sick);
        let start = clock::now();
        let guard = mutex.lock()?;
        let took = float(clock::now() - start) / 1e6;
        guard.unlock()?;
        first.push(took);
        call.push(p50(&mutex, count)?, healthy);
        back(sick);
        recover(&mutex, sick)?;
    }
    let bar = (NODE_TIMEOUT + KERNEL).as_secs_f64() * 1e3;
    Ok(vec![
        Line::new("first lock", "ms", Rounds::alone(first), Bar::AtMost(bar)),
        Line::new("from then on, p50 (raw: healthy)", "us", call, Bar::RatioAtMost(1.15)),
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
