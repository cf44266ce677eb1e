//! How threads wait for new connections. There is one instance for all servers of a client, so a thread can wait for
//! connections to several servers.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Tick};
use crate::node::Failure;
use crate::sync::{Condvar, Mutex};

/// After a connection was announced, the pool needs at most about this long to hand it out. Then a waiting thread asks
/// again.
const RECHECK_AFTER: Duration = Duration::from_micros(100);

pub(crate) struct Arrivals {
    all: Mutex<AllArrivals>,
    changed: Arc<Condvar>,
}

/// The state of the connections to all servers.
struct AllArrivals {
    servers: Vec<ServerArrivals>,
    /// Incremented with each failed attempt, and with each connection that is taken into use.
    version: u64,
}

/// The state of the new connections to one server.
#[derive(Default)]
struct ServerArrivals {
    is_ordered: bool,
    /// A connection has arrived and was not taken yet.
    is_here: bool,
    last_failure: Option<Failure>,
}

impl Arrivals {
    pub(crate) fn new() -> Arc<Arrivals> {
        let all = Mutex::new(AllArrivals { servers: Vec::new(), version: 1 });
        Arc::new(Arrivals { all, changed: Arc::new(Condvar::new()) })
    }

    /// Registers a server, and returns its index.
    pub(crate) fn register(&self) -> usize {
        let mut all = self.all.lock();
        all.servers.push(ServerArrivals::default());
        all.servers.len() - 1
    }

    fn with<T: Default>(&self, server: usize, f: impl FnOnce(&mut ServerArrivals) -> T) -> T {
        self.all.lock().servers.get_mut(server).map_or_else(T::default, f)
    }

    /// Changes the state of a server, and wakes the waiting threads.
    fn update(&self, server: usize, f: impl FnOnce(&mut ServerArrivals)) {
        let mut all = self.all.lock();
        all.version += 1;
        if let Some(arrival) = all.servers.get_mut(server) {
            f(arrival);
        }
        drop(all);
        self.changed.notify_all();
    }

    /// Marks a connection as ordered. Returns false if one already was. Only one attempt at a time is made, so that a
    /// dead server does not block all threads that connect.
    pub(super) fn order(&self, server: usize) -> bool {
        self.with(server, |arrival| !std::mem::replace(&mut arrival.is_ordered, true))
    }

    /// A connection is available, now or in a moment.
    pub(super) fn came(&self, server: usize) {
        self.with(server, |arrival| (arrival.is_here, arrival.last_failure) = (true, None));
        self.changed.notify_all();
    }

    /// An attempt failed. The pool tries again, so the connection remains ordered.
    pub(super) fn failed(&self, server: usize, failure: Failure) {
        self.update(server, |arrival| arrival.last_failure = Some(failure));
    }

    /// An attempt failed, and no other follows until a connection is ordered again.
    pub(super) fn gave_up(&self, server: usize, failure: Failure) {
        self.update(server, |arrival| {
            (arrival.is_ordered, arrival.last_failure) = (false, Some(failure));
        });
    }

    /// True if a connection may be available.
    pub(super) fn is_here(&self, server: usize) -> bool {
        self.with(server, |arrival| arrival.is_here)
    }

    /// A connection was taken into use. All waiting threads are woken, because they share it, and one may not have seen
    /// its arrival.
    pub(super) fn taken(&self, server: usize) {
        self.update(server, |arrival| {
            (arrival.is_ordered, arrival.is_here, arrival.last_failure) = (false, false, None);
        });
    }

    /// The current version. A thread reads it before it looks for connections, and passes it to `wait`.
    pub(crate) fn version(&self) -> u64 {
        self.all.lock().version
    }

    /// Why the last attempt failed, if no connection has arrived since.
    pub(crate) fn failure(&self, server: usize) -> Option<Failure> {
        self.with(server, |arrival| arrival.last_failure.clone())
    }

    /// Waits until the version differs from `seen`, or a connection to one of these servers is available, or until the
    /// deadline.
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
