//! Locks that are taken in one round trip: one attempt for each, all in one packet. Each asks for the lock, and for its fence if that is wanted.

use std::iter;
use std::sync::Arc;

use super::attempt::Attempt;
use super::keep;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::queue::{QueueHead, QueueOutcome};
use crate::handover::rules::Chain;
use crate::inner::ClientInner;
use crate::lease::Lease;
use crate::node::Priority;
use crate::observer::Event;
use crate::protocol::Request;
use crate::protocol::reply::{Acquired, Vote};
use crate::quorum::Ballot;

/// Takes as many of the locks as can be had at once, from the first on: up to one that is not free, or that threads of this process want. What it got
/// behind that is taken back.
pub(crate) fn together(client: &Arc<ClientInner>, requests: &[Request]) -> Result<Vec<Lease>, Error> {
    let _competing = client.competes();
    client.ready()?;
    let (quorum, began) = (&client.quorum, client.quorum.now());
    requests.iter().try_for_each(Request::not_cancelled)?;
    let heads: Vec<QueueHead<Lease>> = requests.iter().map_while(|request| enter(client, request, began)).collect();
    let attempts = iter::zip(requests, &heads).map(|(request, _)| Attempt::prepare(client, request));
    let attempts = attempts.collect::<Result<Vec<_>, _>>()?;
    let calls = attempts.iter().map(|attempt| attempt.call(!attempt.request.options.fenced, None, &[]));
    let calls = calls.collect::<Result<Vec<_>, _>>()?;
    let by = quorum.round_deadline();
    let mut ballots = quorum.rounds(&calls, Priority::Normal, by);
    for ballot in &mut ballots {
        quorum.disqualify_restarted(&mut ballot.votes);
    }
    let mut each = attempts.into_iter().zip(ballots).zip(heads).peekable();
    let mut leases = Vec::new();
    while let Some(((attempt, ballot), head)) =
        each.next_if(|((attempt, ballot), _)| attempt.judge("acquire", ballot).is_ok())
    {
        leases.push(hold(attempt, &ballot, head, began));
    }
    // After that, since it can take time: what is held is renewed meanwhile. No thread of this process tries before.
    let may_be_set =
        |((_, ballot), _): &((_, Ballot<_>), _)| ballot.duplicate || ballot.votes.iter().any(Vote::may_be_set);
    take_back(client, &each.filter(may_be_set).collect::<Vec<_>>(), by);
    // All of them were made, so that each is either held or released.
    leases.into_iter().collect()
}

/// Takes back what these may have set, in one packet too. Where that is not confirmed it is repeated in the background.
fn take_back(client: &ClientInner, attempts: &[((Attempt<'_>, Ballot<Acquired>), QueueHead<Lease>)], by: Tick) {
    let calls: Vec<_> = attempts.iter().map(|((attempt, _), _)| attempt.release()).collect();
    if calls.is_empty() {
        return;
    }
    for (((attempt, ballot), _), undone) in attempts.iter().zip(client.quorum.rounds(&calls, Priority::High, by)) {
        let votes = || ballot.votes.iter().zip(&undone.votes);
        let is_gone = votes().all(|(vote, said)| !vote.may_be_set() || said.is_yes() || said.is_definite_no());
        if ballot.may_linger() || undone.duplicate || !is_gone {
            attempt.left_token(ballot.votes.iter().map(Vote::may_be_set).collect());
        }
    }
}

/// None for a lock that threads of this process want, that is left to other programs for the moment, or that a token without a lease may hold.
fn enter(client: &ClientInner, request: &Request, now: Tick) -> Option<QueueHead<Lease>> {
    if !client.queues.leftover_tokens(request.key.name()).is_empty() {
        return None;
    }
    match client.queues.try_enqueue(request.key.name(), request.protocol.kind(), &request.options) {
        Some(QueueOutcome::Head(head)) if head.rest().until <= now => Some(head),
        _ => None,
    }
}

fn hold(attempt: Attempt<'_>, ballot: &Ballot<Acquired>, head: QueueHead<Lease>, began: Tick) -> Result<Lease, Error> {
    let (client, request) = (attempt.client, attempt.request);
    client.outages.end();
    let mut lease = attempt.hold(ballot, None, Chain::default(), None)?;
    let lock = request.options.observed(request.key.as_str(), request.protocol.shown());
    client.quorum.limits.observers.tell(&Event::Wanted { lock });
    lease.acquired(began);
    keep(&lease, head);
    Ok(lease)
}
