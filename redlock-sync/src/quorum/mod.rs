//! One round over all nodes: scatter, gather, count.
//!
//! The algorithm is Redlock (Redis documentation, "Distributed Locks with Redis") with the changes that its critique asks for:
//! deadlines anchored before the first byte, a release for every vote that is not a definite no, and no vote of a node that
//! restarted just now. One node is the case N = 1 of the same code.

mod ballot;
mod outage;
mod refusal;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by a panic")]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use self::ballot::{Ballot, Tally};
pub(crate) use self::outage::Outages;
pub(crate) use self::refusal::Refusal;
use crate::clock::{Clock, Tick};
use crate::error::{Error, NodeError};
use crate::node::{Answers, Lane, Node, Nodes};
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
}

/// Which nodes a round asks.
pub(crate) type Ask<'a> = &'a dyn Fn(usize) -> bool;

impl Quorum {
    pub(crate) fn new(nodes: Nodes, clock: Arc<dyn Clock>, limits: ClientOptions) -> Quorum {
        Quorum { nodes, clock, limits, longest_lease: AtomicU64::new(0) }
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

    /// The node on which this client waits for pushes, with its place: of those that are well the one with the smallest run id, so that all
    /// clients wait at the same one, in whatever order they name the nodes. Those that never told one come last, in their order.
    pub(crate) fn wake_node(&self) -> Option<(usize, &Node)> {
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
        let said = self.say(call, Lane::Reserved, by, &|i| i == node);
        let silence = || Failure { kind: FailureKind::LeftOut, executed: Executed::No, message: "not asked".into() };
        said.results.into_iter().nth(node).unwrap_or_else(|| Err(silence()))
    }

    /// **The round.** Asks every node that `ask` names, all at the same time.
    pub(crate) fn round<R: Reply>(&self, call: &TypedCall<R>, lane: Lane, by: Tick, ask: Ask<'_>) -> Ballot<R> {
        let Answers { results, started, duplicate } = self.say(&call.call, lane, by, ask);
        Ballot { votes: results.into_iter().map(Vote::from_result).collect(), started, duplicate }
    }

    /// A round for each call, all in one packet to each node; `None` if that is not possible now.
    pub(crate) fn rounds<R: Reply>(&self, calls: &[TypedCall<R>], by: Tick) -> Option<Vec<Ballot<R>>> {
        let calls: Vec<Arc<Call>> = calls.iter().map(|call| Arc::clone(&call.call)).collect();
        let ballot = |Answers { results, started, duplicate }| Ballot {
            votes: results.into_iter().map(Vote::from_result).collect(),
            started,
            duplicate,
        };
        Some(self.nodes.rounds(&calls, by, self.need())?.into_iter().map(ballot).collect())
    }

    /// A round about so many locks: a ballot for each of them.
    pub(crate) fn round_about_many(&self, call: &Arc<Call>, locks: usize, by: Tick) -> Vec<Ballot<Released>> {
        let Answers { results, started, duplicate } = self.say(call, Lane::Reserved, by, &|_| true);
        let vote = |lock: usize, result: &Result<Value, Failure>| {
            Vote::from_result(match result {
                Ok(Value::List(each)) => Ok(each.get(lock).cloned().unwrap_or(Value::Nil)),
                other => other.clone(),
            })
        };
        let votes = |lock| results.iter().map(|result| vote(lock, result)).collect();
        (0..locks).map(|lock| Ballot { votes: votes(lock), started, duplicate }).collect()
    }

    fn say(&self, call: &Arc<Call>, lane: Lane, by: Tick, ask: Ask<'_>) -> Answers {
        let asks: Vec<bool> = (0..self.len()).map(ask).collect();
        self.nodes.round(call, lane, by, &asks, self.need())
    }

    /// Takes its vote from every node that restarted within the longest lease in use, as it may have forgotten a lock that is still
    /// held; but only while some other member is older, since a cold start of all is no restart.
    ///
    /// After the round, and not before: a node tells its uptime when a connection is made, which can happen within the round whose vote that connection
    /// carries. The vote then counts as "may be set", so that a release reaches that node too.
    pub(crate) fn disqualify_restarted<R>(&self, votes: &mut [Vote<R>]) {
        let longest = self.longest_lease();
        self.disqualify_restarted_within(longest, "the longest lease", votes);
    }

    /// As that, for data that is kept for so long.
    pub(crate) fn disqualify_restarted_within<R>(&self, kept: Duration, what: &str, votes: &mut [Vote<R>]) {
        if !self.limits.restart_guard || self.len() == 1 {
            return;
        }
        let is_old = |node: &Node| node.uptime().is_some_and(|up| up >= kept);
        if !self.members().any(is_old) {
            return;
        }
        for (node, vote) in self.members().zip(votes) {
            match node.uptime() {
                Some(up) if up < kept && vote.is_yes() => {
                    *vote = Vote::Failed(Failure {
                        kind: FailureKind::Quarantined,
                        executed: Executed::Maybe,
                        message: format!("casts no vote: restarted {up:?} ago, within {what} of {kept:?}"),
                    });
                }
                _ => {}
            }
        }
    }

    /// Takes back what an acquire may have set on any node, whatever the cause. Not waited for longer than `by`; repeated until then where
    /// it could not even be sent. True if some node may have our token all the same, now or later.
    pub(crate) fn roll_back<R>(&self, ballot: &Ballot<R>, release: &TypedCall<Released>, by: Tick) -> bool {
        let may_be_set = |&i: &usize| ballot.votes.get(i).is_some_and(Vote::may_be_set);
        let mut unsent: Vec<usize> = (0..self.len()).filter(may_be_set).collect();
        if unsent.is_empty() {
            return ballot.duplicate;
        }
        let mut is_left = ballot.may_linger();
        let pause = self.limits.node_timeout / 10;
        loop {
            let undone = self.round(release, Lane::Reserved, by, &|i| unsent.contains(&i));
            let said = |i: usize| undone.votes.get(i);
            is_left |=
                unsent.iter().any(|&i| said(i).is_some_and(|v| !v.is_yes() && !v.is_definite_no() && !v.is_unsent()));
            unsent.retain(|&i| said(i).is_some_and(Vote::is_unsent));
            if unsent.is_empty() || self.now().after(pause) >= by {
                return is_left || !unsent.is_empty();
            }
            self.clock.sleep(pause);
        }
    }

    /// The failures of a ballot, node by node, for an error.
    pub(crate) fn node_errors<R>(&self, votes: &[Vote<R>]) -> Vec<NodeError> {
        votes
            .iter()
            .enumerate()
            .filter_map(|(i, vote)| match vote {
                Vote::Failed(failure) => Some(self.node_error(i, failure.message.clone())),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn node_error(&self, index: usize, message: String) -> NodeError {
        let address = self.members().nth(index).map_or_else(String::new, |node| node.address().to_owned());
        NodeError { node: index + 1, address, message }
    }

    /// The error for a key that holds something else on some node.
    pub(crate) fn wrong_type<R>(&self, op: &'static str, key: &str, ballot: &Ballot<R>) -> Option<Error> {
        let (i, failure) = ballot.failure(FailureKind::WrongType)?;
        let node = self.node_error(i, failure.message.clone());
        Some(Error::WrongType { op, key: key.to_owned(), node })
    }

    /// Why a round over all nodes brought no majority of answers. Misuse and a foreign type come first, since waiting does not help them; but
    /// only where the other nodes alone are no majority.
    pub(crate) fn failed<R>(&self, op: &'static str, key: &str, ballot: &Ballot<R>) -> Error {
        let is_lasting = |vote: &&Vote<R>| matches!(vote, Vote::Failed(f) if f.kind.is_lasting());
        if self.len() - ballot.votes.iter().filter(is_lasting).count() < self.need() {
            if let Some(error) = self.wrong_type(op, key, ballot) {
                return error;
            }
            if let Some((i, failure)) = ballot.failure(FailureKind::Misuse) {
                let node = self.node_error(i, failure.message.clone());
                return Error::config(format!("failed to {op} lock `{}`: {node}", key.escape_debug()));
            }
        }
        Error::Unavailable { op, key: key.to_owned(), of: self.len(), nodes: self.node_errors(&ballot.votes) }
    }
}

impl FailureKind {
    /// Stays until the key or the set-up is changed.
    fn is_lasting(self) -> bool {
        matches!(self, FailureKind::WrongType | FailureKind::Misuse)
    }
}
