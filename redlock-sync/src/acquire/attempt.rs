//! One attempt to take a lock: the round, its outcome, and the roll-back of an attempt that was not won.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::error::{Error, NodeError};
use crate::handover::grant;
use crate::inner::ClientInner;
use crate::lease::{Lease, LeaseInner, PendingRelease};
use crate::options::MIN_VALIDITY;
use crate::protocol::reply::{Acquired, Released, Vote};
use crate::protocol::{
    AcquireArgs, LeaseCalls, Next, Protocol, QueuePolicy, ReleaseArgs, Request, TypedCall, WaitArgs,
};
use crate::quorum::{Ballot, Quorum, Refusal};
use crate::token::{LockId, is_granted, random_part_of};

/// What one attempt asks the servers for, besides the lock.
#[derive(Debug, Default)]
pub(super) struct AttemptOptions<'a> {
    /// The attempt asks for the lock only, unless it needs a fence.
    pub(super) is_fast_path: bool,
    pub(super) wait: Option<WaitArgs<'a>>,
    /// The wait can still be in a server queue although the attempt was won.
    pub(super) keeps_wait: bool,
    /// What the lock may be taken over from.
    pub(super) take_over: &'a [LockId],
}

/// How often an attempt is repeated at once. A release that can not be sent leaves the lock held, so there is a limit.
const MOST_REPETITIONS: usize = 2;

/// The attempt of a call that does not wait. It can take several rounds, but one node timeout at most. After the fast
/// path has found a queue, a full attempt follows, since all waits in the queue may be dead.
pub(super) fn only_attempt(client: &Arc<ClientInner>, request: &Request) -> Result<Lease, Error> {
    let quorum = &client.quorum;
    let began = quorum.now();
    let by = began.after(quorum.settings.node_timeout);
    let rounds = |is_fast_path| {
        let options = AttemptOptions { is_fast_path, ..AttemptOptions::default() };
        past_own_tokens(client, request, by, || attempt(client, request, &options, by))
    };
    let outcome = match rounds(true) {
        Err(refusal) if refusal.is_queued() && is_time_for_another(quorum, began, by) => rounds(false),
        outcome => outcome,
    };
    let outcome = match &outcome {
        Err(refusal) => retry_on_common_slot(client, request, refusal, by)
            .map_or(outcome, |restricted| attempt(client, &restricted, &AttemptOptions::default(), by)),
        Ok(_) => outcome,
    };
    match &outcome {
        Err(refusal) if refusal.error.is_unavailable() => {
            let tried_at = by.before(quorum.settings.node_timeout);
            client.unavailable_since(request.key.as_str(), tried_at, &refusal.error);
        }
        Err(refusal) if !refusal.error.is_busy() => {}
        _ => client.outages.end(request.key.as_str()),
    }
    outcome.map_err(|refusal| refusal.error)
}

/// Makes an attempt by `round`. If the lock is held by a token of this client that is to be released, it sends that
/// release again, and makes the attempt once more. The release comes first, unless the two go over different
/// connections. It hands the lock to the first wait in the queue, if there is one.
pub(super) fn past_own_tokens(
    client: &ClientInner,
    request: &Request,
    by: Tick,
    mut round: impl FnMut() -> Result<Lease, Box<Refusal>>,
) -> Result<Lease, Box<Refusal>> {
    for _ in 0..MOST_REPETITIONS {
        let began = client.quorum.now();
        let refusal = match round() {
            Ok(lease) => return Ok(lease),
            Err(refusal) => refusal,
        };
        let holders = holders(&refusal);
        let is_holder = |id: &LockId| holders.contains(&random_part_of(id.as_str()));
        let is_own = !holders.is_empty() && client.leases.release_again(request.key.name(), is_holder);
        if !is_own || !is_time_for_another(&client.quorum, began, by) {
            return Err(refusal);
        }
    }
    round()
}

/// True if a further round ends before `by`: it takes about as long as that which began at this time. Far from the
/// servers, it would end without the answers.
fn is_time_for_another(quorum: &Quorum, began: Tick, by: Tick) -> bool {
    quorum.now().after(quorum.now().since(began)) < by
}

/// The random parts of the tokens that hold the lock. The servers return the first 80 bytes of a token. A semaphore
/// names one of its holders only. With several nodes, a reservation has the random part of a token that was released.
fn holders(refusal: &Refusal) -> Vec<&str> {
    let votes = refusal.ballot.iter().flat_map(|ballot| &ballot.votes);
    let holders =
        votes.filter_map(|vote| if let Vote::Taken { token, .. } = vote { Some(token.as_str()) } else { None });
    let is_reserved = |token: &&str| refusal.ballot.as_ref().is_some_and(|b| b.votes.len() > 1) && is_granted(token);
    holders.filter(|token| !is_reserved(token)).map(random_part_of).filter(|random| !random.is_empty()).collect()
}

/// The request of a second attempt at a semaphore, after the nodes lent different slots to the first attempt. It names
/// a slot that is free on a majority of the nodes, if there is one. Called after the slots of the first attempt were
/// released.
fn retry_on_common_slot(client: &ClientInner, request: &Request, refusal: &Refusal, by: Tick) -> Option<Request> {
    let (quorum, semaphore) = (&client.quorum, request.protocol.semaphore()?);
    let is_split = refusal.ballot.as_ref()?.votes.contains(&Vote::Void);
    if !is_split || !refusal.error.is_busy() || quorum.now() >= by {
        return None;
    }
    let held = quorum.round(&request.protocol.inspect(), by);
    let restricted = Protocol::Semaphore(semaphore.with_common_slot(&held.votes)?);
    Some(Request { protocol: Arc::new(restricted), ..request.clone() })
}

/// Makes one round with a new token, until `by` at the latest. If the attempt is not won, it is rolled back before the
/// error is returned.
pub(super) fn attempt(
    client: &Arc<ClientInner>,
    request: &Request,
    options: &AttemptOptions<'_>,
    by: Tick,
) -> Result<Lease, Box<Refusal>> {
    let quorum = &client.quorum;
    let attempt = Attempt::prepare(client, request)?;
    let is_fast_path = options.is_fast_path && !request.options.fenced;
    let is_set_nx = is_fast_path && may_be_set_nx(quorum, request);
    let call = attempt.call(is_fast_path, options.wait, options.take_over);
    let call = if is_set_nx { call.into_set_nx(attempt.lease) } else { call };
    let mut ballot = quorum.quick_round_of_voters(&call, by);
    if is_set_nx && !ballot.won() {
        quorum.uncontended.record(request.key.as_str(), false, quorum.now());
    }
    quorum.disqualify_restarted(&mut ballot.votes);
    let lent = request.protocol.semaphore().map(|lock| Arc::new(Protocol::Semaphore(lock.choose(&mut ballot.votes))));
    if let Err(error) = attempt.outcome("acquire", &ballot) {
        attempt.roll_back(&ballot, by);
        return Err(Box::new(Refusal { error, ballot: Some(ballot) }));
    }
    // A node that said yes has removed the wait from its queue.
    let may_be_queued = options.keeps_wait || ballot.duplicate || ballot.yes() < quorum.len();
    let wait = options.wait.filter(|_| may_be_queued).map(|wait| wait.id.into());
    Ok(attempt.hold(&ballot, wait, lent)?)
}

/// An attempt to take a lock with a new token. It is prepared, made in one round, and then becomes a lease or is rolled
/// back. `together` and `adopt` are made of attempts too.
pub(super) struct Attempt<'a> {
    pub(super) client: &'a Arc<ClientInner>,
    pub(super) request: &'a Request,
    pub(super) id: LockId,
    pub(super) lease: Duration,
}

impl<'a> Attempt<'a> {
    pub(super) fn prepare(client: &'a Arc<ClientInner>, request: &'a Request) -> Result<Attempt<'a>, Error> {
        let lease = LeaseInner::first_lease(&request.options);
        client.quorum.record_lease_length(lease);
        let id = client.tokens.fresh(request.options.holder_name.as_deref())?;
        Ok(Attempt { client, request, id, lease })
    }

    /// The call that asks for the lock. On the fast path it asks for nothing else.
    pub(super) fn call(
        &self,
        is_fast_path: bool,
        wait: Option<WaitArgs<'_>>,
        take_over: &[LockId],
    ) -> TypedCall<Acquired> {
        let Attempt { client, request, id, lease, .. } = self;
        let fence = request.options.fenced.then_some(0);
        let policy = match client.quorum.len() {
            1 if is_fast_path => QueuePolicy::FastPath,
            1 => QueuePolicy::First { lease: grant::lease(&client.quorum, request.options.lease) },
            _ => QueuePolicy::None,
        };
        request.protocol.acquire(&AcquireArgs { id, lease: *lease, fence, wait, policy, take_over })
    }

    /// Returns an error if the round was not won, or was won too late for its lease.
    pub(super) fn outcome(&self, op: &'static str, ballot: &Ballot<Acquired>) -> Result<(), Error> {
        let (quorum, key, lease) = (&self.client.quorum, self.request.key.as_str(), self.lease);
        quorum.no_conflict()?;
        if !ballot.won() {
            return Err(if ballot.is_answered() {
                Error::Busy {
                    key: key.to_owned(),
                    expires_in: ballot.expires_in(),
                    by_this_thread: false,
                    is_latch: false,
                }
            } else {
                quorum.failed(op, key, ballot)
            });
        }
        let now = quorum.now();
        if ballot.validity(lease, now) >= MIN_VALIDITY {
            return Ok(());
        }
        let took = now.since(ballot.started);
        let late = |i| quorum.node_error(i, format!("the attempt took {took:?}, too long for a lease of {lease:?}"));
        let nodes: Vec<NodeError> = (0..quorum.len()).map(late).collect();
        Err(Error::Unavailable { op, key: key.to_owned(), of: quorum.len(), nodes })
    }

    /// The lease of a round that was won. `wait` may still be in a server queue. `lent` is the protocol with the slots
    /// that the nodes lent.
    pub(super) fn hold(
        self,
        ballot: &Ballot<Acquired>,
        wait: Option<Arc<str>>,
        lent: Option<Arc<Protocol>>,
    ) -> Result<Lease, Error> {
        let Attempt { client, request, id, .. } = self;
        let mut start = client.start(request, id, wait);
        if let Some(lent) = lent {
            start.protocol = lent;
        }
        client.lease(&Arc::new(LeaseInner::won(start, ballot)))
    }

    /// The call that frees what the attempt may have set.
    pub(super) fn release(&self) -> TypedCall<Released> {
        let args = ReleaseArgs { id: Some(&self.id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        self.request.protocol.release(&args)
    }

    /// Rolls the attempt back. After `by`, the call is sent but its replies are not awaited: on each connection, it
    /// comes after the attempt.
    pub(super) fn roll_back(&self, ballot: &Ballot<Acquired>, by: Tick) {
        if self.client.quorum.roll_back(ballot, &self.release(), by) {
            self.add_pending(ballot);
        }
    }

    /// Records that the nodes that may have set the token may keep it, although the attempt was rolled back.
    pub(super) fn add_pending(&self, ballot: &Ballot<Acquired>) {
        let Attempt { client, request, id, lease, .. } = self;
        let ends = client.quorum.now().after(*lease);
        let may_have = ballot.may_be_set().collect();
        let protocol = request.protocol.clone();
        client.pending.add(PendingRelease::of_token(protocol, request.key.name(), id.clone(), ends, may_have));
    }
}

/// True if the fast path can be `SET NX`, which costs a server a third of the script.
///
/// The command takes a free lock even if others wait for it. It names only one key, so the server checks the user's
/// permission for no other. It is used only after a release of this client, by a script with all keys, found no wait.
fn may_be_set_nx(quorum: &Quorum, request: &Request) -> bool {
    let (settings, options) = (&quorum.settings, &request.options);
    // Only a mutex is a string, which `SET` can set.
    request.protocol.mutex().is_some()
        && options.min_hold.is_zero()
        && settings.min_replicas_ack == 0
        && settings.failover_guard != Some(true)
        && quorum.uncontended.is_uncontended(request.key.as_str(), quorum.now())
}
