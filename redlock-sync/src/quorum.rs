//! One round over all nodes: scatter, gather, count.
//!
//! The algorithm is Redlock (Redis documentation, "Distributed Locks with Redis") with the changes that its critique asks for:
//! deadlines anchored before the first byte, a release for every vote that is not a definite no, and no vote of a node that
//! restarted just now. One node is the case N = 1 of the same code.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Tick};
use crate::config::{Limits, drift};
use crate::error::{Error, NodeError};
use crate::gate::Gates;
use crate::node::{Answer, Begun, Executed, Failure, Lane, Node, Nodes, Patience, Pending, Trouble, Value};
use crate::script::{Call, Purpose};

/// While connections are being made, how long to wait for one node before looking at the next.
const COLD_SLICE: Duration = Duration::from_millis(2);

/// What one node says to a call, whatever the kind of lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Done; the fence is 0 where the call has none.
    Yes { fence: u64 },
    /// Not done, and the lock still ours: somebody waits for it.
    Held,
    /// A definite no: the key is somebody else's, for that long (`None`: without end).
    Taken { token: String, ttl: Option<Duration> },
    /// A definite no: there is no such key.
    Absent,
    /// No answer that counts.
    Failed(Failure),
}

impl Vote {
    /// Reads the replies that the scripts document: `1`, `0`, `-1`, `{1, fence}`, `{1, token, ms}`, `{0, ms, token}`, `{0}`.
    fn read(value: &Value) -> Option<Vote> {
        match value {
            Value::Int(1) => Some(Vote::Yes { fence: 0 }),
            Value::Int(2) => Some(Vote::Held),
            Value::Int(0) => Some(Vote::Taken { token: String::new(), ttl: None }),
            Value::Int(-1) => Some(Vote::Absent),
            Value::List(items) => match items.as_slice() {
                [Value::Int(1), fence] => Some(Vote::Yes { fence: number(fence)? }),
                [Value::Int(1), token, Value::Int(ms)] | [Value::Int(0), Value::Int(ms), token] => {
                    Some(Vote::Taken { token: text(token)?, ttl: u64::try_from(*ms).ok().map(Duration::from_millis) })
                }
                [Value::Int(0)] => Some(Vote::Absent),
                _ => None,
            },
            _ => None,
        }
    }

    fn from_result(result: Result<Value, Failure>) -> Vote {
        match result {
            Ok(value) => Vote::read(&value).unwrap_or_else(|| {
                Vote::Failed(Failure {
                    trouble: Trouble::Refused,
                    executed: Executed::Maybe,
                    message: format!("unexpected reply {value:?}"),
                })
            }),
            Err(failure) => Vote::Failed(failure),
        }
    }

    pub(crate) fn is_yes(&self) -> bool {
        matches!(self, Vote::Yes { .. })
    }

    /// The token is certainly not this call's: another one, none, or a key of another type.
    pub(crate) fn is_definite_no(&self) -> bool {
        match self {
            Vote::Taken { .. } | Vote::Absent => true,
            Vote::Failed(failure) => failure.trouble == Trouble::WrongType,
            Vote::Yes { .. } | Vote::Held => false,
        }
    }

    /// Nothing of the call has got through, which can be otherwise in a moment.
    fn is_unsent(&self) -> bool {
        use Trouble::{LeftOut, TimedOut, Transient, Unreachable};
        let passes = |trouble| matches!(trouble, Unreachable | TimedOut | LeftOut | Transient);
        matches!(self, Vote::Failed(failure) if failure.executed == Executed::No && passes(failure.trouble))
    }

    /// Whether our token may stand on this node after an acquire that said this.
    fn may_be_set(&self) -> bool {
        match self {
            Vote::Yes { .. } | Vote::Held => true,
            Vote::Failed(failure) => failure.executed == Executed::Maybe,
            Vote::Taken { .. } | Vote::Absent => false,
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

/// Counts votes. Pure; right for even numbers of nodes too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) of: usize,
    pub(crate) yes: usize,
    pub(crate) no: usize,
    pub(crate) failed: usize,
}

impl Tally {
    pub(crate) fn count(votes: &[Vote]) -> Tally {
        let yes = votes.iter().filter(|v| v.is_yes()).count();
        let failed = votes.iter().filter(|v| matches!(v, Vote::Failed(_))).count();
        Tally { of: votes.len(), yes, failed, no: votes.len() - yes - failed }
    }

    /// Votes that make a majority.
    pub(crate) fn need(of: usize) -> usize {
        #[cfg(test)]
        if crate::simulation::is_on(crate::simulation::Control::HalfIsEnough) {
            return of / 2;
        }
        of / 2 + 1
    }

    pub(crate) fn won(&self) -> bool {
        self.yes >= Tally::need(self.of)
    }

    /// A majority was asked and answered; so a round that is not won was lost to others, not to failures.
    pub(crate) fn is_answered(&self) -> bool {
        self.yes + self.no >= Tally::need(self.of)
    }
}

/// The votes of one round, with the moment before its first byte.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub(crate) votes: Vec<Vote>,
    pub(crate) started: Tick,
    /// On some node a copy of the call may still be executed, out of order.
    pub(crate) ghost: bool,
}

impl Ballot {
    pub(crate) fn tally(&self) -> Tally {
        Tally::count(&self.votes)
    }

    /// The largest number that came with a yes.
    pub(crate) fn largest_fence(&self) -> u64 {
        let fence = |vote: &Vote| if let Vote::Yes { fence } = vote { *fence } else { 0 };
        self.votes.iter().map(fence).max().unwrap_or(0)
    }

    /// The smallest time-to-live that another holder has.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.votes.iter().filter_map(|v| if let Vote::Taken { ttl, .. } = v { *ttl } else { None }).min()
    }

    /// For how long a lock that this round won is surely held.
    pub(crate) fn validity(&self, lease: Duration, now: Tick) -> Duration {
        self.started.after(lease).before(drift(lease)).since(now)
    }

    /// The first failure of that kind of trouble, with its node's index.
    pub(crate) fn failure(&self, trouble: Trouble) -> Option<(usize, &Failure)> {
        self.votes.iter().enumerate().find_map(|(i, vote)| match vote {
            Vote::Failed(failure) if failure.trouble == trouble => Some((i, failure)),
            _ => None,
        })
    }

    /// Some node may have our token, now or later, although it did not vote yes.
    pub(crate) fn is_haunted(&self) -> bool {
        self.ghost || self.votes.iter().any(|vote| !vote.is_yes() && vote.may_be_set())
    }
}

/// The nodes, and the one function that asks them.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) nodes: Nodes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    /// Nanoseconds: a node that restarted within this time may have forgotten a lock that is still held.
    longest_lease: AtomicU64,
    /// Somebody asked for a fence: acquires raise the counter in the same step from then on, so that it costs those who ask no round trip, and
    /// those who do not ask nothing.
    are_fences_wanted: AtomicBool,
    gates: Gates,
}

/// Which nodes a round asks.
pub(crate) type Ask<'a> = &'a dyn Fn(usize) -> bool;

impl Quorum {
    pub(crate) fn new(nodes: Nodes, clock: Arc<dyn Clock>, limits: Limits) -> Quorum {
        let (ordinary, reserved) = nodes.connections();
        let gates = Gates::new(nodes.len(), ordinary, reserved);
        let (longest_lease, are_fences_wanted) = (AtomicU64::new(0), AtomicBool::new(false));
        Quorum { nodes, clock, limits, longest_lease, are_fences_wanted, gates }
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

    /// Remembers that leases of this length are in use.
    pub(crate) fn note_lease(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        if self.longest_lease.load(Ordering::Relaxed) < nanos {
            self.longest_lease.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn want_fences(&self) {
        if !self.are_fences_wanted() {
            self.are_fences_wanted.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn are_fences_wanted(&self) -> bool {
        self.are_fences_wanted.load(Ordering::Relaxed)
    }

    /// The node on which this client waits for pushes, with its place: the first that is well, so that all wait at the same one.
    pub(crate) fn wake_node(&self) -> Option<(usize, &dyn Node)> {
        self.members().enumerate().find(|(_, node)| node.outage().is_none())
    }

    /// Ends all waits for pushes.
    pub(crate) fn end_pops(&self) {
        self.members().for_each(Node::end_pops);
    }

    /// **The round.** Writes the call to every node that `ask` names, then reads the replies in order against one common deadline.
    /// One thread, no waiting before all that can be written at once is written: it costs the slowest round trip, not the sum.
    pub(crate) fn round(&self, call: &Call, lane: Lane, by: Tick, ask: Ask<'_>) -> Ballot {
        let pass = self.gates.enter(lane, by, &*self.clock);
        if pass.is_none() && call.purpose == Purpose::Acquire {
            let votes = vec![Vote::Failed(crowded()); self.len()];
            return Ballot { votes, started: self.now(), ghost: false };
        }
        // Without a pass the time is up: what can be written at once still is, and nothing is waited for.
        let lane = pass.as_ref().map_or(lane, |pass| pass.lane);
        let started = self.now();
        let mut seats = self.scatter(call, lane, by, ask);
        self.warm_up(&mut seats, call, lane, by);
        let mut ghost = false;
        let votes = seats
            .into_iter()
            .map(|seat| match seat {
                Seat::Sent(pending) => {
                    let Answer { result, ghost: copied } = pending.finish(by);
                    ghost |= copied;
                    Vote::from_result(result)
                }
                Seat::Cold => Vote::Failed(no_connection()),
                Seat::Voted(vote) => vote,
            })
            .collect();
        #[cfg(test)]
        if crate::simulation::is_on(crate::simulation::Control::AnchoredAtReply) {
            return Ballot { votes, started: self.now(), ghost };
        }
        Ballot { votes, started, ghost }
    }

    fn scatter<'a>(&'a self, call: &'a Call, lane: Lane, by: Tick, ask: Ask<'_>) -> Vec<Seat<'a>> {
        let heed_outages = self.can_spare_the_failed();
        let begin = |(i, node): (usize, &'a dyn Node)| {
            if !ask(i) {
                return Seat::Voted(Vote::Failed(not_asked()));
            }
            match node.outage().filter(|_| heed_outages) {
                Some(failure) => Seat::Voted(Vote::Failed(left_out(node, call, lane, by, failure))),
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
        if !self.limits.restart_guard || self.len() == 1 {
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
            return false;
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
    Voted(Vote),
}

impl<'a> From<Begun<'a>> for Seat<'a> {
    fn from(begun: Begun<'a>) -> Seat<'a> {
        match begun {
            Begun::Sent(pending) => Seat::Sent(pending),
            Begun::Cold => Seat::Cold,
            Begun::Failed(failure) => Seat::Voted(Vote::Failed(failure)),
        }
    }
}

impl fmt::Debug for Seat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seat::Sent(_) => f.write_str("Sent"),
            Seat::Cold => f.write_str("Cold"),
            Seat::Voted(vote) => write!(f, "{vote:?}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Vote {
        Vote::Failed(no_connection())
    }

    #[test]
    fn every_combination_up_to_seven_nodes() {
        for of in 1..=7_usize {
            for yes in 0..=of {
                for no in 0..=(of - yes) {
                    let votes: Vec<Vote> = std::iter::repeat_n(Vote::Yes { fence: 1 }, yes)
                        .chain(std::iter::repeat_n(Vote::Absent, no))
                        .chain(std::iter::repeat_n(failed(), of - yes - no))
                        .collect();
                    let tally = Tally::count(&votes);
                    assert_eq!(tally.won(), 2 * yes > of, "{tally:?}");
                    assert_eq!(tally.is_answered(), 2 * (yes + no) > of, "{tally:?}");
                    assert_eq!(tally.yes + tally.no + tally.failed, of);
                }
            }
        }
    }

    #[test]
    fn two_majorities_always_share_a_node() {
        for of in 1..=9 {
            assert!(2 * Tally::need(of) > of);
        }
    }

    #[test]
    fn replies_become_votes() {
        let text = |s: &str| Value::Text(s.into());
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(1), text("17")])), Some(Vote::Yes { fence: 17 }));
        let taken = Some(Vote::Taken { token: "t".into(), ttl: Some(Duration::from_millis(5)) });
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(0), Value::Int(5), text("t")])), taken);
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(1), text("t"), Value::Int(5)])), taken);
        let endless = Some(Vote::Taken { token: "t".into(), ttl: None });
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(0), Value::Int(-1), text("t")])), endless);
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(0)])), Some(Vote::Absent));
        for odd in [Value::Nil, Value::Int(7), text("x"), Value::List(vec![])] {
            assert_eq!(Vote::read(&odd), None, "{odd:?}");
            assert!(Vote::from_result(Ok(odd)).may_be_set());
        }
    }

    #[test]
    fn an_unknown_outcome_is_never_a_no() {
        let unknown =
            Vote::Failed(Failure { trouble: Trouble::TimedOut, executed: Executed::Maybe, message: String::new() });
        assert!(unknown.may_be_set() && !unknown.is_definite_no());
        assert!(!failed().may_be_set() && !failed().is_definite_no());
    }
}
