//! All nodes of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::host::Host;
use super::roster::Roster;
use super::server::RedisNode;
use super::{Background, Node, NodeUrl};
use crate::clock::Clock;
use crate::error::Error;

/// What concerns the connections to every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Longest wait for one node: to connect, to write, to read.
    pub(crate) node_timeout: Duration,
    /// Connections per node for attempts to take a lock.
    pub(crate) pool_size: u32,
    /// Connections per node set aside for renewals and releases.
    pub(crate) reserved_size: u32,
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings { node_timeout: Duration::from_millis(250), pool_size: 16, reserved_size: 4 }
    }
}

/// The nodes in the order in which they were given.
pub(crate) struct Nodes {
    list: Vec<RedisNode>,
    /// Nodes of a simulation, which has no others.
    #[cfg(test)]
    simulated: Vec<Box<dyn Node>>,
    settings: NodeSettings,
    roster: Arc<Roster>,
    background: Background,
}

impl Nodes {
    /// Checks the list. Does no I/O and starts no thread: connections are made when they are needed.
    pub(crate) fn new(urls: &[NodeUrl], settings: NodeSettings, clock: &Arc<dyn Clock>) -> Result<Nodes, Error> {
        check(urls, settings)?;
        let background = Background::new(urls.len());
        let roster = Arc::new(Roster::new(urls.iter().map(|url| url.address().to_owned()).collect()));
        let node = |(member, url): (usize, &NodeUrl)| {
            let (clock, roster) = (Arc::clone(clock), Arc::clone(&roster));
            RedisNode::new(Host::new(member, url.clone(), settings, clock, roster, background.clone()))
        };
        Ok(Nodes {
            list: urls.iter().enumerate().map(node).collect(),
            #[cfg(test)]
            simulated: Vec::new(),
            settings,
            roster,
            background,
        })
    }

    #[cfg(test)]
    pub(crate) fn simulated(nodes: Vec<Box<dyn Node>>, settings: NodeSettings, background: Background) -> Nodes {
        Nodes { list: Vec::new(), simulated: nodes, settings, roster: Arc::new(Roster::new(Vec::new())), background }
    }

    /// Connections to each node: for attempts, and set aside for renewals and releases.
    pub(crate) fn connections(&self) -> (u32, u32) {
        (self.settings.pool_size, self.settings.reserved_size)
    }

    pub(crate) fn len(&self) -> usize {
        #[cfg(test)]
        return self.list.len() + self.simulated.len();
        #[cfg(not(test))]
        self.list.len()
    }

    /// All that a round knows of them is the trait.
    pub(crate) fn members(&self) -> impl Iterator<Item = &dyn Node> {
        let members = self.list.iter().map(|node| node as &dyn Node);
        #[cfg(test)]
        let members = members.chain(self.simulated.iter().map(|node| &**node));
        members
    }

    #[cfg(test)]
    pub(super) fn get(&self, i: usize) -> Option<&RedisNode> {
        self.list.get(i)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> std::slice::Iter<'_, RedisNode> {
        self.list.iter()
    }

    /// Why the nodes are not independent of each other, if that has been found out. Costs nothing when they are.
    pub(crate) fn conflict(&self) -> Option<String> {
        self.roster.conflict()
    }

    /// Threads to which work off the critical path can be left.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }
}

fn check(urls: &[NodeUrl], settings: NodeSettings) -> Result<(), Error> {
    if urls.is_empty() {
        return Err(Error::config("no node was given: a client needs at least one URL"));
    }
    if settings.node_timeout < Duration::from_millis(1) {
        return Err(Error::config(format!("node_timeout = {:?} is shorter than 1 ms", settings.node_timeout)));
    }
    if settings.pool_size == 0 || settings.reserved_size == 0 {
        return Err(Error::config("a node needs at least one connection of each kind, ordinary and reserved"));
    }
    let twice = urls.iter().enumerate().find_map(|(j, b)| {
        let i = urls.iter().take(j).position(|a| a.address() == b.address())?;
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
        f.debug_list().entries(&self.list).finish()
    }
}
