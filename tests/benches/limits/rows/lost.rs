//! Keys that are deleted while their locks are held.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_tests::bench::stats::{Rounds, median, p99};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};
use redlock_tests::{Server, servers};

use super::{LONG_ROUNDS, urls};

const KEYS: usize = 300;
/// No renewal finds a loss.
const LEASE: Duration = Duration::from_secs(600);
/// After this time the client looks after its locks.
const SETTLED: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);
/// The longest time until a loss is told.
const BAR_MS: f64 = 1200.0;
/// The longest wait for all losses.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn one_node(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, &servers(1))
}

pub(super) fn three_nodes(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, &servers(3))
}

fn lines(plan: Plan, servers: &[Server]) -> Outcome<Vec<Line>> {
    let (mut middle, mut late) = (Vec::new(), Vec::new());
    for _ in 0..LONG_ROUNDS {
        let took = round(servers, plan.count(KEYS))?;
        let millis: Vec<f64> = took.iter().map(|nanos| Duration::from_nanos(*nanos).as_secs_f64() * 1e3).collect();
        middle.push(median(&millis));
        late.push(p99(took.iter().copied()) / 1e6);
    }
    Ok(vec![
        Line::new("DEL -> Lost, p50", "ms", Rounds::alone(middle), Bar::None),
        Line::new("DEL -> Lost, p99", "ms", Rounds::alone(late), Bar::AtMost(BAR_MS)),
    ])
}

/// The time from each deletion until the loss is told, in nanoseconds.
fn round(servers: &[Server], keys: usize) -> Outcome<Vec<u64>> {
    let locks = client(&urls(servers)).restart_guard(false).lease(LEASE).build()?;
    let guards = (0..keys).map(|i| locks.mutex(format!("lost:{i}")).lock()).collect::<Result<Vec<_>, _>>()?;
    let (tell, told) = channel();
    for (i, guard) in guards.iter().enumerate() {
        let tell = tell.clone();
        guard.on_lost(move |_| _ = tell.send((i, clock::now())));
    }
    thread::sleep(SETTLED);
    let mut connections: Vec<_> = servers.iter().map(Server::client).collect();
    let mut deleted = Vec::new();
    for guard in &guards {
        deleted.push(clock::now());
        for connection in &mut connections {
            cmd("DEL").arg(guard.key()).exec(connection)?;
        }
        thread::sleep(PAUSE);
    }
    let took = |_| {
        let (i, at) = told.recv_timeout(PATIENCE)?;
        Ok(at - deleted[i])
    };
    guards.iter().map(took).collect()
}
