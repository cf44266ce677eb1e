//! Locks that are taken in one round trip: one attempt for each, all in one packet. Each asks for the lock, and for its fence if that is wanted.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::{first_order, judge};
use super::keep;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::queue::{Entered, QueueHead};
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::node::Lane;
use crate::observer::Event;
use crate::protocol::reply::{Acquired, Vote};
use crate::protocol::{AcquireArgs, Next, ReleaseArgs, Request, TypedCall};
use crate::quorum::Ballot;
use crate::token::{LockId, RandomPart, random_part};

/// One of the attempts.
struct Attempt<'a> {
    request: &'a Request,
    head: QueueHead<Lease>,
    id: LockId,
    /// Of the next token.
    next: RandomPart,
    lease: Duration,
}

/// Takes as many of the locks as can be had at once, from the first on: up to one that is not free, or that threads of this process want. What it got
/// behind that is taken back.
pub(crate) fn together(client: &Arc<ClientInner>, requests: &[Request]) -> Result<Vec<Lease>, Error> {
    let _competing = client.competes();
    client.ready()?;
    let (quorum, began) = (&client.quorum, client.quorum.now());
    requests
        .iter()
        .try_for_each(|request| request.options.check(&quorum.limits).and_then(|()| request.not_cancelled()))?;
    let attempts = requests.iter().map_while(|request| enter(client, request, began)).collect::<Result<Vec<_>, _>>()?;
    let calls = attempts.iter().map(|attempt| call(client, attempt)).collect::<Result<Vec<_>, _>>()?;
    let by = quorum.round_deadline();
    let mut ballots = quorum.rounds(&calls, Lane::Ordinary, by);
    for ballot in &mut ballots {
        quorum.disqualify_restarted(&mut ballot.votes);
    }
    let mut each = attempts.into_iter().zip(ballots).peekable();
    let is_won = |(attempt, ballot): &(Attempt<'_>, Ballot<_>)| {
        judge(client, attempt.request, "acquire", ballot, attempt.lease).is_ok()
    };
    let mut leases = Vec::new();
    while let Some((attempt, ballot)) = each.next_if(is_won) {
        leases.push(hold(client, attempt, &ballot, began));
    }
    // After that, since it can take time: what is held is renewed meanwhile.
    let may_be_set = |(_, ballot): &(_, Ballot<_>)| ballot.duplicate || ballot.votes.iter().any(Vote::may_be_set);
    take_back(client, &each.filter(may_be_set).collect::<Vec<_>>(), by);
    // All of them were made, so that each is either held or released.
    leases.into_iter().collect()
}

/// Takes back what these may have set, in one packet too. Where that is not confirmed it is repeated in the background.
fn take_back(client: &ClientInner, attempts: &[(Attempt<'_>, Ballot<Acquired>)], by: Tick) {
    let quorum = &client.quorum;
    let release = |(attempt, _): &(Attempt<'_>, _)| {
        let args = ReleaseArgs { id: Some(&attempt.id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        attempt.request.protocol.release(&args)
    };
    let calls: Vec<_> = attempts.iter().map(release).collect();
    if calls.is_empty() {
        return;
    }
    for ((attempt, ballot), undone) in attempts.iter().zip(quorum.rounds(&calls, Lane::Reserved, by)) {
        let votes = || ballot.votes.iter().zip(&undone.votes);
        let is_gone = votes().all(|(vote, said)| !vote.may_be_set() || said.is_yes() || said.is_definite_no());
        if ballot.may_linger() || undone.duplicate || !is_gone {
            let at = ballot.votes.iter().map(Vote::may_be_set).collect();
            client.left_token(attempt.request, &attempt.id, quorum.now().after(attempt.lease), at);
        }
    }
}

/// None for a lock that threads of this process want, that is left to other programs for the moment, or that a token without a lease may hold.
fn enter<'a>(client: &ClientInner, request: &'a Request, now: Tick) -> Option<Result<Attempt<'a>, Error>> {
    if !client.queues.orphans(request.key.name()).is_empty() {
        return None;
    }
    let head = match client.queues.try_enter(request.key.name(), request.protocol.kind(), &request.options) {
        Some(Entered::Head(head)) if head.rest().until <= now => head,
        _ => return None,
    };
    let drawn = client.tokens.fresh(request.options.holder_name.as_deref());
    Some(drawn.map(|(id, next)| Attempt { request, head, id, next, lease: Core::first_lease(&request.options) }))
}

fn call(client: &ClientInner, attempt: &Attempt<'_>) -> Result<TypedCall<Acquired>, Error> {
    let Attempt { request, id, lease, .. } = attempt;
    client.quorum.note_lease(*lease);
    let fence = request.options.fenced.then_some(0);
    let random = if fence.is_none() || client.quorum.len() > 1 { String::new() } else { random_part()? };
    let order = first_order(&client.quorum, request, fence.is_none(), &random);
    Ok(request.protocol.acquire(&AcquireArgs { id, lease: *lease, fence, wait: None, order, orphans: &[] }))
}

fn hold(
    client: &Arc<ClientInner>,
    attempt: Attempt<'_>,
    ballot: &Ballot<Acquired>,
    began: Tick,
) -> Result<Lease, Error> {
    let Attempt { request, head, id, next, .. } = attempt;
    client.outages.end();
    let origin = Origin { next: Some(next), ..Origin::default() };
    let mut lease = client.lease(&Arc::new(Core::won(client.start(request, id, origin), ballot)))?;
    let lock = request.options.observed(request.key.as_str(), request.protocol.shown());
    client.quorum.limits.observers.tell(&Event::Wanted { lock });
    lease.acquired(began);
    keep(&lease, head);
    Ok(lease)
}
