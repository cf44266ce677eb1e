//! One round over all nodes: scatter, gather, count.
//!
//! The algorithm is Redlock (Redis documentation, "Distributed Locks with Redis") with the changes that its critique asks for:
//! deadlines anchored before the first byte, a release for every vote that is not a definite no, and no vote of a node that
//! restarted just now. One node is the case N = 1 of the same code.

mod ballot;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by a panic")]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use self::ballot::{Ballot, Tally, Vote};
use crate::clock::{Clock, Tick};
use crate::config::Limits;
use crate::error::{Error, NodeError};
use crate::gate::Gates;
use crate::node::{Answer, Begun, Executed, Failure, Lane, Node, Nodes, Patience, Pending, Trouble, Value};
use crate::sabotage;
use crate::script::{Call, Purpose};

/// While connections are being made, how long to wait for one node before looking at the next.
const COLD_SLICE: Duration = Duration::from_millis(2);

/// The nodes, and the one function that asks them.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) nodes: Nodes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    /// Nanoseconds: a node that restarted within this time may have forgotten a lock that is still held.
    longest_lease: AtomicU64,
    gates: Gates,
}

/// Which nodes a round asks.
pub(crate) type Ask<'a> = &'a dyn Fn(usize) -> bool;

impl Quorum {
    pub(crate) fn new(nodes: Nodes, clock: Arc<dyn Clock>, limits: Limits) -> Quorum {
        let (ordinary, reserved) = nodes.connections();
        let gates = Gates::new(nodes.len(), ordinary, reserved);
        Quorum { nodes, clock, limits, longest_lease: AtomicU64::new(0), gates }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes in their order; all that a round knows of them is the trait.
    fn members(&self) -> impl Iterator<Item = &dyn Node> {
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

    /// The node on which this client waits for pushes, with its place: of those that are well the one with the smallest run id, so that all
    /// clients wait at the same one, in whatever order they name the nodes. Those that never told one come last, in their order.
    pub(crate) fn wake_node(&self) -> Option<(usize, &dyn Node)> {
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
    pub(crate) fn ask_one(&self, node: usize, call: &Call, by: Tick) -> Result<Value, Failure> {
        let said = self.say(call, Lane::Reserved, by, &|i| i == node);
        said.results.into_iter().nth(node).unwrap_or_else(|| Err(not_asked()))
    }

    /// Ends all waits for pushes.
    pub(crate) fn end_pops(&self) {
        self.members().for_each(Node::end_pops);
    }

    /// **The round.** Writes the call to every node that `ask` names, then reads the replies in order against one common deadline.
    /// One thread, no waiting before all that can be written at once is written: it costs the slowest round trip, not the sum.
    pub(crate) fn round(&self, call: &Call, lane: Lane, by: Tick, ask: Ask<'_>) -> Ballot {
        let Said { results, started, ghost } = self.say(call, lane, by, ask);
        Ballot { votes: results.into_iter().map(Vote::from_result).collect(), started, ghost }
    }

    /// A round about so many locks: a ballot for each of them.
    pub(crate) fn round_about_many(&self, call: &Call, locks: usize, by: Tick) -> Vec<Ballot> {
        let Said { results, started, ghost } = self.say(call, Lane::Reserved, by, &|_| true);
        let vote = |lock: usize, result: &Result<Value, Failure>| {
            Vote::from_result(match result {
                Ok(Value::List(each)) => Ok(each.get(lock).cloned().unwrap_or(Value::Nil)),
                other => other.clone(),
            })
        };
        let votes = |lock| results.iter().map(|result| vote(lock, result)).collect();
        (0..locks).map(|lock| Ballot { votes: votes(lock), started, ghost }).collect()
    }

    fn say(&self, call: &Call, lane: Lane, by: Tick, ask: Ask<'_>) -> Said {
        let pass = self.gates.enter(lane, by, &*self.clock);
        if pass.is_none() && call.purpose == Purpose::Acquire {
            return Said { results: vec![Err(crowded()); self.len()], started: self.now(), ghost: false };
        }
        // Without a pass the time is up: what can be written at once still is, and nothing is waited for.
        let lane = pass.as_ref().map_or(lane, |pass| pass.lane);
        let started = self.now();
        let mut seats = self.scatter(call, lane, by, ask);
        self.warm_up(&mut seats, call, lane, by);
        let mut ghost = false;
        let results = seats
            .into_iter()
            .map(|seat| match seat {
                Seat::Sent(pending) => {
                    let Answer { result, ghost: copied } = pending.finish(by);
                    ghost |= copied;
                    result
                }
                Seat::Cold => Err(no_connection()),
                Seat::Failed(failure) => Err(failure),
            })
            .collect();
        let started = if sabotage::is("deadline-at-reply") { self.now() } else { started };
        Said { results, started, ghost }
    }

    fn scatter<'a>(&'a self, call: &'a Call, lane: Lane, by: Tick, ask: Ask<'_>) -> Vec<Seat<'a>> {
        let heed_outages = self.can_spare_the_failed();
        let begin = |(i, node): (usize, &'a dyn Node)| {
            if !ask(i) {
                return Seat::Failed(not_asked());
            }
            match node.outage().filter(|_| heed_outages) {
                Some(failure) => Seat::Failed(left_out(node, call, lane, by, failure)),
                None => Seat::from(node.begin(call, lane, by, Patience::AtOnce)),
            }
        };
        self.members().enumerate().map(begin).collect()
    }

    /// Nodes without a connection at hand get one now; each in small slices, so that a hanging one does not use up the others' time.
    fn warm_up<'a>(&'a self, seats: &mut [Seat<'a>], call: &'a Call, lane: Lane, by: Tick) {
        while seats.iter().any(|seat| matches!(seat, Seat::Cold)) && self.now() < by {
            for (node, seat) in self.members().zip(seats.iter_mut()) {
                if matches!(seat, Seat::Cold) {
                    *seat = Seat::from(node.begin(call, lane, by, Patience::Slice(COLD_SLICE)));
                }
            }
        }
    }

    /// Nodes that failed just now are left out as long as the others make a majority; else asking them is the only chance.
    fn can_spare_the_failed(&self) -> bool {
        self.members().filter(|node| node.outage().is_none()).count() >= self.need()
    }

    /// Takes its vote from every node that restarted within the longest lease in use, as it may have forgotten a lock that is still
    /// held; but only while some other member is older, since a cold start of all is no restart.
    pub(crate) fn disqualify_restarted(&self, votes: &mut [Vote]) {
        if !self.limits.restart_guard || self.len() == 1 || sabotage::is("young-votes") {
            return;
        }
        let longest = Duration::from_nanos(self.longest_lease.load(Ordering::Relaxed));
        let is_old = |node: &dyn Node| node.uptime().is_some_and(|up| up >= longest);
        if !self.members().any(is_old) {
            return;
        }
        for (node, vote) in self.members().zip(votes) {
            match node.uptime() {
                Some(up) if up < longest && vote.is_yes() => {
                    *vote = Vote::Failed(Failure {
                        trouble: Trouble::Quarantined,
                        executed: Executed::Maybe,
                        message: format!(
                            "casts no vote: restarted {up:?} ago, within the longest lease of {longest:?}"
                        ),
                    });
                }
                _ => {}
            }
        }
    }

    /// Takes back what an acquire may have set on any node, whatever the cause. Not waited for longer than `by`; repeated until then where
    /// it could not even be sent. True if some node may have our token all the same, now or later.
    pub(crate) fn roll_back(&self, ballot: &Ballot, release: &Call, by: Tick) -> bool {
        let may_be_set = |&i: &usize| ballot.votes.get(i).is_some_and(Vote::may_be_set);
        let mut unsent: Vec<usize> = (0..self.len()).filter(may_be_set).collect();
        if unsent.is_empty() {
            return ballot.ghost;
        }
        let mut is_left = ballot.is_haunted();
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
    pub(crate) fn node_errors(&self, votes: &[Vote]) -> Vec<NodeError> {
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
    pub(crate) fn wrong_type(&self, op: &'static str, key: &str, ballot: &Ballot) -> Option<Error> {
        let (i, failure) = ballot.failure(Trouble::WrongType)?;
        let node = self.node_error(i, failure.message.clone());
        Some(Error::WrongType { op, key: key.to_owned(), node })
    }

    /// Why a round over all nodes brought no majority of answers. Misuse and a foreign type come first, since waiting does not help them; but
    /// only where the other nodes alone are no majority.
    pub(crate) fn failed(&self, op: &'static str, key: &str, ballot: &Ballot) -> Error {
        let is_lasting = |vote: &&Vote| matches!(vote, Vote::Failed(f) if f.trouble.is_lasting());
        if self.len() - ballot.votes.iter().filter(is_lasting).count() < self.need() {
            if let Some(error) = self.wrong_type(op, key, ballot) {
                return error;
            }
            if let Some((i, failure)) = ballot.failure(Trouble::Misuse) {
                let node = self.node_error(i, failure.message.clone());
                return Error::config(format!("failed to {op} lock `{}`: {node}", key.escape_debug()));
            }
        }
        Error::Unavailable { op, key: key.to_owned(), of: self.len(), nodes: self.node_errors(&ballot.votes) }
    }
}

impl Trouble {
    /// Stays until somebody changes the key or the set-up.
    fn is_lasting(self) -> bool {
        matches!(self, Trouble::WrongType | Trouble::Misuse)
    }
}

/// What a node that is left out says. A release is written all the same where that takes no time: it may have to go behind something late.
fn left_out(node: &dyn Node, call: &Call, lane: Lane, by: Tick, outage: Failure) -> Failure {
    if call.purpose != Purpose::Release {
        return outage;
    }
    match node.begin(call, lane, by, Patience::AtOnce) {
        Begun::Sent(_) => Failure { executed: Executed::Maybe, ..outage },
        Begun::Failed(failure) => failure,
        Begun::Cold => outage,
    }
}

/// One node's place in a round.
enum Seat<'a> {
    Sent(Box<dyn Pending + 'a>),
    Cold,
    Failed(Failure),
}

/// What the nodes said to a call.
struct Said {
    results: Vec<Result<Value, Failure>>,
    started: Tick,
    ghost: bool,
}

impl<'a> From<Begun<'a>> for Seat<'a> {
    fn from(begun: Begun<'a>) -> Seat<'a> {
        match begun {
            Begun::Sent(pending) => Seat::Sent(pending),
            Begun::Cold => Seat::Cold,
            Begun::Failed(failure) => Seat::Failed(failure),
        }
    }
}

impl fmt::Debug for Seat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seat::Sent(_) => f.write_str("Sent"),
            Seat::Cold => f.write_str("Cold"),
            Seat::Failed(failure) => write!(f, "{failure:?}"),
        }
    }
}

fn not_asked() -> Failure {
    Failure { trouble: Trouble::LeftOut, executed: Executed::No, message: "not asked".into() }
}

fn crowded() -> Failure {
    let message = "no free connection in time: all are in use";
    Failure { trouble: Trouble::TimedOut, executed: Executed::No, message: message.into() }
}

fn no_connection() -> Failure {
    Failure { trouble: Trouble::TimedOut, executed: Executed::No, message: "no connection in time".into() }
}
