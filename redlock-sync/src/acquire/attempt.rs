//! One attempt: a round, what it brought, and what is taken back.

use std::sync::Arc;
use std::time::Duration;

use super::common_slots::retry_on_common_slots;
use crate::clock::Tick;
use crate::error::{Error, NodeError};
use crate::handover::grant;
use crate::handover::rules::Chain;
use crate::handover::wait::record_foreign_clients;
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::node::Priority;
use crate::protocol::reply::{Acquired, Released, Vote};
use crate::protocol::{AcquireArgs, Next, Order, Protocol, ReleaseArgs, Request, TypedCall, WaitEntry};
use crate::quorum::{Ballot, Quorum, Refusal};
use crate::token::{LockId, RandomPart, random_part};

/// What an attempt asks for besides the lock.
#[derive(Debug, Default)]
pub(super) struct Try<'a> {
    /// Nothing.
    pub(super) is_bare: bool,
    pub(super) entry: Option<WaitEntry<'a>>,
    /// The wait can be in the queue although the attempt won.
    pub(super) keeps_wait: bool,
    /// Besides those of the client.
    pub(super) leftover_tokens: &'a [LockId],
    pub(super) chain: Chain,
}

/// The attempt of a call that does not wait. If a queue is found, a full attempt follows the bare one, since all waits
/// in the queue may be dead; so does one that takes the lock from a token of this client that no lease has. All together take one node timeout at most.
pub(super) fn only_attempt(client: &Arc<ClientInner>, request: &Request) -> Result<Lease, Error> {
    let quorum = &client.quorum;
    let by = quorum.round_deadline();
    let mut outcome = attempt(client, request, &Try { is_bare: true, ..Try::default() }, by);
    for nth in 0..2 {
        let Err(refusal) = &outcome else { break };
        let leftover_tokens = own_tokens(client, request, refusal);
        if leftover_tokens.is_empty() && (nth > 0 || !refusal.is_queued()) || quorum.now() >= by {
            break;
        }
        outcome = attempt(client, request, &Try { leftover_tokens: &leftover_tokens, ..Try::default() }, by);
    }
    let outcome = match &outcome {
        Err(refusal) => retry_on_common_slots(client, request, refusal, by)
            .map_or(outcome, |aimed| attempt(client, &aimed, &Try::default(), by)),
        Ok(_) => outcome,
    };
    match &outcome {
        Err(refusal) if matches!(refusal.error, Error::Unavailable { .. }) => {
            client.outages.since(by.before(quorum.limits.node_timeout), quorum.now(), &refusal.error);
        }
        _ => client.outages.end(),
    }
    outcome.map_err(|refusal| refusal.error)
}

/// The tokens of this client, among those that hold the lock, that no lease has: of a call whose outcome is not known, or of a guard that was dropped and
/// whose release is not executed yet. Mostly it is, before the attempt; but its connection can have broken, or be stuck while another one is not.
fn own_tokens(client: &ClientInner, request: &Request, refusal: &Refusal) -> Vec<LockId> {
    let votes = refusal.ballot.iter().flat_map(|ballot| &ballot.votes);
    let holders =
        votes.filter_map(|vote| if let Vote::Taken { token, .. } = vote { Some(token.as_str()) } else { None });
    let holders: Vec<&str> = holders.filter(|token| !token.is_empty()).collect();
    let mut own = client.queues.leftover_tokens(request.key.name());
    own.retain(|id| holders.contains(&id.as_str()));
    own.extend(client.supersede_dropped(&holders));
    own
}

/// One round with a token of its own, which ends by `by`. What it set is taken back before it returns an error.
pub(super) fn attempt(
    client: &Arc<ClientInner>,
    request: &Request,
    what: &Try<'_>,
    by: Tick,
) -> Result<Lease, Box<Refusal>> {
    let (quorum, key) = (&client.quorum, request.key.name());
    let attempt = Attempt::prepare(client, request)?;
    let mut leftover_tokens = client.queues.leftover_tokens(key);
    let has_leftover_tokens = !leftover_tokens.is_empty();
    leftover_tokens.extend_from_slice(what.leftover_tokens);
    let is_bare = what.is_bare && !request.options.fenced && leftover_tokens.is_empty();
    let is_native = is_bare && may_be_native(quorum, request);
    let call = attempt.call(is_bare, what.entry, &leftover_tokens)?;
    let call = if is_native { call.native() } else { call };
    let mut ballot = quorum.round(&call, Priority::Normal, by, &|_| true);
    if is_native && !ballot.tally().won() {
        quorum.quiet.note(request.key.as_str(), false, quorum.now());
    }
    quorum.disqualify_restarted(&mut ballot.votes);
    let lent = request.protocol.semaphore().map(|lock| Arc::new(Protocol::Semaphore(lock.choose(&mut ballot.votes))));
    record_foreign_clients(&client.queues, request, &ballot);
    if let Err(error) = attempt.judge("acquire", &ballot) {
        attempt.take_back(&ballot, by);
        return Err(Box::new(Refusal { error, ballot: Some(ballot) }));
    }
    if has_leftover_tokens && ballot.tally().yes == quorum.len() {
        client.queues.forget_leftover_tokens(key);
    }
    // A node that said yes has taken it out of its queue.
    let may_be_queued = what.keeps_wait || ballot.duplicate || ballot.tally().yes < quorum.len();
    let wait = what.entry.filter(|_| may_be_queued).map(|entry| entry.id.into());
    Ok(attempt.hold(&ballot, wait, what.chain, lent)?)
}

/// An attempt to take a lock, with a token of its own: prepared, made in one round, and then held or undone. Several locks that are taken together, and an
/// adoption, are attempts too.
pub(super) struct Attempt<'a> {
    pub(super) client: &'a Arc<ClientInner>,
    pub(super) request: &'a Request,
    pub(super) id: LockId,
    /// Of the next token.
    next: RandomPart,
    pub(super) lease: Duration,
}

impl<'a> Attempt<'a> {
    pub(super) fn prepare(client: &'a Arc<ClientInner>, request: &'a Request) -> Result<Attempt<'a>, Error> {
        let lease = Core::first_lease(&request.options);
        client.quorum.note_lease(lease);
        let (id, next) = client.tokens.fresh(request.options.holder_name.as_deref())?;
        Ok(Attempt { client, request, id, next, lease })
    }

    /// Asks for the lock. A bare attempt asks for nothing else.
    pub(super) fn call(
        &self,
        is_bare: bool,
        wait: Option<WaitEntry<'_>>,
        leftover_tokens: &[LockId],
    ) -> Result<TypedCall<Acquired>, Error> {
        let Attempt { client, request, id, lease, .. } = self;
        let fence = request.options.fenced.then_some(0);
        let random = if is_bare || client.quorum.len() > 1 { String::new() } else { random_part()? };
        let order = match client.quorum.len() {
            1 if is_bare => Order::FastPath,
            1 => Order::First { random: &random, span: grant::span(&client.quorum, request.options.lease) },
            _ => Order::None,
        };
        Ok(request.protocol.acquire(&AcquireArgs { id, lease: *lease, fence, wait, order, leftover_tokens }))
    }

    /// Whether the round was won, and if not, why.
    pub(super) fn judge(&self, op: &'static str, ballot: &Ballot<Acquired>) -> Result<(), Error> {
        let (quorum, key, lease) = (&self.client.quorum, self.request.key.as_str(), self.lease);
        // Asked after the round: only then every node that voted has told its identity.
        if let Some(conflict) = quorum.nodes.conflict() {
            return Err(Error::config(conflict));
        }
        let tally = ballot.tally();
        if !tally.won() {
            return Err(if tally.is_answered() {
                Error::Busy { key: key.to_owned(), expires_in: ballot.expires_in(), by_this_thread: false }
            } else {
                quorum.failed(op, key, ballot)
            });
        }
        let now = quorum.now();
        if ballot.validity(lease, now) >= quorum.limits.min_validity {
            return Ok(());
        }
        let took = now.since(ballot.started);
        let late = |i| quorum.node_error(i, format!("the round took {took:?}, too long for a lease of {lease:?}"));
        let nodes: Vec<NodeError> = (0..quorum.len()).map(late).collect();
        Err(Error::Unavailable { op, key: key.to_owned(), of: quorum.len(), nodes })
    }

    /// The lease of a round that was won. `wait` may still be in a queue; `lent` is the protocol of what the nodes lent.
    pub(super) fn hold(
        self,
        ballot: &Ballot<Acquired>,
        wait: Option<Arc<str>>,
        chain: Chain,
        lent: Option<Arc<Protocol>>,
    ) -> Result<Lease, Error> {
        let Attempt { client, request, id, next, .. } = self;
        let mut start = client.start(request, id, Origin { wait, chain, next: Some(next) });
        start.protocol = lent.unwrap_or(start.protocol);
        client.lease(&Arc::new(Core::won(start, ballot)))
    }

    /// Frees what the attempt may have set.
    pub(super) fn release(&self) -> TypedCall<Released> {
        let args = ReleaseArgs { id: Some(&self.id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        self.request.protocol.release(&args)
    }

    pub(super) fn take_back(&self, ballot: &Ballot<Acquired>, by: Tick) {
        if let Some(at) = self.undo(ballot, &self.release(), by) {
            self.left_token(at);
        }
    }

    /// Undoes by this call what the attempt may have set; returns where it may stand all the same, now or later. Where the time is up it is not waited for: it
    /// stands behind the attempt on each connection.
    pub(super) fn undo(&self, ballot: &Ballot<Acquired>, call: &TypedCall<Released>, by: Tick) -> Option<Vec<bool>> {
        let is_left = self.client.quorum.roll_back(ballot, call, by);
        is_left.then(|| ballot.votes.iter().map(Vote::may_be_set).collect())
    }

    /// The token may stand on these nodes all the same, and is freed there in the background.
    pub(super) fn left_token(&self, at: Vec<bool>) {
        self.client.left_token(self.request, &self.id, self.client.quorum.now().after(self.lease), at);
    }
}

/// A bare attempt can be a command without a script, which costs a server a third. On one server it takes the lock even if others wait for it: so this
/// client has to know that nothing waits. On several servers any attempt may take it.
fn may_be_native(quorum: &Quorum, request: &Request) -> bool {
    let (limits, options) = (&quorum.limits, &request.options);
    // Only a mutex is a string, which `SET` can set.
    request.protocol.mutex().is_some()
        && options.min_hold.is_zero()
        && limits.min_replicas_ack == 0
        && limits.failover_guard != Some(true)
        && (quorum.len() > 1 || quorum.quiet.is_quiet(request.key.as_str(), quorum.now()))
}
