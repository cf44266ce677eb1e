//! The two sides of a load: bare connections, and threads of one client.

use std::time::Duration;

use redlock_sync::{Mutex, Redlock};
use redlock_tests::bench::delay::Delay;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::{Outcome, clock};
use redlock_tests::{Server, servers};

use crate::crew::{Dropping, Pace, Tally, run, start_of};

/// Both sides of a load.
pub(crate) struct Sides {
    pub(crate) raw: Vec<RawLock>,
    pub(crate) ours: Ours,
    /// The servers of the raw side behind a delay. Without a delay, both sides have the same servers. The idle
    /// connections of one side would make the delay proxy slower for the other side.
    aside: Option<Place>,
}

impl Sides {
    /// Starts both sides with this many threads on this many nodes. Each thread has a key of its own.
    pub(crate) fn start(nodes: usize, threads: usize, delay: Option<Duration>) -> Outcome<Self> {
        let ours = Ours::start(nodes, threads, delay)?;
        let aside = delay.map(|delay| Place::start(nodes, Some(delay))).transpose()?;
        let urls = aside.as_ref().unwrap_or(&ours.place).urls.clone();
        let raw = (0..threads).map(|i| RawLock::native(&urls, &format!("raw:{i}"))).collect::<Outcome<_>>()?;
        Ok(Self { raw, ours, aside })
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.aside.is_some()
    }

    /// Runs a block with bare connections. The first value is the number of pairs per second.
    pub(crate) fn raw(&mut self, pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
        block(&mut self.raw, pace, span)
    }
}

/// Threads of one client, each with a key of its own.
pub(crate) struct Ours {
    pub(crate) locks: Redlock,
    pub(crate) mutexes: Vec<Mutex>,
    dropping: Vec<Dropping>,
    pub(crate) place: Place,
}

impl Ours {
    pub(crate) fn start(nodes: usize, threads: usize, delay: Option<Duration>) -> Outcome<Self> {
        let place = Place::start(nodes, delay)?;
        let locks = Redlock::builder().nodes(&place.urls).build()?;
        let mutexes: Vec<_> = (0..threads).map(|i| locks.mutex(format!("ours:{i}"))).collect();
        let dropping = mutexes.iter().cloned().map(Dropping).collect();
        Ok(Self { locks, mutexes, dropping, place })
    }

    pub(crate) fn block(&mut self, pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
        block(&mut self.mutexes, pace, span)
    }

    /// Works like [`block`](Self::block), but drops the guards.
    pub(crate) fn dropping(&mut self, pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
        block(&mut self.dropping, pace, span)
    }
}

fn block<C: crate::crew::Cycle>(crew: &mut [C], pace: Pace, span: Duration) -> Outcome<(f64, Tally)> {
    let start = start_of(crew.len());
    let end = start + clock::nanos(span);
    let tally = run(crew, pace, start, end)?;
    Ok((tally.per_second(start, end), tally))
}

/// Servers, and the connections to them.
pub(crate) struct Place {
    pub(crate) servers: Vec<Server>,
    pub(crate) urls: Vec<String>,
    _delay: Option<Delay>,
}

impl Place {
    pub(crate) fn start(nodes: usize, delay: Option<Duration>) -> Outcome<Self> {
        let servers = servers(nodes);
        let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
        let delay = delay.map(|delay| Delay::start(&addrs, delay)).transpose()?;
        let urls = delay.as_ref().map_or_else(|| servers.iter().map(Server::url).collect(), Delay::urls);
        Ok(Self { servers, urls, _delay: delay })
    }
}
