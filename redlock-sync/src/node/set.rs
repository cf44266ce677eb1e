//! All nodes of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::host::{Host, Returns};
use super::identities::ServerIdentities;
use super::link::Dial;
use super::server::{Members, Node};
use super::socket::RedisServer;
use super::wire::Wire;
use super::{Answers, Background, Lane, NodeUrl};
use crate::clock::{Clock, Tick};
use crate::error::Error;
use crate::protocol::script::Call;

/// What concerns the connections to every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Longest wait for one node: to connect, to write, to read.
    pub(crate) node_timeout: Duration,
    /// Lines for ordinary rounds. There is one more, so that releases find one.
    pub(crate) connections: u32,
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings { node_timeout: Duration::from_millis(250), connections: 2 }
    }
}

/// The nodes in the order in which they were given.
pub(crate) struct Nodes {
    wire: Wire,
    identities: Arc<ServerIdentities>,
    background: Background,
    returns: Arc<Returns>,
}

impl Nodes {
    /// The servers at these URLs. Does no I/O and starts no thread: connections are made when they are needed.
    pub(crate) fn new(urls: &[NodeUrl], settings: NodeSettings, clock: &Arc<dyn Clock>) -> Result<Nodes, Error> {
        let servers = urls.iter().map(|url| Arc::new(RedisServer::new(url.clone())) as Arc<dyn Dial>);
        let servers: Vec<_> = servers.collect();
        check(&servers, settings)?;
        Ok(Nodes::of(servers, settings, clock))
    }

    pub(crate) fn of(servers: Vec<Arc<dyn Dial>>, settings: NodeSettings, clock: &Arc<dyn Clock>) -> Nodes {
        // Threads apart: a server that hangs keeps those that connect busy, and must not keep releases from going out.
        let (connecting, background) = (Background::new(servers.len()), Background::new(1));
        Nodes::with(servers, settings, clock, connecting, background)
    }

    pub(crate) fn with(
        servers: Vec<Arc<dyn Dial>>,
        settings: NodeSettings,
        clock: &Arc<dyn Clock>,
        connecting: Background,
        background: Background,
    ) -> Nodes {
        let identities =
            Arc::new(ServerIdentities::new(servers.iter().map(|server| server.address().to_owned()).collect()));
        let returns = Arc::new(Returns::new());
        let node = |(member, server): (usize, Arc<dyn Dial>)| {
            let (clock, identities) = (Arc::clone(clock), Arc::clone(&identities));
            let returns = Arc::clone(&returns);
            Node::new(Host::new(member, server, settings, clock, identities, connecting.clone(), returns))
        };
        let nodes = servers.into_iter().enumerate().map(node).collect();
        Nodes {
            wire: Wire::new(Members { nodes, clock: Arc::clone(clock), settings }, connecting),
            identities,
            background,
            returns,
        }
    }

    /// Has this called whenever a node that was left out answers again. It must not wait. Only the first call of this has an effect.
    pub(crate) fn on_return(&self, tell: Box<dyn Fn() + Send + Sync>) {
        drop(self.returns.set(tell));
    }

    /// One round: to every node for which `asks` is true, and back. `need` nodes are a majority.
    pub(crate) fn round(&self, call: &Arc<Call>, lane: Lane, by: Tick, asks: &[bool], need: usize) -> Answers {
        self.wire.round(call, lane, by, asks, need)
    }

    pub(crate) fn len(&self) -> usize {
        self.wire.members.nodes.len()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Node> {
        self.wire.members.nodes.iter()
    }

    /// If that node is left out: whether it is back.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn probe_now(&self, member: usize) {
        let node = self.wire.members.nodes.get(member).filter(|node| node.outage().is_some());
        if let Some(node) = node {
            node.host.probe_now();
        }
    }

    #[cfg(test)]
    pub(super) fn get(&self, i: usize) -> Option<&Node> {
        self.wire.members.nodes.get(i)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> String {
        self.wire.waiting()
    }

    /// Why the nodes are not independent of each other, if that has been found out. Costs nothing when they are.
    pub(crate) fn conflict(&self) -> Option<String> {
        self.identities.conflict()
    }

    /// Threads to which work off the critical path can be left.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }
}

fn check(servers: &[Arc<dyn Dial>], settings: NodeSettings) -> Result<(), Error> {
    if servers.is_empty() {
        return Err(Error::config("no node was given: a client needs at least one URL"));
    }
    if settings.node_timeout < Duration::from_millis(1) {
        return Err(Error::config(format!("node_timeout = {:?} is shorter than 1 ms", settings.node_timeout)));
    }
    if settings.connections == 0 {
        return Err(Error::config("a node needs at least one connection"));
    }
    let twice = servers.iter().enumerate().find_map(|(j, b)| {
        let i = servers.iter().take(j).position(|a| a.address() == b.address())?;
        Some((i, j, b.address()))
    });
    twice.map_or(Ok(()), |(i, j, address)| {
        Err(Error::config(format!(
            "nodes {} and {} are the same server, {address}; a majority of independent servers is what makes the lock safe",
            i + 1,
            j + 1
        )))
    })
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wire.fmt(f)
    }
}
