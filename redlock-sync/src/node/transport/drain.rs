//! The drain thread: it reads the replies for which no thread waits, and writes what did not fit into a socket. One
//! thread does so for all connections of a client. It never waits on a socket, and runs no code of users.
//!
//! It starts when it is needed, and ends after it was idle for a while. If the system cannot start a thread, who sends
//! a call that nobody waits for waits for its reply, for a node timeout at most.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::{Clock, Tick};
use crate::sync::{Condvar, Mutex};

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// A connection, for the drain thread.
pub(crate) trait Drained: Send + Sync {
    /// Reads what has arrived, and writes what fits, without waiting. Returns when to look again, or `None` if nothing
    /// is left to do.
    fn tend(self: Arc<Self>) -> Option<Tick>;
}

/// Looks after connections, until it is dropped with the last server of the client.
pub(crate) struct Drain {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<DrainState>,
    changed: Arc<Condvar>,
}

#[derive(Default)]
struct DrainState {
    /// The connections to look after, and when. They do not outlive their client here.
    due: Vec<(Tick, Weak<dyn Drained>)>,
    is_running: bool,
    is_over: bool,
    is_eager: bool,
}

impl Drain {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Drain {
        let shared = Shared { clock: Arc::clone(clock), state: Mutex::default(), changed: Arc::new(Condvar::new()) };
        Drain { shared: Arc::new(shared) }
    }

    /// From now on, replies are read soon. A server's scripts may not publish, so a reply can bring what the client has
    /// to publish.
    pub(crate) fn be_eager(&self) {
        self.shared.state.lock().is_eager = true;
    }

    pub(super) fn is_eager(&self) -> bool {
        self.shared.state.lock().is_eager
    }

    /// Has the thread look after this connection at that time. Returns false if no thread can be started.
    pub(super) fn look_after(&self, connection: &Arc<dyn Drained>, at: Tick) -> bool {
        let mut state = self.shared.state.lock();
        let is_first = state.add(connection, at);
        if !state.is_running && !state.is_over {
            let shared = Arc::clone(&self.shared);
            // The state is locked, so no other thread can rely on one that failed to start.
            if self.shared.clock.start("redlock-drain", Box::new(move || shared.run())).is_err() {
                state.due.clear();
                return false;
            }
            state.is_running = true;
        } else if is_first {
            drop(state);
            // The thread reads the state under its mutex before it sleeps, so the notification is not lost.
            self.shared.changed.notify_one();
        }
        true
    }
}

impl DrainState {
    /// Returns true if nothing else is due earlier.
    fn add(&mut self, connection: &Arc<dyn Drained>, at: Tick) -> bool {
        let is_first = self.due.iter().all(|(other, _)| at < *other);
        match self.due.iter_mut().find(|(_, known)| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(connection))) {
            Some((known, _)) => *known = at.min(*known),
            None => self.due.push((at, Arc::downgrade(connection))),
        }
        is_first
    }
}

impl Shared {
    fn run(&self) {
        while let Some(connection) = self.next() {
            if let Some(connection) = connection.upgrade()
                // A callback that panics closes its connection.
                && let Ok(Some(again)) = catch_unwind(AssertUnwindSafe(|| Arc::clone(&connection).tend()))
            {
                self.state.lock().add(&connection, again);
            }
        }
    }

    /// Waits until a connection is due. `None` if the thread shall end.
    fn next(&self) -> Option<Weak<dyn Drained>> {
        let mut state = self.state.lock();
        let end = self.clock.now().after(IDLE);
        loop {
            let now = self.clock.now();
            let first =
                state.due.iter().enumerate().min_by_key(|(_, (at, _))| *at).map(|(place, (at, _))| (place, *at));
            match first {
                _ if state.is_over => {}
                Some((place, at)) if at <= now => return Some(state.due.swap_remove(place).1),
                Some((_, at)) => {
                    self.clock.idle_until(&self.changed, &mut state, at);
                    continue;
                }
                None if now < end => {
                    self.clock.idle_until(&self.changed, &mut state, end);
                    continue;
                }
                None => {}
            }
            state.is_running = false;
            return None;
        }
    }
}

impl Drop for Drain {
    /// A thread of the parent may have held the mutex when a child was forked. A child forgets its connections, so it
    /// does not come here.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_over = true;
        drop(state);
        self.shared.changed.notify_one();
    }
}
