//! A node: a single server, or a cluster in which each server has a part of the keys. Each node has one vote.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::{self, Cluster};
use super::host::HostContext;
use super::link::Disagreement;
use super::server::Server;
use super::{Failure, Subscriber, subscriber};
use crate::clock::Tick;
use crate::protocol::script::Call;

/// A single server or a cluster. Each has one vote.
pub(crate) enum Node {
    Server(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl Node {
    /// Host and port, or the path of the socket. For a cluster, the hosts of its URL. For a Sentinel group, its name
    /// and the address of its master. Never contains a password.
    pub(crate) fn address(&self) -> Cow<'_, str> {
        match self {
            Node::Server(server) => server.host.server.display_address(),
            Node::Cluster(cluster) => Cow::Borrowed(cluster.address()),
        }
    }

    /// What Sentinels say that name another master than the one in use. Can take a node timeout.
    pub(crate) fn disagreement(&self) -> Option<Disagreement> {
        match self {
            Node::Server(server) => server.host.server.disagreement(),
            Node::Cluster(_) => None,
        }
    }

    /// The failure because of which the node is left out now, if it is. Costs one load.
    pub(crate) fn outage(&self) -> Option<Failure> {
        match self {
            Node::Server(server) => server.outage(),
            Node::Cluster(cluster) => cluster.outage(),
        }
    }

    /// How long the server has been up at least. `None` if it never reported that. For a cluster, the uptime of its
    /// youngest server.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        let (context, index) = self.context();
        context.identities.uptime(index, context.clock.now())
    }

    /// The run id of the server, which it chose when it started. `None` if it never reported one. For a cluster, an id
    /// that does not change.
    pub(crate) fn run_id(&self) -> Option<String> {
        let (context, index) = self.context();
        context.identities.run_id(index)
    }

    /// What all servers of the client share, and the index of this node.
    fn context(&self) -> (&HostContext, usize) {
        match self {
            Node::Server(server) => (&server.host.context, server.host.member),
            Node::Cluster(cluster) => (&cluster.context, cluster.member),
        }
    }

    /// Opens a connection that is subscribed to the channel, and returns once the server has confirmed it. If the
    /// server forbids subscribing, the failure is [`FailureKind::Refused`](super::FailureKind::Refused).
    pub(crate) fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Subscriber>, Failure> {
        let subscription = match self {
            Node::Server(server) => subscriber::subscribe(&server.host, channel, by),
            Node::Cluster(cluster) => cluster::subscribe(cluster, channel, by),
        };
        Ok(Box::new(subscription?))
    }

    /// The server to which this call goes.
    pub(super) fn server_for(&self, call: &Call) -> Option<Arc<Server>> {
        match self {
            Node::Server(server) => Some(Arc::clone(server)),
            Node::Cluster(cluster) => cluster.server_for(call),
        }
    }

    /// All servers of the node.
    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Node::Server(server) => vec![Arc::clone(server)],
            Node::Cluster(cluster) => cluster.servers(),
        }
    }

    /// True if the node answers without waiting, as in memory.
    pub(super) fn is_instant(&self) -> bool {
        matches!(self, Node::Server(server) if !server.host.server.may_wait())
    }

    #[cfg(test)]
    #[allow(clippy::panic, reason = "a test fails by a panic")]
    pub(super) fn server(&self) -> &Server {
        match self {
            Node::Server(server) => server,
            Node::Cluster(cluster) => panic!("{cluster:?} is several servers"),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Server(server) => server.fmt(f),
            Node::Cluster(cluster) => cluster.fmt(f),
        }
    }
}
