//! The two sides of a load: bare connections, and threads of one client.

use std::time::Duration;

use redlock_sync::{Mutex, Redlock};
use redlock_tests::Server;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::{Outcome, clock};

use crate::crew::{Cycle, Dropping, Pace, Tally, run, start_of};

/// Both sides of a load, on one server. Each thread has a key of its own.
pub(crate) struct Sides {
    raw: Vec<RawLock>,
    pub(crate) ours: Ours,
}

impl Sides {
    /// Starts both sides with this many threads.
    pub(crate) fn start(threads: usize) -> Outcome<Self> {
        let ours = Ours::start(threads)?;
        let urls = [ours.server.url()];
        let raw = (0..threads).map(|i| RawLock::open(&urls, &format!("raw:{i}"))).collect::<Outcome<_>>()?;
        Ok(Self { raw, ours })
    }

    /// Runs a block with bare connections. The first value is the number of pairs per second.
    pub(crate) fn raw(&mut self, pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
        block(&mut self.raw, pace, span)
    }
}

/// Threads of one client, each with a key of its own.
pub(crate) struct Ours {
    pub(crate) server: Server,
    pub(crate) locks: Redlock,
    pub(crate) mutexes: Vec<Mutex>,
    dropping: Vec<Dropping>,
}

impl Ours {
    pub(crate) fn start(threads: usize) -> Outcome<Self> {
        let server = Server::start();
        let locks = Redlock::builder().node(server.url()).build()?;
        let mutexes: Vec<_> = (0..threads).map(|i| locks.mutex(format!("ours:{i}"))).collect();
        let dropping = mutexes.iter().cloned().map(Dropping).collect();
        Ok(Self { server, locks, mutexes, dropping })
    }

    pub(crate) fn block(&mut self, pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
        block(&mut self.mutexes, pace, span)
    }

    /// Works like [`block`](Self::block), but drops the guards.
    pub(crate) fn dropping(&mut self, pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
        block(&mut self.dropping, pace, span)
    }
}

fn block<C: Cycle>(crew: &mut [C], pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
    let start = start_of(crew.len());
    let end = start + clock::nanos(span);
    let tally = run(crew, pace, start, end)?;
    Ok((tally.per_second(start, end), tally))
}
