//! Where threads wait for connections that are made for them: one place for all servers of a client, so that a thread can wait for several.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Tick};
use crate::node::Failure;
use crate::sync::{Condvar, Mutex};

/// From the moment at which a connection is said to have come, the pool needs so long to give it at most; else a thread asks once more.
const MOMENT: Duration = Duration::from_micros(100);

pub(crate) struct Arrivals {
    board: Mutex<Board>,
    moved: Arc<Condvar>,
}

/// What was heard of all servers.
struct Board {
    servers: Vec<Arrival>,
    /// Rises with each failed attempt, and with each connection that was taken into use.
    news: u64,
}

/// What was heard of the connections to one server.
#[derive(Default)]
struct Arrival {
    is_ordered: bool,
    /// One has come, and was not taken.
    is_here: bool,
    last: Option<Failure>,
}

impl Arrivals {
    pub(crate) fn new() -> Arc<Arrivals> {
        let board = Mutex::new(Board { servers: Vec::new(), news: 1 });
        Arc::new(Arrivals { board, moved: Arc::new(Condvar::new()) })
    }

    /// A place for one more server.
    pub(crate) fn place(&self) -> usize {
        let mut board = self.board.lock();
        board.servers.push(Arrival::default());
        board.servers.len() - 1
    }

    fn with<T: Default>(&self, server: usize, f: impl FnOnce(&mut Arrival) -> T) -> T {
        self.board.lock().servers.get_mut(server).map_or_else(T::default, f)
    }

    /// Changes what is known of a server, and wakes the threads that wait.
    fn tell(&self, server: usize, f: impl FnOnce(&mut Arrival)) {
        let mut board = self.board.lock();
        board.news += 1;
        if let Some(arrival) = board.servers.get_mut(server) {
            f(arrival);
        }
        drop(board);
        self.moved.notify_all();
    }

    /// True if none is ordered; then one is from now on. One at a time: attempts to reach a server that does not answer shall not keep all threads that
    /// connect.
    pub(super) fn order(&self, server: usize) -> bool {
        self.with(server, |arrival| !std::mem::replace(&mut arrival.is_ordered, true))
    }

    /// A connection can be had, now or in a moment.
    pub(super) fn came(&self, server: usize) {
        self.with(server, |arrival| (arrival.is_here, arrival.last) = (true, None));
        self.moved.notify_all();
    }

    /// An attempt has failed. The pool tries again: it stays ordered.
    pub(super) fn failed(&self, server: usize, failure: Failure) {
        self.tell(server, |arrival| arrival.last = Some(failure));
    }

    /// An attempt has failed, and there will be no other one until one is ordered.
    pub(super) fn gave_up(&self, server: usize, failure: Failure) {
        self.tell(server, |arrival| {
            (arrival.is_ordered, arrival.last) = (false, Some(failure));
        });
    }

    /// A connection may be there that was not taken.
    pub(super) fn is_here(&self, server: usize) -> bool {
        self.with(server, |arrival| arrival.is_here)
    }

    /// It was taken into use. The threads that waited for it share it, and one of them may not have seen that it was here.
    pub(super) fn taken(&self, server: usize) {
        self.tell(server, |arrival| {
            (arrival.is_ordered, arrival.is_here, arrival.last) = (false, false, None);
        });
    }

    /// How much was told until now: to be asked before a thread looks for connections, after which it may wait.
    pub(crate) fn news(&self) -> u64 {
        self.board.lock().news
    }

    /// Why the last attempt failed, if no connection has come since.
    pub(crate) fn failure(&self, server: usize) -> Option<Failure> {
        self.with(server, |arrival| arrival.last.clone())
    }

    /// Waits until there is news since then, or a connection to one of these servers is here; at most until then.
    pub(crate) fn wait(&self, places: &[usize], seen: u64, until: Tick, clock: &dyn Clock) {
        let mut board = self.board.lock();
        while board.news == seen {
            let now = clock.now();
            if places.iter().any(|place| board.servers.get(*place).is_some_and(|arrival| arrival.is_here)) {
                return clock.wait_until(&self.moved, &mut board, now.after(MOMENT).min(until));
            }
            if now >= until {
                return;
            }
            clock.wait_until(&self.moved, &mut board, until);
        }
    }
}
