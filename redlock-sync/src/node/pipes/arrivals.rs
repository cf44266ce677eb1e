//! Where threads wait for connections that are made for them: one place for all servers of a client, so that a thread can wait for several.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Tick};
use crate::node::Failure;
use crate::sync::{Condvar, Mutex};

/// From the moment at which a connection is said to have come, the pool needs so long to give it at most; else a thread asks once more.
const RECHECK_AFTER: Duration = Duration::from_micros(100);

pub(crate) struct Arrivals {
    all: Mutex<AllArrivals>,
    changed: Arc<Condvar>,
}

/// What was heard of all servers.
struct AllArrivals {
    servers: Vec<ServerArrivals>,
    /// Rises with each failed attempt, and with each connection that was taken into use.
    version: u64,
}

/// What was heard of the connections to one server.
#[derive(Default)]
struct ServerArrivals {
    is_ordered: bool,
    /// One has come, and was not taken.
    is_here: bool,
    last_failure: Option<Failure>,
}

impl Arrivals {
    pub(crate) fn new() -> Arc<Arrivals> {
        let all = Mutex::new(AllArrivals { servers: Vec::new(), version: 1 });
        Arc::new(Arrivals { all, changed: Arc::new(Condvar::new()) })
    }

    /// A place for one more server.
    pub(crate) fn register(&self) -> usize {
        let mut all = self.all.lock();
        all.servers.push(ServerArrivals::default());
        all.servers.len() - 1
    }

    fn with<T: Default>(&self, server: usize, f: impl FnOnce(&mut ServerArrivals) -> T) -> T {
        self.all.lock().servers.get_mut(server).map_or_else(T::default, f)
    }

    /// Changes what is known of a server, and wakes the threads that wait.
    fn update(&self, server: usize, f: impl FnOnce(&mut ServerArrivals)) {
        let mut all = self.all.lock();
        all.version += 1;
        if let Some(arrival) = all.servers.get_mut(server) {
            f(arrival);
        }
        drop(all);
        self.changed.notify_all();
    }

    /// True if none is ordered; then one is from now on. One at a time: attempts to reach a server that does not answer shall not keep all threads that
    /// connect.
    pub(super) fn order(&self, server: usize) -> bool {
        self.with(server, |arrival| !std::mem::replace(&mut arrival.is_ordered, true))
    }

    /// A connection can be had, now or in a moment.
    pub(super) fn came(&self, server: usize) {
        self.with(server, |arrival| (arrival.is_here, arrival.last_failure) = (true, None));
        self.changed.notify_all();
    }

    /// An attempt has failed. The pool tries again: it stays ordered.
    pub(super) fn failed(&self, server: usize, failure: Failure) {
        self.update(server, |arrival| arrival.last_failure = Some(failure));
    }

    /// An attempt has failed, and there will be no other one until one is ordered.
    pub(super) fn gave_up(&self, server: usize, failure: Failure) {
        self.update(server, |arrival| {
            (arrival.is_ordered, arrival.last_failure) = (false, Some(failure));
        });
    }

    /// A connection may be there that was not taken.
    pub(super) fn is_here(&self, server: usize) -> bool {
        self.with(server, |arrival| arrival.is_here)
    }

    /// It was taken into use. The threads that waited for it share it, and one of them may not have seen that it was here.
    pub(super) fn taken(&self, server: usize) {
        self.update(server, |arrival| {
            (arrival.is_ordered, arrival.is_here, arrival.last_failure) = (false, false, None);
        });
    }

    /// How much was told until now: to be asked before a thread looks for connections, after which it may wait.
    pub(crate) fn version(&self) -> u64 {
        self.all.lock().version
    }

    /// Why the last_failure attempt failed, if no connection has come since.
    pub(crate) fn failure(&self, server: usize) -> Option<Failure> {
        self.with(server, |arrival| arrival.last_failure.clone())
    }

    /// Waits until there is version since then, or a connection to one of these servers is here; at most until then.
    pub(crate) fn wait(&self, places: &[usize], seen: u64, until: Tick, clock: &dyn Clock) {
        let mut all = self.all.lock();
        while all.version == seen {
            let now = clock.now();
            if places.iter().any(|place| all.servers.get(*place).is_some_and(|arrival| arrival.is_here)) {
                return clock.wait_until(&self.changed, &mut all, now.after(RECHECK_AFTER).min(until));
            }
            if now >= until {
                return;
            }
            clock.wait_until(&self.changed, &mut all, until);
        }
    }
}
