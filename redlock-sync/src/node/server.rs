//! One server, with what is late there, and its place in the lines.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Failure;
use super::host::Host;
use super::late::LateReplies;

/// One server, with what is late there.
pub(crate) struct Server {
    /// Its place in every line.
    pub(super) number: usize,
    pub(super) host: Arc<Host>,
    pub(super) late: Arc<LateReplies>,
}

/// Gives servers their places in the lines of a client.
#[derive(Clone)]
pub(super) struct ServerNumbers(Arc<AtomicUsize>);

impl ServerNumbers {
    pub(super) fn after(members: usize) -> ServerNumbers {
        ServerNumbers(Arc::new(AtomicUsize::new(members)))
    }

    pub(super) fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Server {
    pub(super) fn new(host: Arc<Host>) -> Server {
        let late = LateReplies::new(Arc::clone(&host.clock), host.background.clone());
        Server { number: host.number, host, late }
    }

    pub(super) fn address(&self) -> &str {
        self.host.server.address()
    }

    /// The failure for which it is left out at the moment, if it is. Costs nothing.
    pub(super) fn outage(&self) -> Option<Failure> {
        self.host.breaker.outage()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("host", &self.host).field("late", &self.late).finish_non_exhaustive()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
