//! One thread, one node, and no other clients.

use redis::cmd;
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::raw::{RawLock, Wire, packed};
use redlock_tests::bench::stats::{Rounds, float, p50_in_turns, p50_us};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};
use redlock_tests::{Proxy, Server};

use super::{mutex, pairs};

/// The number of pairs in a block. It is small, so that raw and ours see the same machine.
const BLOCK: usize = 50;

pub(super) fn uncontended(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let urls = [server.url()];
    let blocks = plan.count(50);
    let mut raw = RawLock::open(&urls, "raw")?;
    let ours = mutex(&urls, "ours")?;
    let pair = p50_in_turns(plan.rounds(), blocks, &mut |s| raw.pairs(BLOCK, s), &mut |s| pairs(&ours, BLOCK, s))?;
    let mut lines = vec![Line::new("lock + unlock, p50", "us", pair, Bar::RatioAtMost(1.10))];
    let mut replay = Replay::record(&server)?;
    let scripts = p50_in_turns(plan.rounds(), blocks, &mut |s| raw.pairs(BLOCK, s), &mut |s| replay.pairs(BLOCK, s))?;
    lines.push(Line::new("of which: our scripts, bare connection", "us", scripts, Bar::None));
    Ok(lines)
}

/// The recorded requests of a lock and an unlock, sent on a bare connection. They show the cost of the scripts without
/// that of the client.
struct Replay {
    wire: Wire,
    requests: Vec<Vec<u8>>,
}

impl Replay {
    fn record(server: &Server) -> Outcome<Self> {
        let proxy = Proxy::start(server);
        let mutex = mutex(&[proxy.url()], "replayed")?;
        mutex.lock()?.unlock()?;
        proxy.clear_log();
        mutex.lock()?.unlock()?;
        let pack = |seen: redlock_tests::Seen| {
            let is_script = seen.args.first().is_some_and(|digest| digest.len() == 40);
            // The proxy logs a first attempt as `acquire`, whether it is a script or a plain `SET`.
            let is_set = seen.args.iter().any(|arg| arg == "NX");
            let name = if is_script {
                "EVALSHA"
            } else if is_set {
                "SET"
            } else {
                &seen.name
            };
            packed(cmd(name).arg(&seen.args))
        };
        Ok(Self { wire: Wire::open(&server.url())?, requests: proxy.seen().into_iter().map(pack).collect() })
    }

    fn pairs(&mut self, n: usize, samples: &mut Vec<u64>) -> Outcome<()> {
        for _ in 0..n {
            let start = clock::now();
            for request in &self.requests {
                self.wire.call(request)?;
            }
            samples.push(clock::now() - start);
        }
        Ok(())
    }
}

/// The number of nested pairs in a batch. It is large enough to make the clock reads irrelevant, and small enough that
/// another process rarely interrupts a batch.
const NESTED: u32 = 100;

/// A lock that the thread holds already. There is no raw limit, because the library must not send a request at all.
pub(super) fn nested(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let mutex = client(&[server.url()]).build()?.reentrant_mutex("nested");
    let outer = mutex.lock()?;
    let before = requests(&server);
    let mut nanos = Vec::new();
    for _ in 0..plan.rounds() {
        let mut batches = Vec::new();
        for _ in 0..plan.count(1000) {
            let start = clock::now();
            for _ in 0..NESTED {
                mutex.lock()?.unlock()?;
            }
            batches.push(clock::now() - start);
        }
        nanos.push(p50_us(&batches) * 1e3 / f64::from(NESTED));
    }
    let asked = requests(&server) - before;
    outer.unlock()?;
    Ok(vec![
        Line::new("lock + unlock, p50", "ns", Rounds::alone(nanos), Bar::AtMost(300.0)),
        Line::new("requests to the server", "", Rounds::alone(vec![float(asked)]), Bar::AtMost(0.0)),
    ])
}
