//! One attempt: a round, what it brought, and what is taken back.

use std::sync::Arc;
use std::time::Duration;

use super::aim::aim;
use crate::clock::Tick;
use crate::error::{Error, NodeError};
use crate::handover::grant;
use crate::handover::rules::Chain;
use crate::handover::wait::note_strangers;
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::node::Lane;
use crate::protocol::reply::{Acquired, Released, Vote};
use crate::protocol::{AcquireArgs, Entry, HandOver, Next, Order, ReleaseArgs, Request, TypedCall};
use crate::quorum::{Ballot, Quorum, Refusal};
use crate::token::{LockId, random_part};

/// What an attempt asks for besides the lock.
#[derive(Debug, Default)]
pub(super) struct Try<'a> {
    /// Nothing.
    pub(super) is_bare: bool,
    pub(super) entry: Option<Entry<'a>>,
    /// The wait can be in the queue although the attempt won.
    pub(super) keeps_wait: bool,
    /// The wait can be in the queue now.
    pub(super) is_queued: bool,
    /// Besides those of the client.
    pub(super) orphans: &'a [LockId],
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
        let orphans = own_tokens(client, request, refusal);
        if orphans.is_empty() && (nth > 0 || !refusal.is_queued()) || quorum.now() >= by {
            break;
        }
        outcome = attempt(client, request, &Try { orphans: &orphans, ..Try::default() }, by);
    }
    let outcome = match &outcome {
        Err(refusal) => {
            aim(client, request, refusal, by).map_or(outcome, |aimed| attempt(client, &aimed, &Try::default(), by))
        }
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
    let mut own = client.queues.orphans(request.key.name());
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
    let quorum = &client.quorum;
    let lease = Core::first_lease(&request.options);
    quorum.note_lease(lease);
    let key = request.key.name();
    let mut orphans = client.queues.orphans(key);
    let has_orphans = !orphans.is_empty();
    orphans.extend_from_slice(what.orphans);
    let (id, next) = client.tokens.fresh(request.options.holder_name.as_deref())?;
    let fence = request.options.fenced.then_some(0);
    let is_bare = what.is_bare && fence.is_none() && orphans.is_empty();
    let random = if is_bare || quorum.len() > 1 { String::new() } else { random_part()? };
    let order = first_order(quorum, request, is_bare, &random);
    let args = AcquireArgs { id: &id, lease, fence, wait: what.entry, order, orphans: &orphans };
    let is_native = is_bare && may_be_native(quorum, request);
    let call = request.protocol.acquire(&args);
    let call = if is_native { call.native() } else { call };
    let mut ballot = quorum.round(&call, Lane::Ordinary, by, &|_| true);
    if is_native && !ballot.tally().won() {
        quorum.quiet.note(request.key.as_str(), false, quorum.now());
    }
    quorum.disqualify_restarted(&mut ballot.votes);
    let lent = request.protocol.lending().map(|lock| lock.choose(&mut ballot.votes));
    note_strangers(&client.queues, request, &ballot);
    if let Err(error) = judge(client, request, "acquire", &ballot, lease) {
        take_back(client, request, &ballot, &id, lease, by);
        return Err(Box::new(Refusal { error, ballot: Some(ballot) }));
    }
    if has_orphans && ballot.tally().yes == quorum.len() {
        client.queues.drop_orphans(key);
    }
    // A node that said yes has taken it out of its queue, if it had a look there.
    let may_be_queued = what.keeps_wait
        || ballot.duplicate
        || ballot.tally().yes < quorum.len()
        || what.is_queued && ballot.is_of_lock_alone();
    let wait = what.entry.filter(|_| may_be_queued).map(|entry| entry.id.into());
    let mut start = client.start(request, id, Origin { wait, chain: what.chain, next: Some(next) });
    start.protocol = lent.unwrap_or(start.protocol);
    Ok(client.lease(&Arc::new(Core::won(start, &ballot)))?)
}

/// A bare attempt can be a command without a script, which costs a server a third. On one server it takes the lock even if others wait for it: so this
/// client has to know that nothing waits. On several servers any attempt may take it.
fn may_be_native(quorum: &Quorum, request: &Request) -> bool {
    let (limits, options) = (&quorum.limits, &request.options);
    // Only these locks have the layout of other libraries, a string.
    let is_string = request.protocol.handing_over().and_then(HandOver::granting).is_some();
    is_string
        && options.min_hold.is_zero()
        && limits.min_replicas_ack == 0
        && limits.failover_guard != Some(true)
        && (quorum.len() > 1 || quorum.quiet.is_quiet(request.key.as_str(), quorum.now()))
}

/// What an attempt does with a lock that is free.
pub(super) fn first_order<'a>(quorum: &Quorum, request: &Request, is_bare: bool, random: &'a str) -> Order<'a> {
    match quorum.len() {
        1 if is_bare => Order::Bare,
        1 => Order::First { random, span: grant::span(quorum, request.options.lease) },
        _ => Order::None,
    }
}

/// Whether the round was won, and if not, why.
pub(super) fn judge(
    client: &ClientInner,
    request: &Request,
    op: &'static str,
    ballot: &Ballot<Acquired>,
    lease: Duration,
) -> Result<(), Error> {
    let (quorum, key) = (&client.quorum, request.key.as_str());
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

pub(super) fn take_back(
    client: &ClientInner,
    request: &Request,
    ballot: &Ballot<Acquired>,
    id: &LockId,
    lease: Duration,
    by: Tick,
) {
    let release = ReleaseArgs { id: Some(id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
    if let Some(at) = undo(&client.quorum, ballot, &request.protocol.release(&release), by) {
        client.left_token(request, id, client.quorum.now().after(lease), at);
    }
}

/// Undoes by this call what an attempt may have set; returns where it may stand all the same, now or later. Where the time is up it is not waited for: it
/// stands behind the attempt on each connection.
pub(super) fn undo(
    quorum: &Quorum,
    ballot: &Ballot<Acquired>,
    call: &TypedCall<Released>,
    by: Tick,
) -> Option<Vec<bool>> {
    quorum.roll_back(ballot, call, by).then(|| ballot.votes.iter().map(Vote::may_be_set).collect())
}
