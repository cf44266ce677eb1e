//! The effects that a proxy can have on a command.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::Shared;

/// The effect of a rule of a [`Proxy`](crate::Proxy) on a command. Other connections are never affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The request reaches the server later by this time. Later requests of the connection stay behind it.
    Delay(Duration),
    /// The request does not reach the server until [`Fault::release`]. Later requests of the connection stay behind it.
    /// If the client closes its connection, the request still reaches the server after the release, as on a slow
    /// network.
    Hold,
    /// The server executes the command, but the proxy keeps the reply until [`Fault::release`]. Later replies stay
    /// behind it.
    HoldReply,
    /// From this request on, nothing of the connection passes in either direction. The connection stays open.
    BlackHole,
    /// From the reply to this request on, the proxy passes replies of the connection one byte at a time. It pauses for
    /// this time before each byte.
    Trickle(Duration),
    /// The connection is reset. The server never gets the request.
    ResetBefore,
    /// The server executes the command. The proxy discards the reply and resets the connection.
    ResetAfter,
    /// The server executes the command. The proxy delivers this many bytes of the reply, then resets the connection.
    CutReply(usize),
    /// The proxy answers with this error, for example `"LOADING not ready yet"`. The server never gets the request.
    Error(String),
    /// The proxy answers with this text, for example in place of the text of `INFO`. The server never gets the request.
    Text(String),
}

/// The handle of a rule of a [`Proxy`](crate::Proxy), with its counters. A drop of this handle changes nothing.
#[derive(Clone)]
pub struct Fault {
    shared: Arc<Shared>,
    id: usize,
}

impl Fault {
    pub(super) fn new(shared: Arc<Shared>, id: usize) -> Self {
        Self { shared, id }
    }

    /// The number of times that the rule acted. An act on a reply counts once the reply has arrived, so the server has
    /// executed the command by then.
    pub fn hits(&self) -> usize {
        self.shared.lock().faults[self.id].hits
    }

    /// Waits until the rule has acted at least once. Panics after `deadline`.
    pub fn wait_hit(&self, deadline: Duration) {
        self.wait_hits(1, deadline);
    }

    /// Waits until the rule has acted at least `n` times. Panics after `deadline`.
    pub fn wait_hits(&self, n: usize, deadline: Duration) {
        let end = Instant::now() + deadline;
        let mut state = self.shared.lock();
        while state.faults[self.id].hits < n {
            assert!(Instant::now() < end, "waited {deadline:?} in vain until a fault struck {n} times");
            self.shared.wait(&mut state, end);
        }
    }

    /// Ends this fault. The proxy passes on what the fault holds, a connection in its black hole passes again, and the
    /// rule no longer acts.
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
