//! A node: one server as rounds see it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::host::Host;
use super::late::LateReplies;
use super::{Failure, NodeSettings, Push, push};
use crate::clock::{Clock, Tick};

/// One server, with what is late there.
pub(crate) struct Node {
    pub(super) host: Arc<Host>,
    pub(super) late: Arc<LateReplies>,
}

impl Node {
    pub(super) fn new(host: Arc<Host>) -> Node {
        let late = LateReplies::new(Arc::clone(&host.clock), host.background.clone());
        Node { host, late }
    }

    /// Host and port, or the path of the socket; never a password.
    pub(crate) fn address(&self) -> &str {
        self.host.server.address()
    }

    /// The failure for which the node is left out at the moment, if it is. Costs nothing.
    pub(crate) fn outage(&self) -> Option<Failure> {
        self.host.breaker.outage()
    }

    /// How long the server has been up at least; `None` if it never said.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        self.host.identities.uptime(self.host.member, self.host.clock.now())
    }

    /// The id that the server gave itself when it started; `None` if it never said.
    pub(crate) fn run_id(&self) -> Option<String> {
        self.host.identities.run_id(self.host.member)
    }

    /// Opens a connection on which the channel is subscribed; returns once the server has confirmed the subscription. A server that does not let us
    /// subscribe is [`FailureKind::Refused`](super::FailureKind::Refused).
    pub(crate) fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
        push::subscribe(&self.host, channel, by)
    }
}

/// The servers of a client, and what their rounds need to know.
pub(super) struct Members {
    pub(super) nodes: Vec<Node>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: NodeSettings,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("host", &self.host).field("late", &self.late).finish_non_exhaustive()
    }
}
