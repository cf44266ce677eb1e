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

#[derive(Debug)]
pub(crate) struct Arrivals {
    servers: Mutex<Vec<ArrivalState>>,
    changed: Arc<Condvar>,
}

/// The state of the new connections to one server.
#[derive(Debug, Default)]
struct ArrivalState {
    is_ordered: bool,
    /// A connection has arrived and was not taken yet.
    is_here: bool,
    last_failure: Option<Failure>,
    /// The number of failed attempts, and of connections that were taken into use.
    changes: u64,
}

impl Arrivals {
    pub(crate) fn new() -> Arc<Arrivals> {
        Arc::new(Arrivals { servers: Mutex::default(), changed: Arc::new(Condvar::new()) })
    }

    /// Registers a server.
    pub(crate) fn register(self: &Arc<Self>) -> ServerArrivals {
        let mut servers = self.servers.lock();
        servers.push(ArrivalState::default());
        ServerArrivals { index: servers.len() - 1, arrivals: Arc::clone(self) }
    }

    /// The current version, which is never 0. A thread reads it before it looks for connections, and passes it to
    /// `wait`.
    pub(crate) fn version(&self) -> u64 {
        version(&self.servers.lock())
    }

    /// Waits until the version differs from `seen`, or a connection to one of these servers is available, or until the
    /// deadline.
    pub(crate) fn wait(&self, servers: &[usize], seen: u64, until: Tick, clock: &dyn Clock) {
        let mut all = self.servers.lock();
        while version(&all) == seen {
            let now = clock.now();
            if servers.iter().any(|server| all.get(*server).is_some_and(|arrival| arrival.is_here)) {
                return clock.wait_until(&self.changed, &mut all, now.after(RECHECK_AFTER).min(until));
            }
            if now >= until {
                return;
            }
            clock.wait_until(&self.changed, &mut all, until);
        }
    }
}

fn version(servers: &[ArrivalState]) -> u64 {
    1 + servers.iter().map(|server| server.changes).sum::<u64>()
}

/// The arrivals of one server.
#[derive(Clone, Debug)]
pub(crate) struct ServerArrivals {
    /// The index of the server, for [`Arrivals::wait`].
    pub(super) index: usize,
    arrivals: Arc<Arrivals>,
}

impl ServerArrivals {
    fn with<T: Default>(&self, f: impl FnOnce(&mut ArrivalState) -> T) -> T {
        self.arrivals.servers.lock().get_mut(self.index).map_or_else(T::default, f)
    }

    /// Changes the state, and wakes the waiting threads.
    fn update(&self, f: impl FnOnce(&mut ArrivalState)) {
        // The states are unlocked before the notification. Pairs with `Arrivals::wait`, which reads them under their
        // lock before it sleeps. So no notification is lost.
        self.with(|state| {
            state.changes += 1;
            f(state);
        });
        self.arrivals.changed.notify_all();
    }

    /// Marks a connection as ordered. Returns false if one already was. Only one attempt at a time is made, so that a
    /// dead server does not block all threads that connect.
    pub(super) fn order(&self) -> bool {
        self.with(|state| !std::mem::replace(&mut state.is_ordered, true))
    }

    /// A connection is available, now or in a moment.
    pub(super) fn came(&self) {
        // Unlocked before the notification, as in `update`.
        self.with(|state| (state.is_here, state.last_failure) = (true, None));
        self.arrivals.changed.notify_all();
    }

    /// An attempt failed. The pool tries again, so the connection remains ordered.
    pub(super) fn failed(&self, failure: Failure) {
        self.update(|state| state.last_failure = Some(failure));
    }

    /// An attempt failed, and no other follows until a connection is ordered again.
    pub(super) fn gave_up(&self, failure: Failure) {
        self.update(|state| (state.is_ordered, state.last_failure) = (false, Some(failure)));
    }

    /// True if a connection may be available.
    pub(super) fn is_here(&self) -> bool {
        self.with(|state| state.is_here)
    }

    /// A connection was taken into use. All waiting threads are woken, because they share it, and one may not have seen
    /// its arrival.
    pub(super) fn taken(&self) {
        self.update(|state| (state.is_ordered, state.is_here, state.last_failure) = (false, false, None));
    }

    /// Why the last attempt failed, if no connection has arrived since.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.with(|state| state.last_failure.clone())
    }
}
