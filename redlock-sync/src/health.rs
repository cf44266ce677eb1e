//! Checks whether the servers can keep locks, and reports what is wrong with them, for readiness probes.
//!
//! Two rounds: one asks each server for facts about itself, which needs no key; the other is a write that changes
//! nothing. [`judge`] draws the conclusions, without I/O.

mod judge;

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::names::printable;
use crate::protocol::TypedCall;
use crate::protocol::script::{Arg, Call, HEALTH, PROBE};

/// The health of the servers of a client, as they report it, and what is wrong with them: see
/// [`Redlock::health`](crate::Redlock::health).
///
/// Its `Display` has a line for each server and for each warning.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let health = locks.health()?;
/// assert!(health.is_ready());
/// println!("{health}");
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    need: usize,
    nodes: Vec<NodeHealth>,
    /// True if no two nodes are the same server, and none is a replica of another one.
    are_independent: bool,
    warnings: Vec<String>,
}

/// The health of one server at the time of the call. A fact that it did not report, since it could not be asked or
/// hides it from this user, is `None`.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let health = locks.health()?;
/// let node = &health.nodes()[0];
/// assert!(node.problem.is_none() && node.version.is_some());
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeHealth {
    /// Host and port, or the path of the socket.
    pub address: String,
    /// Why no lock can be taken on it now; `None` if one can.
    pub problem: Option<String>,
    /// The version of Redis or Valkey.
    pub version: Option<String>,
    /// How long the server has been up, in whole seconds.
    #[cfg_attr(feature = "serde", serde(rename = "uptime_ms", serialize_with = "crate::serial::some_millis"))]
    pub uptime: Option<Duration>,
    /// The time on its wall clock when it was asked.
    #[cfg_attr(feature = "serde", serde(rename = "clock_ms", serialize_with = "since_1970"))]
    pub clock: Option<SystemTime>,
    /// The memory in use, in bytes.
    pub used_memory: Option<u64>,
    /// The limit of its memory (`maxmemory`), in bytes. Zero means no limit.
    pub max_memory: Option<u64>,
    /// The policy for keys at that limit (`maxmemory-policy`).
    pub eviction_policy: Option<String>,
    /// How many keys it has evicted since it started.
    pub evicted_keys: Option<u64>,
    /// Whether it has an append-only file.
    pub append_only: Option<bool>,
    /// How many replicas are connected to it.
    pub replicas: Option<u64>,
}

impl Health {
    /// Whether locks can be taken: a majority of the nodes takes writes from this client, and would vote, and no
    /// server was given twice. A Sentinel group does not count if no majority of the Sentinels that answer names the
    /// master in use. A server that [`restart_guard`](crate::Builder::restart_guard) or
    /// [`failover_guard`](crate::Builder::failover_guard) keeps from voting is noticed once the client has asked for a
    /// lock.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// assert!(locks.health()?.is_ready());
    /// # server.kill();
    /// assert!(!locks.health()?.is_ready()); // the server is down
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.are_independent && self.nodes.iter().filter(|node| node.problem.is_none()).count() >= self.need
    }

    /// The servers, in the order in which they were given.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// assert_eq!(locks.health()?.nodes().len(), 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn nodes(&self) -> &[NodeHealth] {
        &self.nodes
    }

    /// Warnings, one sentence each, with what to do: servers that cannot be used, and set-ups in which locks can be
    /// lost although nothing fails now. Empty if all is well.
    ///
    /// ```
    /// # redlock_sync::__private::be_patient();
    /// # let server = redlock_tests::Server::builder().persistent().start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// for warning in locks.health()?.warnings() {
    ///     println!("{warning}");
    /// }
    /// # assert!(locks.health()?.warnings().is_empty(), "{:?}", locks.health()?.warnings());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

#[cfg(feature = "serde")]
#[allow(clippy::ref_option, reason = "serde passes a reference")]
fn since_1970<S: serde::Serializer>(at: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    let since = at.map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    crate::serial::some_millis(&since, to)
}

#[cfg(feature = "serde")]
impl serde::Serialize for Health {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut health = to.serialize_struct("Health", 4)?;
        health.serialize_field("ready", &self.is_ready())?;
        health.serialize_field("need", &self.need)?;
        health.serialize_field("nodes", &self.nodes)?;
        health.serialize_field("warnings", &self.warnings)?;
        health.end()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (well, all) = (self.nodes.iter().filter(|node| node.problem.is_none()).count(), self.nodes.len());
        let ready = if self.is_ready() { "ready" } else { "not ready" };
        write!(f, "{ready}: {well} of {all} servers can keep locks, {} are needed", self.need)?;
        for node in &self.nodes {
            write!(f, "\n{}: {}", node.address, node.version.as_deref().unwrap_or("version not known"))?;
            write!(f, ", {}", node.problem.as_deref().unwrap_or("well"))?;
        }
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// Asks all servers. `key` is the key that the probe tries to write. It never exists.
pub(crate) fn health(client: &ClientInner, key: &Key) -> Result<Health, Error> {
    client.check_not_ended()?;
    let quorum = &client.quorum;
    // The channel has a name of the form that clients listen on.
    let facts: TypedCall<String> = Call::new(&HEALTH, &[], &[Arg::Text("redlock-sync:health")]).into();
    let answers = quorum.round(&facts, quorum.round_deadline());
    let took = quorum.now().since(answers.started);
    let keys = [key.as_str(), key.queue(), key.fence()];
    let probe: TypedCall<()> = Call::new(&PROBE, &keys, &[Arg::Text("check mutex")]).into();
    let mut written = quorum.round(&probe, quorum.round_deadline());
    quorum.disqualify_restarted(&mut written.votes);
    let mut nodes = Vec::new();
    let mut warnings = Vec::new();
    for ((member, answer), written) in quorum.nodes.members().zip(answers.votes).zip(written.votes) {
        let facts = judge::Facts::parse(answer, quorum.settings.min_replicas_ack);
        let disagreement = member.disagreement();
        let mut node = facts.node(printable(&member.address()), &written, key.as_str());
        warnings.extend(facts.warnings(&node, quorum.len(), &written));
        let unclear = disagreement.as_ref().filter(|one| !one.has_majority);
        node.problem = node.problem.or_else(|| unclear.map(|one| one.text.clone()));
        warnings.extend(disagreement.map(|one| one.text));
        nodes.push(node);
    }
    let conflict = quorum.nodes.conflict();
    let are_independent = conflict.is_none();
    warnings.extend(conflict.map(|why| format!("{why}, so no lock can be acquired: name only independent servers")));
    warnings.extend(judge::common_warnings(&nodes, took, client.quorum.longest_lease(), quorum.settings.restart_guard));
    Ok(Health { need: quorum.need(), nodes, are_independent, warnings })
}
