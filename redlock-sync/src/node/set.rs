//! All nodes of a client.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::connections::Connections;
use super::host::{Host, HostContext};
use super::identities::ServerIdentities;
use super::link::Dial;
use super::members::Node;
use super::sentinel::Group;
use super::server::Server;
use super::socket::RedisServer;
use super::transport::drain::Drain;
use super::transport::waiting;
use super::{Answers, Awaits, Background, NodeFilter, NodeUrl};
use crate::clock::{Clock, Tick};
use crate::error::Error;
use crate::options::ClientOptions;
use crate::protocol::script::Call;

/// The nodes, in the order of the configuration.
pub(crate) struct Nodes {
    pub(super) all: Vec<Node>,
    pub(super) context: HostContext,
    /// The threads for work that no caller waits for. The threads of the context only make connections.
    background: Background,
}

impl Nodes {
    /// The nodes at these URLs. Does no I/O and starts no thread. Connections are made when they are needed.
    pub(crate) fn new(urls: &[NodeUrl], settings: &ClientOptions, clock: &Arc<dyn Clock>) -> Result<Nodes, Error> {
        let failover_guard = Some(settings.failover_guard.unwrap_or(urls.len() > 1));
        let settings = ClientOptions { failover_guard, ..settings.clone() };
        let endpoints: Vec<_> = urls.iter().map(|url| Endpoint::of(url, settings.node_timeout, clock)).collect();
        check_settings(&endpoints, failover_guard)?;
        Ok(Nodes::from_endpoints(endpoints, settings, clock, None))
    }

    /// `jobs`: the simulation, which runs the jobs in place of threads.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of(
        servers: Vec<Arc<dyn Dial>>,
        settings: &ClientOptions,
        clock: &Arc<dyn Clock>,
        jobs: Option<Background>,
    ) -> Nodes {
        let endpoints = servers.into_iter().map(Endpoint::Server).collect();
        Nodes::from_endpoints(endpoints, settings.clone(), clock, jobs)
    }

    fn from_endpoints(
        endpoints: Vec<Endpoint>,
        settings: ClientOptions,
        clock: &Arc<dyn Clock>,
        jobs: Option<Background>,
    ) -> Nodes {
        // Two thread pools: a server that hangs can block the threads that connect, and must not delay releases.
        let (connecting, background) = match jobs {
            Some(jobs) => (jobs.clone(), jobs),
            None => (Background::new(endpoints.iter().map(Endpoint::servers).sum()), Background::new(1)),
        };
        let addresses = endpoints.iter().map(|endpoint| endpoint.address().to_owned()).collect();
        let context = HostContext {
            settings,
            clock: Arc::clone(clock),
            identities: Arc::new(ServerIdentities::new(addresses)),
            background: connecting,
            jobs: background.clone(),
            on_return: Arc::default(),
            drain: Arc::new(Drain::new(clock)),
            served: Arc::default(),
        };
        let node = |(member, endpoint)| {
            let context = HostContext { served: Arc::default(), ..context.clone() };
            match endpoint {
                Endpoint::Server(server) => Node::Server(Server::new(Host::new(member, server, context, None))),
                Endpoint::Cluster(url) => Node::Cluster(Cluster::new(member, *url, context)),
            }
        };
        let all = endpoints.into_iter().enumerate().map(node).collect();
        Nodes { all, context, background }
    }

    /// Sends a call to each node that `ask` selects, and waits for the answers. `need` nodes are a majority.
    pub(crate) fn call(&self, call: &Arc<Call>, by: Tick, ask: NodeFilter<'_>, need: usize) -> Answers {
        self.exchange(slice::from_ref(call), by, ask, need, Awaits::All).only()
    }

    /// Like [`call`](Nodes::call), for all nodes, but waits for a majority that says the same. Only the yes of a node
    /// in `votes` counts.
    pub(crate) fn quick_call(&self, call: &Arc<Call>, by: Tick, need: usize, votes: NodeFilter<'_>) -> Answers {
        self.exchange(slice::from_ref(call), by, &|_| true, need, Awaits::Majority(votes)).only()
    }

    /// Sends and receives what no thread waits for, when the client ends. Returns at `until` at the latest.
    pub(crate) fn finish(&self, until: Tick) {
        let servers: Vec<_> = self.all.iter().flat_map(Node::servers).collect();
        let all = || servers.iter().flat_map(|server| server.all_connections()).flat_map(Connections::all).collect();
        waiting::finish(&all, until, &*self.context.clock);
    }

    /// Sets a callback for when a node that was left out answers again. It must not wait. Only the first callback that
    /// is set is used.
    pub(crate) fn on_return(&self, callback: Box<dyn Fn() + Send + Sync>) {
        drop(self.context.on_return.set(callback));
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Node> {
        self.all.iter()
    }

    /// If the node is left out, checks whether it is back.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn probe_now(&self, member: usize) {
        if let Some(Node::Server(server)) = self.all.get(member).filter(|node| node.outage().is_some()) {
            drop(server.host.connect());
            server.host.tell_health_soon();
        }
    }

    /// How often a Sentinel group may have got another master. `None` if no node is such a group.
    pub(crate) fn master_changes(&self) -> Option<u64> {
        let of = |node: &Node| match node {
            Node::Server(server) => server.host.server.address_changes(),
            Node::Cluster(_) => None,
        };
        self.all.iter().filter_map(of).reduce(u64::wrapping_add)
    }

    /// True if a node is a cluster. A cluster keeps keys in slots, so one call cannot name any two locks.
    pub(crate) fn are_in_slots(&self) -> bool {
        self.all.iter().any(|node| matches!(node, Node::Cluster(_)))
    }

    /// The parts of a node, for calls that look at all its keys. For a cluster, one slot of each server. For a single
    /// server, one `None`.
    pub(crate) fn parts(&self, member: usize) -> Vec<Option<usize>> {
        match self.all.get(member) {
            Some(Node::Cluster(cluster)) => cluster.slots().into_iter().map(Some).collect(),
            _ => vec![None],
        }
    }

    /// Why two nodes are not independent of each other, if that was detected. Costs one load if they are.
    pub(crate) fn conflict(&self) -> Option<String> {
        self.context.identities.conflict()
    }

    /// The threads for work that no caller waits for.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }
}

/// Three masters with one replica each.
const TYPICAL_CLUSTER_SERVERS: usize = 6;

/// What a node's URL leads to.
enum Endpoint {
    Server(Arc<dyn Dial>),
    Cluster(Box<NodeUrl>),
}

impl Endpoint {
    fn of(url: &NodeUrl, node_timeout: Duration, clock: &Arc<dyn Clock>) -> Endpoint {
        match (url.hosts.as_slice(), &url.group) {
            ([], None) => Endpoint::Server(Arc::new(RedisServer::new(url.clone()))),
            ([], Some(group)) => Endpoint::Server(Group::new(url, group, node_timeout, clock)),
            _ => Endpoint::Cluster(Box::new(url.clone())),
        }
    }

    /// How many servers of the node may hang while its others work. The size of a cluster is not known before it is
    /// asked.
    fn servers(&self) -> usize {
        match self {
            Endpoint::Server(_) => 1,
            Endpoint::Cluster(_) => TYPICAL_CLUSTER_SERVERS,
        }
    }

    fn address(&self) -> &str {
        match self {
            Endpoint::Server(server) => server.address(),
            Endpoint::Cluster(url) => url.address(),
        }
    }
}

fn check_settings(servers: &[Endpoint], failover_guard: Option<bool>) -> Result<(), Error> {
    if failover_guard == Some(true) && matches!(servers, [Endpoint::Cluster(_)]) {
        return Err(Error::config(
            "failover_guard cannot be used with a Redis Cluster: its servers do not report when they became masters; \
             use min_replicas_ack, or several nodes",
        ));
    }
    let twice = servers.iter().enumerate().find_map(|(j, b)| {
        let i = servers.iter().take(j).position(|a| a.address() == b.address())?;
        Some((i, j, b.address()))
    });
    twice.map_or(Ok(()), |(i, j, address)| {
        Err(Error::config(format!(
            "nodes {} and {} are the same server, {address}; name each server once, since the lock needs a majority \
             of independent servers",
            i + 1,
            j + 1
        )))
    })
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}
