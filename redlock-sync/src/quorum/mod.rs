//! One round over all nodes: scatter, gather, count.
//!
//! The algorithm is Redlock (Redis documentation, "Distributed Locks with Redis"), with the changes that its critique
//! asks for. Deadlines are anchored before the first byte. Every vote that is not a definite no gets a release. A node
//! that restarted just now has no vote. One node is the case N = 1 of the same code.

mod ballot;
mod outage;
mod refusal;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by a panic")]
mod tests;
mod uncontended;

use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use self::ballot::{Ballot, votes_needed};
pub(crate) use self::outage::Outages;
pub(crate) use self::refusal::Refusal;
use self::uncontended::UncontendedKeys;
use crate::clock::{Clock, Tick};
use crate::error::{ConfigKind, Error, NodeError};
use crate::names::{escaped, key_in_message, reader_of_helper};
use crate::node::{Answers, Node, NodeFilter, Nodes, is_about_permission};
use crate::options::ClientOptions;
use crate::protocol::TypedCall;
use crate::protocol::reply::{Executed, Failure, FailureKind, Released, Reply, Value, Vote};
use crate::protocol::script::{Arg, Call, WRONG_TYPE};

/// The nodes, and the round that asks them.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) nodes: Nodes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: ClientOptions,
    /// The longest lease in use, in nanoseconds. A node that restarted within this time may have forgotten a lock that
    /// is still held.
    longest_lease: AtomicU64,
    /// The keys for which `SET NX` is enough.
    pub(crate) uncontended: UncontendedKeys,
}

/// No code of users runs while a lock of this type is held, so a panic in it leaves no state half changed.
impl RefUnwindSafe for Quorum {}

impl Quorum {
    pub(crate) fn new(nodes: Nodes, clock: Arc<dyn Clock>, settings: ClientOptions) -> Quorum {
        Quorum { nodes, clock, settings, longest_lease: AtomicU64::new(0), uncontended: UncontendedKeys::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The number of nodes that make a majority.
    pub(crate) fn need(&self) -> usize {
        votes_needed(self.len())
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// The time at which a round that begins now has to end.
    pub(crate) fn round_deadline(&self) -> Tick {
        self.now().after(self.settings.node_timeout)
    }

    /// Remembers that leases of this length are in use.
    pub(crate) fn record_lease_length(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        if self.longest_lease.load(Ordering::Relaxed) < nanos {
            self.longest_lease.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_nanos(self.longest_lease.load(Ordering::Relaxed))
    }

    /// The node on which this client listens for pushes, with its index: the reachable node with the smallest run id.
    /// So all clients listen on the same node, in whatever order they name the nodes. Nodes that have reported no run
    /// id come last, in their order.
    pub(crate) fn notification_server(&self) -> Option<(usize, &Node)> {
        let reachable = self.nodes.members().enumerate().filter(|(_, node)| node.outage().is_none());
        reachable.min_by_key(|(_, node)| {
            let run_id = node.run_id();
            (run_id.is_none(), run_id)
        })
    }

    /// Sends a call to one node, and returns its reply as it is.
    pub(crate) fn ask_one(&self, node: usize, call: &Arc<Call>) -> Result<Value, Failure> {
        reply_of(node, self.ask(call, self.round_deadline(), &|i| i == node))
    }

    /// Sends several calls to one node at the same time. The replies have the order of the calls.
    pub(crate) fn ask_one_all(&self, node: usize, calls: &[Arc<Call>]) -> Vec<Result<Value, Failure>> {
        let answers = self.nodes.calls(calls, self.round_deadline(), &|i| i == node, self.need());
        answers.into_iter().map(|answers| reply_of(node, answers)).collect()
    }

    /// **The round.** Sends the call to all nodes at the same time.
    pub(crate) fn round<R: Reply>(&self, call: &TypedCall<R>, by: Tick) -> Ballot<R> {
        self.round_on(call, by, &|_| true)
    }

    /// Like [`round`](Quorum::round), for the nodes that `ask` selects.
    pub(crate) fn round_on<R: Reply>(&self, call: &TypedCall<R>, by: Tick, ask: NodeFilter<'_>) -> Ballot<R> {
        self.judged(call, by, self.ask(&call.call, by, ask))
    }

    /// Like [`round`](Quorum::round), but ends soon after a majority has said the same. A node that has not answered
    /// then may still execute the call.
    pub(crate) fn quick_round<R: Reply>(&self, call: &TypedCall<R>, by: Tick) -> Ballot<R> {
        self.judged(call, by, self.nodes.quick_call(&call.call, by, self.need(), &|_| true))
    }

    /// Like [`quick_round`](Quorum::quick_round), for votes to be passed to [`Quorum::disqualify_restarted`]: a yes
    /// that will be invalidated decides nothing.
    pub(crate) fn quick_round_of_voters<R: Reply>(&self, call: &TypedCall<R>, by: Tick) -> Ballot<R> {
        self.judged(call, by, self.nodes.quick_call(&call.call, by, self.need(), &|i| self.has_vote(i)))
    }

    fn judged<R: Reply>(&self, call: &TypedCall<R>, by: Tick, answers: Answers) -> Ballot<R> {
        let mut ballot = ballot(answers);
        for (node, vote) in ballot.votes.iter_mut().enumerate() {
            if let Vote::Failed(failure) = vote
                && failure.kind == FailureKind::WrongType
            {
                failure.message += &self.wrong_key(node, &call.call, by);
            }
        }
        ballot
    }

    /// Which key of a call has another type, for its error. The server does not name it, so this asks again.
    fn wrong_key(&self, node: usize, call: &Call, by: Tick) -> String {
        let keys = call.key_names();
        let helpers: Vec<(&str, &str)> = keys.iter().filter_map(|key| Some((&**key, reader_of_helper(key)?))).collect();
        let names: Vec<&str> = helpers.iter().map(|(key, _)| *key).collect();
        let readers: Vec<Arg<'_>> = helpers.iter().map(|(_, reader)| Arg::Text(reader)).collect();
        let asked = self.ask(&Call::new(&WRONG_TYPE, &names, &readers), by, &|i| i == node);
        let Ok(Value::Int(number)) = reply_of(node, asked) else { return String::new() };
        let helper = usize::try_from(number).ok().and_then(|number| names.get(number.checked_sub(1)?).copied());
        // If no helper key has another type, it is the key of the lock.
        let wrong = helper.or(keys.first().map(String::as_str)).unwrap_or_default();
        format!(" (the key `{}`)", escaped(wrong))
    }

    /// Makes a round for each call, all at the same time.
    pub(crate) fn rounds<R: Reply>(&self, calls: &[TypedCall<R>], by: Tick) -> Vec<Ballot<R>> {
        let calls: Vec<Arc<Call>> = calls.iter().map(|call| Arc::clone(&call.call)).collect();
        self.nodes.calls(&calls, by, &|_| true, self.need()).into_iter().map(ballot).collect()
    }

    /// Like [`rounds`](Quorum::rounds), but ends soon after a majority has said the same to each call.
    pub(crate) fn quick_rounds<R: Reply>(&self, calls: &[TypedCall<R>], by: Tick) -> Vec<Ballot<R>> {
        let calls: Vec<Arc<Call>> = calls.iter().map(|call| Arc::clone(&call.call)).collect();
        self.nodes.quick_calls(&calls, by, self.need()).into_iter().map(ballot).collect()
    }

    /// Makes a round of a release, and one of another call behind it, in one packet.
    pub(crate) fn round_of_two<R: Reply>(
        &self,
        release: &TypedCall<Released>,
        then: &TypedCall<R>,
        by: Tick,
    ) -> (Ballot<Released>, Ballot<R>) {
        let (released, answered) = self.nodes.two_calls(&release.call, &then.call, by);
        (self.judged(release, by, released), self.judged(then, by, answered))
    }

    /// Sends a release to all nodes without waiting for the replies. `tell` gets them later, on a thread that must
    /// neither wait nor send.
    pub(crate) fn post<R: Reply>(&self, call: &TypedCall<R>, tell: impl FnOnce(Ballot<R>) + Send + 'static) {
        self.nodes.post(&call.call, Box::new(|answers| tell(ballot(answers))));
    }

    fn ask(&self, call: &Arc<Call>, by: Tick, ask: NodeFilter<'_>) -> Answers {
        self.nodes.call(call, by, ask, self.need())
    }

    /// Invalidates the yes of every node that restarted within the longest lease in use, since it may have forgotten a
    /// lock that is still held. If no node is older than that, all were started together, and no vote is invalidated.
    ///
    /// It is called after the round, not before. A node reports its uptime when a connection is made, which can happen
    /// within the round whose vote that connection carries. The vote then counts as "may be set", so that a release
    /// reaches that node too.
    ///
    /// A single node loses its yes by the failover guard only, whatever the cause of its low uptime.
    pub(crate) fn disqualify_restarted<R>(&self, votes: &mut [Vote<R>]) {
        let longest = self.longest_lease();
        if self.is_too_young() {
            return self.invalidate_votes(longest, "the longest lease", votes);
        }
        self.disqualify_restarted_within(longest, "the longest lease", votes);
    }

    /// True if there is one node and it may not know all locks that are held: see `failover_guard`. Then neither an
    /// attempt nor a grant takes a lock.
    pub(crate) fn is_too_young(&self) -> bool {
        let is_young = |node: &Node| node.uptime().is_some_and(|up| up < self.longest_lease());
        self.settings.failover_guard == Some(true) && self.len() == 1 && self.nodes.members().any(is_young)
    }

    /// Like [`Quorum::disqualify_restarted`], but for data with the lifetime `kept`.
    pub(crate) fn disqualify_restarted_within<R>(&self, kept: Duration, what: &str, votes: &mut [Vote<R>]) {
        if !self.settings.restart_guard || self.len() == 1 {
            return;
        }
        let is_old = |node: &Node| node.uptime().is_some_and(|up| up >= kept);
        if self.nodes.members().any(is_old) {
            self.invalidate_votes(kept, what, votes);
        }
    }

    /// False if the yes of this node is withdrawn after the round ([`Quorum::disqualify_restarted`]).
    fn has_vote(&self, node: usize) -> bool {
        let longest = self.longest_lease();
        let is_old = |node: &Node| node.uptime().is_some_and(|up| up >= longest);
        let is_young = |node: &Node| node.uptime().is_some_and(|up| up < longest);
        let restarted = self.settings.restart_guard && self.nodes.members().nth(node).is_some_and(is_young);
        !restarted || !self.nodes.members().any(is_old)
    }

    /// Turns each yes of a node that restarted within `kept` into a failure that names this reason.
    fn invalidate_votes<R>(&self, kept: Duration, what: &str, votes: &mut [Vote<R>]) {
        for (node, vote) in self.nodes.members().zip(votes) {
            if let Some(up) = node.uptime().filter(|up| *up < kept && vote.is_yes()) {
                let why = format!(
                    "casts no vote: it restarted or became the master {up:.1?} ago, and votes again once {what} of \
                     {kept:?} has passed"
                );
                *vote = Vote::Failed(Failure::new(FailureKind::Quarantined, Executed::Maybe, why));
            }
        }
    }

    /// Releases what an acquire may have set on any node. It waits until `by` at the latest, and until then repeats a
    /// release that could not be sent.
    ///
    /// Returns true if some node may still have our token, now or later.
    pub(crate) fn roll_back<R>(&self, ballot: &Ballot<R>, release: &TypedCall<Released>, by: Tick) -> bool {
        let may_be_set = |&i: &usize| ballot.votes.get(i).is_some_and(Vote::may_be_set);
        let mut unsent: Vec<usize> = (0..self.len()).filter(may_be_set).collect();
        if unsent.is_empty() {
            return ballot.duplicate;
        }
        let mut token_may_remain = ballot.token_may_remain();
        let pause = self.settings.resend_pause();
        loop {
            let releases = self.round_on(release, by, &|i| unsent.contains(&i));
            let vote = |i: usize| releases.votes.get(i);
            token_may_remain |= unsent.iter().any(|&i| vote(i).is_some_and(|v| !v.is_definite() && !v.is_unsent()));
            unsent.retain(|&i| vote(i).is_some_and(Vote::is_unsent));
            if unsent.is_empty() || self.now().after(pause) >= by {
                return token_may_remain || !unsent.is_empty();
            }
            self.clock.sleep(pause);
        }
    }

    /// Returns an error if two nodes are one server, or one is a replica of another one. Called after a round: only
    /// then every node that answered has reported its identity.
    pub(crate) fn no_conflict(&self) -> Result<(), Error> {
        self.nodes.conflict().map_or(Ok(()), |conflict| Err(Error::config(conflict)))
    }

    /// Returns an error if there are several nodes. For calls that work on one node only.
    pub(crate) fn needs_one_server(&self, what: &str, instead: &str) -> Result<(), Error> {
        match self.len() {
            1 => Ok(()),
            nodes => Err(Error::config(format!(
                "cannot {what}: this needs a client of one server, but this client has {nodes} servers; {instead}, or \
                 use one server"
            ))),
        }
    }

    /// The failures of a ballot, one for each node, for an error.
    pub(crate) fn node_errors<R>(&self, votes: &[Vote<R>]) -> Vec<NodeError> {
        self.errors(votes, |_| true).collect()
    }

    /// The failures of these kinds, one for each node.
    fn errors<R>(&self, votes: &[Vote<R>], is_wanted: impl Fn(FailureKind) -> bool) -> impl Iterator<Item = NodeError> {
        failures(votes, is_wanted).map(|(i, failure)| self.node_error(i, failure.message.clone()))
    }

    pub(crate) fn node_error(&self, index: usize, message: String) -> NodeError {
        let address = self.nodes.members().nth(index).map_or_else(String::new, |node| node.address().into_owned());
        NodeError { node: index + 1, address, message }
    }

    /// The error of a call that could not be made, or whose reply cannot be used.
    pub(crate) fn unavailable(&self, op: &'static str, key: String, why: String) -> Error {
        Error::Unavailable { op, key, of: self.len(), nodes: vec![self.node_error(0, why)] }
    }

    /// The error if the key holds a value of another type on some node.
    pub(crate) fn wrong_type<R>(&self, op: &'static str, key: &str, ballot: &Ballot<R>) -> Option<Error> {
        let node = self.errors(&ballot.votes, |kind| kind == FailureKind::WrongType).next()?;
        Some(Error::WrongType { op, key: key.to_owned(), node })
    }

    /// The error of a round without a majority of answers. It is `WrongType` or `Config` if these failures alone make a
    /// majority impossible, since waiting does not help then. Otherwise it is `Unavailable`.
    pub(crate) fn failed<R>(&self, op: &'static str, key: &str, ballot: &Ballot<R>) -> Error {
        let lasting = |kind: FailureKind| kind == FailureKind::WrongType || kind.is_misuse();
        let is_lasting = |vote: &&Vote<R>| matches!(vote, Vote::Failed(failure) if lasting(failure.kind));
        if self.len() - ballot.votes.iter().filter(is_lasting).count() < self.need() {
            if let Some(error) = self.wrong_type(op, key, ballot) {
                return error;
            }
            if let Some((i, failure)) = failures(&ballot.votes, FailureKind::is_misuse).next() {
                let node = self.node_error(i, failure.message.clone());
                let message = format!("failed to {op} {}: {node}", key_in_message(key, "lock ", "in queue "));
                return Error::config_of(config_kind(failure), &message);
            }
        }
        Error::Unavailable { op, key: key.to_owned(), of: self.len(), nodes: self.node_errors(&ballot.votes) }
    }
}

/// The failures of these kinds, with the number of the node from 0 on.
fn failures<R>(votes: &[Vote<R>], is_wanted: impl Fn(FailureKind) -> bool) -> impl Iterator<Item = (usize, &Failure)> {
    votes.iter().enumerate().filter_map(move |(i, vote)| match vote {
        Vote::Failed(failure) if is_wanted(failure.kind) => Some((i, failure)),
        _ => None,
    })
}

/// What has to be corrected after a failure that does not pass.
fn config_kind(failure: &Failure) -> ConfigKind {
    let says = |word| failure.message.contains(word);
    match failure.kind {
        FailureKind::Replica => ConfigKind::Replica,
        FailureKind::Tls => ConfigKind::Tls,
        FailureKind::Denied if is_about_permission(&failure.message) => ConfigKind::Permission,
        FailureKind::Denied if ["NOAUTH", "WRONGPASS", "ERR AUTH"].into_iter().any(says) => ConfigKind::Login,
        _ => ConfigKind::Server,
    }
}

fn reply_of(node: usize, answers: Answers) -> Result<Value, Failure> {
    answers.results.into_iter().nth(node).unwrap_or_else(|| Err(Failure::unsent(FailureKind::LeftOut, "not asked")))
}

fn ballot<R: Reply>(Answers { results, started, duplicate }: Answers) -> Ballot<R> {
    Ballot { votes: results.into_iter().map(Vote::from_result).collect(), started, duplicate }
}
