//! A node: what has one vote. One server, or a cluster of servers of which each has a part of the keys.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::{self, Cluster};
use super::server::Server;
use super::{Failure, NodeSettings, Push, push};
use crate::clock::{Clock, Tick};
use crate::protocol::script::Call;

/// What has one vote.
pub(crate) enum Node {
    Server(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl Node {
    /// Host and port, or the path of the socket; of a cluster the hosts in its URL, and a group's name with the address
    /// of its master. Never a password.
    pub(crate) fn address(&self) -> Cow<'_, str> {
        match self {
            Node::Server(server) => server.host.server.shown(),
            Node::Cluster(cluster) => Cow::Borrowed(cluster.address()),
        }
    }

    /// The failure for which the node is left out at the moment, if it is. Costs nothing.
    pub(crate) fn outage(&self) -> Option<Failure> {
        match self {
            Node::Server(server) => server.outage(),
            Node::Cluster(cluster) => cluster.outage(),
        }
    }

    /// How long the server has been up at least; `None` if it never said. Of a cluster that of its youngest server.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        match self {
            Node::Server(server) => server.host.identities.uptime(server.host.member, server.host.clock.now()),
            Node::Cluster(cluster) => cluster.uptime(),
        }
    }

    /// The id that the server gave itself when it started; `None` if it never said. Of a cluster one that stays.
    pub(crate) fn run_id(&self) -> Option<String> {
        match self {
            Node::Server(server) => server.host.identities.run_id(server.host.member),
            Node::Cluster(cluster) => cluster.run_id(),
        }
    }

    /// Opens a connection on which the channel is subscribed; returns once the server has confirmed the subscription. A
    /// server that does not let us subscribe is [`FailureKind::Refused`](super::FailureKind::Refused).
    pub(crate) fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
        match self {
            Node::Server(server) => push::subscribe(&server.host, channel, by),
            Node::Cluster(cluster) => cluster::subscribe(cluster, channel, by),
        }
    }

    /// Where this call goes.
    pub(super) fn server_for(&self, call: &Call) -> Option<Arc<Server>> {
        match self {
            Node::Server(server) => Some(Arc::clone(server)),
            Node::Cluster(cluster) => cluster.server_for(call),
        }
    }

    /// All servers that have a part of it.
    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Node::Server(server) => vec![Arc::clone(server)],
            Node::Cluster(cluster) => cluster.servers(),
        }
    }

    /// It answers in no time.
    pub(super) fn is_instant(&self) -> bool {
        matches!(self, Node::Server(server) if !server.host.server.may_wait())
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Node::Cluster(_))
    }

    /// Whether a server in memory is back.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn probe_now(&self) {
        if let Node::Server(server) = self {
            server.host.probe_now();
        }
    }

    #[cfg(test)]
    #[allow(clippy::panic, reason = "a test fails by a panic")]
    pub(super) fn server(&self) -> &Server {
        match self {
            Node::Server(server) => server,
            Node::Cluster(cluster) => panic!("{cluster} is several servers"),
        }
    }
}

/// The nodes of a client, and what their rounds need to know.
pub(super) struct Members {
    pub(super) nodes: Vec<Node>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: NodeSettings,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Server(server) => server.fmt(f),
            Node::Cluster(cluster) => cluster.fmt(f),
        }
    }
}
