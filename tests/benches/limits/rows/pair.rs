//! One thread, one node, and no other clients.

use std::sync::atomic::{AtomicU64, Ordering};

use redlock_sync::{Event, Observer};
use redlock_tests::Server;
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{p50_in_turns, p50_us, timed};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

use super::{mutex, pairs};

/// The number of pairs in a block. It is small, so that raw and ours see the same machine.
const BLOCK: usize = 50;
const RAW: &str = "two bare commands";

pub(super) fn uncontended(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let urls = [server.url()];
    let blocks = plan.count(50);
    let mut raw = RawLock::open(&urls, "raw")?;
    let ours = mutex(&urls, "ours")?;
    let unlocked = p50_in_turns(plan.rounds(), blocks, &mut |s| raw.pairs(BLOCK, s), &mut |s| pairs(&ours, BLOCK, s))?;
    let dropped = p50_in_turns(plan.rounds(), blocks, &mut |s| raw.pairs(BLOCK, s), &mut |s| {
        timed(BLOCK, s, || ours.lock().map(drop).map_err(Into::into))
    })?;
    Ok(vec![
        Line::beside("lock and unlock, p50", "us", unlocked, RAW).gate(Gate::RatioAtMost(1.5)),
        Line::beside("lock and drop, p50", "us", dropped, RAW).gate(Gate::RatioAtMost(1.2)),
    ])
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
    let mut micros = Vec::new();
    for _ in 0..plan.rounds() {
        let mut batches = Vec::new();
        for _ in 0..plan.count(1000) {
            let start = clock::now();
            for _ in 0..NESTED {
                mutex.lock()?.unlock()?;
            }
            batches.push(clock::now() - start);
        }
        micros.push(p50_us(&batches) / f64::from(NESTED));
    }
    let asked = requests(&server) - before;
    outer.unlock()?;
    Ok(vec![
        Line::alone("lock and unlock, p50", "us", micros).gate(Gate::AtMost(0.3)),
        Line::none("requests to the server", asked),
    ])
}

/// What the other kinds cost where a mutex would do. Raw is the least that a mutex needs.
pub(super) fn kinds(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let urls = [server.url()];
    let locks = client(&urls).build()?;
    let mut raw = RawLock::open(&urls, "raw")?;
    let (shared, permits) = (locks.rw_lock("shared"), locks.semaphore("permits", 10));
    let mut line = |measure: &str, ours: &mut dyn FnMut() -> Outcome<()>| -> Outcome<Line> {
        let ours = &mut |samples: &mut Vec<u64>| timed(BLOCK, samples, &mut *ours);
        let rounds = p50_in_turns(plan.rounds(), plan.count(25), &mut |s| raw.pairs(BLOCK, s), ours)?;
        Ok(Line::beside(measure, "us", rounds, RAW).gate(Gate::RatioAtMost(2.0)))
    };
    Ok(vec![
        line("read and unlock, p50", &mut || Ok(shared.read()?.unlock().map(drop)?))?,
        line("write and unlock, p50", &mut || Ok(shared.write()?.unlock().map(drop)?))?,
        line("acquire and release one of ten permits, p50", &mut || Ok(permits.acquire()?.release()?))?,
    ])
}

/// An observer that does the least useful work.
#[derive(Default)]
struct Counter(AtomicU64);

impl Observer for Counter {
    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn observed(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let settings = client(&[server.url()]);
    let bare = settings.clone().build()?.mutex("bare");
    let observed = settings.observer(Counter::default()).build()?.mutex("observed");
    let (mut raw, mut ours) = (
        |samples: &mut Vec<u64>| pairs(&bare, BLOCK, samples),
        |samples: &mut Vec<u64>| pairs(&observed, BLOCK, samples),
    );
    let rounds = p50_in_turns(plan.rounds(), plan.count(50), &mut raw, &mut ours)?;
    let added = rounds.ours.iter().zip(&rounds.raw).map(|(ours, raw)| ours - raw).collect();
    Ok(vec![Line::alone("lock and unlock: longer by, p50", "us", added).gate(Gate::AtMost(2.0))])
}
