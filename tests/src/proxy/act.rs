//! The effects that a proxy can have on a command.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::Shared;

/// The effect of a rule of a [`Proxy`](crate::Proxy) on a command. Other connections are never affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The request reaches the server this much later; later requests of the connection stay behind it.
    Delay(Duration),
    /// The request does not reach the server until [`Fault::release`]; later requests of the connection stay behind it.
    /// When the client closes its connection, the request still reaches the server then, as it would by a slow network.
    Hold,
    /// The server executes the command, but its reply stays here until [`Fault::release`]; later replies stay behind
    /// it.
    HoldReply,
    /// From this request on, itself included, nothing of the connection passes either way; it stays open.
    BlackHole,
    /// From the reply to this request on, replies of the connection are handed on one byte at a time, with this pause
    /// before each.
    Trickle(Duration),
    /// The connection is reset; the server never gets the request.
    ResetBefore,
    /// The server executes the command. Its reply is discarded, and the connection is reset.
    ResetAfter,
    /// Like `ResetAfter`, but this many bytes of the reply are delivered first.
    CutReply(usize),
    /// The proxy answers with this error, for example `"LOADING not ready yet"`; the server never gets the request.
    Error(String),
    /// The proxy answers with this text, as `INFO` would for example; the server never gets the request.
    Text(String),
}

/// A rule of a [`Proxy`](crate::Proxy), with its counters. Dropping this handle changes nothing.
#[derive(Clone)]
pub struct Fault {
    shared: Arc<Shared>,
    id: usize,
}

impl Fault {
    pub(super) fn new(shared: Arc<Shared>, id: usize) -> Self {
        Self { shared, id }
    }

    /// How often it acted. An act on a reply counts once the reply has arrived, so the server has executed the command.
    pub fn hits(&self) -> usize {
        self.shared.lock().faults[self.id].hits
    }

    /// Waits until it acted at least once; panics after `deadline`.
    pub fn wait_hit(&self, deadline: Duration) {
        self.wait_hits(1, deadline);
    }

    /// Waits until it acted at least `n` times; panics after `deadline`.
    pub fn wait_hits(&self, n: usize, deadline: Duration) {
        let end = Instant::now() + deadline;
        let mut state = self.shared.lock();
        while state.faults[self.id].hits < n {
            assert!(Instant::now() < end, "waited {deadline:?} in vain until a fault struck {n} times");
            self.shared.wait(&mut state, end);
        }
    }

    /// Ends this fault: it passes on what it holds, a connection in its black hole passes again, and it no longer acts.
    pub fn release(&self) {
        self.shared.lock().release(self.id);
        self.shared.all_changed();
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("hits", &self.hits()).finish_non_exhaustive()
    }
}
