//! One round over all nodes: scatter, gather, count.
//!
//! The algorithm is Redlock (Redis documentation, "Distributed Locks with Redis") with the changes that its critique
//! asks for: deadlines anchored before the first byte, a release for every vote that is not a definite no, and no vote
//! of a node that restarted just now. One node is the case N = 1 of the same code.

mod ballot;
mod outage;
mod quiet;
mod refusal;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by a panic")]
mod tests;

use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use self::ballot::{Ballot, Tally};
pub(crate) use self::outage::Outages;
use self::quiet::QuietKeys;
pub(crate) use self::refusal::Refusal;
use crate::clock::{Clock, Tick};
use crate::error::{Error, NodeError};
use crate::names::told;
use crate::node::{Answers, Node, NodeFilter, Nodes, Priority};
use crate::options::ClientOptions;
use crate::protocol::TypedCall;
use crate::protocol::reply::{Executed, Failure, FailureKind, Released, Reply, Value, Vote};
use crate::protocol::script::Call;

/// The nodes, and the one function that asks them.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) nodes: Nodes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: ClientOptions,
    /// Nanoseconds: a node that restarted within this time may have forgotten a lock that is still held.
    longest_lease: AtomicU64,
    pub(crate) quiet: QuietKeys,
}

/// No code of users runs under a lock below here, so a panic of theirs leaves nothing half done.
impl RefUnwindSafe for Quorum {}

impl Quorum {
    pub(crate) fn new(nodes: Nodes, clock: Arc<dyn Clock>, limits: ClientOptions) -> Quorum {
        nodes.set_observers(&limits.observers);
        Quorum { nodes, clock, limits, longest_lease: AtomicU64::new(0), quiet: QuietKeys::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes in their order.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.members()
    }

    pub(crate) fn need(&self) -> usize {
        Tally::need(self.len())
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// By when a round that begins now has to end.
    pub(crate) fn round_deadline(&self) -> Tick {
        self.now().after(self.limits.node_timeout)
    }

    /// Remembers that leases of this length are in use.
    pub(crate) fn note_lease(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        if self.longest_lease.load(Ordering::Relaxed) < nanos {
            self.longest_lease.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_nanos(self.longest_lease.load(Ordering::Relaxed))
    }

    /// The node on which this client waits for pushes, with its place: of those that are well the one with the smallest
    /// run id, so that all clients wait at the same one, in whatever order they name the nodes. Those that never told
    /// one come last, in their order.
    pub(crate) fn notification_server(&self) -> Option<(usize, &Node)> {
        let well = self.members().enumerate().filter(|(_, node)| node.outage().is_none());
        if self.len() == 1 {
            return { well }.next();
        }
        well.min_by_key(|(_, node)| {
            let run_id = node.run_id();
            (run_id.is_none(), run_id)
        })
    }

    /// Asks one node only, and takes its reply as it is.
    pub(crate) fn ask_one(&self, node: usize, call: &Arc<Call>, by: Tick) -> Result<Value, Failure> {
        said_by(node, self.say(call, Priority::High, by, &|i| i == node))
    }

    /// Asks one node several calls at the same time. The replies have the order of the calls.
    pub(crate) fn ask_one_all(&self, node: usize, calls: &[Arc<Call>]) -> Vec<Result<Value, Failure>> {
        let said = self.nodes.calls(calls, Priority::High, self.round_deadline(), &|i| i == node, self.need());
        said.into_iter().map(|said| said_by(node, said)).collect()
    }

    /// **The round.** Asks every node that `ask` names, all at the same time.
    pub(crate) fn round<R: Reply>(
        &self,
        call: &TypedCall<R>,
        priority: Priority,
        by: Tick,
        ask: NodeFilter<'_>,
    ) -> Ballot<R> {
        ballot(self.say(&call.call, priority, by, ask))
    }

    /// A round for each call, all at the same time.
    pub(crate) fn rounds<R: Reply>(&self, calls: &[TypedCall<R>], priority: Priority, by: Tick) -> Vec<Ballot<R>> {
        let calls: Vec<Arc<Call>> = calls.iter().map(|call| Arc::clone(&call.call)).collect();
        self.nodes.calls(&calls, priority, by, &|_| true, self.need()).into_iter().map(ballot).collect()
    }

    /// Sends a release to all nodes and does not wait. What they said is told by a thread that must neither wait nor send anything.
    pub(crate) fn post<R: Reply>(&self, call: &TypedCall<R>, tell: impl FnOnce(Ballot<R>) + Send + 'static) {
        self.nodes.post(&call.call, Box::new(|answers| tell(ballot(answers))));
    }

    fn say(&self, call: &Arc<Call>, priority: Priority, by: Tick, ask: NodeFilter<'_>) -> Answers {
        self.nodes.call(call, priority, by, ask, self.need())
    }

    /// Takes its vote from every node that restarted within the longest lease in use, as it may have forgotten a lock
    /// that is still held; but only while some other member is older, since a cold start of all is no restart.
    ///
    /// After the round, and not before: a node tells its uptime when a connection is made, which can happen within the
    /// round whose vote that connection carries. The vote then counts as "may be set", so that a release reaches that
    /// node too.
    ///
    /// A single node loses its yes by the failover guard only, and whatever its age means.
    pub(crate) fn disqualify_restarted<R>(&self, votes: &mut [Vote<R>]) {
        let longest = self.longest_lease();
        if self.is_too_young() {
            return self.take_votes(longest, "the longest lease", votes);
        }
        self.disqualify_restarted_within(longest, "the longest lease", votes);
    }

    /// There is one node, and it may not have heard of all locks that are held: see `failover_guard`. No lock is taken,
    /// nor one that is granted.
    pub(crate) fn is_too_young(&self) -> bool {
        let is_young = |node: &Node| node.uptime().is_some_and(|up| up < self.longest_lease());
        self.limits.failover_guard == Some(true) && self.len() == 1 && self.members().any(is_young)
    }

    /// As that, for data that is kept for so long.
    pub(crate) fn disqualify_restarted_within<R>(&self, kept: Duration, what: &str, votes: &mut [Vote<R>]) {
        if !self.limits.restart_guard || self.len() == 1 {
            return;
        }
        let is_old = |node: &Node| node.uptime().is_some_and(|up| up >= kept);
        if self.members().any(is_old) {
            self.take_votes(kept, what, votes);
        }
    }

    fn take_votes<R>(&self, kept: Duration, what: &str, votes: &mut [Vote<R>]) {
        for (node, vote) in self.members().zip(votes) {
            match node.uptime() {
                Some(up) if up < kept && vote.is_yes() => {
                    *vote = Vote::Failed(Failure {
                        kind: FailureKind::Quarantined,
                        executed: Executed::Maybe,
                        message: format!(
                            "casts no vote: restarted, or became the master, {up:.1?} ago, within {what} of {kept:?}"
                        ),
                    });
                }
                _ => {}
            }
        }
    }

    /// Takes back what an acquire may have set on any node, whatever the cause. Not waited for longer than `by`;
    /// repeated until then where it could not even be sent. True if some node may have our token all the same, now or
    /// later.
    pub(crate) fn roll_back<R>(&self, ballot: &Ballot<R>, release: &TypedCall<Released>, by: Tick) -> bool {
        let may_be_set = |&i: &usize| ballot.votes.get(i).is_some_and(Vote::may_be_set);
        let mut unsent: Vec<usize> = (0..self.len()).filter(may_be_set).collect();
        if unsent.is_empty() {
            return ballot.duplicate;
        }
        let mut is_left = ballot.may_linger();
        let pause = self.limits.node_timeout / 10;
        loop {
            let undone = self.round(release, Priority::High, by, &|i| unsent.contains(&i));
            let said = |i: usize| undone.votes.get(i);
            is_left |= unsent.iter().any(|&i| said(i).is_some_and(|v| !v.is_definite() && !v.is_unsent()));
            unsent.retain(|&i| said(i).is_some_and(Vote::is_unsent));
            if unsent.is_empty() || self.now().after(pause) >= by {
                return is_left || !unsent.is_empty();
            }
            self.clock.sleep(pause);
        }
    }

    /// The failures of a ballot, node by node, for an error.
    pub(crate) fn node_errors<R>(&self, votes: &[Vote<R>]) -> Vec<NodeError> {
        self.errors(votes, |_| true).collect()
    }

    /// What the nodes said that failed in one of these ways.
    fn errors<R>(&self, votes: &[Vote<R>], so: impl Fn(FailureKind) -> bool) -> impl Iterator<Item = NodeError> {
        votes.iter().enumerate().filter_map(move |(i, vote)| match vote {
            Vote::Failed(failure) if so(failure.kind) => Some(self.node_error(i, failure.message.clone())),
            _ => None,
        })
    }

    pub(crate) fn node_error(&self, index: usize, message: String) -> NodeError {
        let address = self.members().nth(index).map_or_else(String::new, |node| node.address().into_owned());
        NodeError { node: index + 1, address, message }
    }

    /// The error for a key that holds something else on some node.
    pub(crate) fn wrong_type<R>(&self, op: &'static str, key: &str, ballot: &Ballot<R>) -> Option<Error> {
        let node = self.errors(&ballot.votes, |kind| kind == FailureKind::WrongType).next()?;
        Some(Error::WrongType { op, key: key.to_owned(), node })
    }

    /// Why a round over all nodes brought no majority of answers. Misuse and a foreign type come first, since waiting
    /// does not help them; but only where the other nodes alone are no majority.
    pub(crate) fn failed<R>(&self, op: &'static str, key: &str, ballot: &Ballot<R>) -> Error {
        let lasting = |kind: FailureKind| kind == FailureKind::WrongType || kind.is_misuse();
        let is_lasting = |vote: &&Vote<R>| matches!(vote, Vote::Failed(failure) if lasting(failure.kind));
        if self.len() - ballot.votes.iter().filter(is_lasting).count() < self.need() {
            if let Some(error) = self.wrong_type(op, key, ballot) {
                return error;
            }
            if let Some(node) = self.errors(&ballot.votes, FailureKind::is_misuse).next() {
                return Error::config(format!("failed to {op} {}: {node}", told(key, "lock ", "in queue ")));
            }
        }
        Error::Unavailable { op, key: key.to_owned(), of: self.len(), nodes: self.node_errors(&ballot.votes) }
    }
}

fn said_by(node: usize, said: Answers) -> Result<Value, Failure> {
    said.results.into_iter().nth(node).unwrap_or_else(|| Err(Failure::unsent(FailureKind::LeftOut, "not asked")))
}

fn ballot<R: Reply>(Answers { results, started, duplicate }: Answers) -> Ballot<R> {
    Ballot { votes: results.into_iter().map(Vote::from_result).collect(), started, duplicate }
}
