//! Locks that are taken in one round trip: one bare attempt for each, all in one packet.

use std::sync::Arc;
use std::time::Duration;

use super::{attempt_order, judge, keep, take_back};
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::queue::{Entered, QueueHead};
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::observer::Event;
use crate::protocol::reply::Acquired;
use crate::protocol::{AcquireArgs, Request, TypedCall};
use crate::quorum::Ballot;
use crate::token::{LockId, RandomPart};

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
/// behind that is taken back. None if the attempts cannot travel together, or if one of them would have to ask for more than the lock.
pub(crate) fn together(client: &Arc<ClientInner>, requests: &[Request]) -> Result<Vec<Lease>, Error> {
    let _competing = client.competes();
    client.ready()?;
    let (quorum, began) = (&client.quorum, client.quorum.now());
    requests.iter().try_for_each(|request| request.options.check(&quorum.limits))?;
    let is_bare = |request: &Request| !request.options.fenced && client.queues.orphans(request.key.name()).is_empty();
    if !requests.iter().all(is_bare) {
        return Ok(Vec::new());
    }
    let attempts = requests.iter().map_while(|request| enter(client, request, began)).collect::<Result<Vec<_>, _>>()?;
    let calls: Vec<_> = attempts.iter().map(|attempt| call(client, attempt)).collect();
    let by = quorum.round_deadline();
    let Some(mut ballots) = quorum.rounds(&calls, by) else { return Ok(Vec::new()) };
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
    for (attempt, ballot) in each {
        take_back(client, attempt.request, &ballot, &attempt.id, attempt.lease, by);
    }
    // All of them were made, so that each is either held or released.
    leases.into_iter().collect()
}

/// None for a lock that threads of this process want, or that is left to other programs for the moment.
fn enter<'a>(client: &ClientInner, request: &'a Request, now: Tick) -> Option<Result<Attempt<'a>, Error>> {
    let head = match client.queues.try_enter(request.key.name(), request.protocol.kind(), &request.options) {
        Some(Entered::Head(head)) if head.rest().until <= now => head,
        _ => return None,
    };
    let drawn = client.tokens.fresh(request.options.owner.as_deref());
    Some(drawn.map(|(id, next)| Attempt { request, head, id, next, lease: Core::first_lease(&request.options) }))
}

fn call(client: &ClientInner, attempt: &Attempt<'_>) -> TypedCall<Acquired> {
    let Attempt { request, id, lease, .. } = attempt;
    client.quorum.note_lease(*lease);
    let order = attempt_order(&client.quorum);
    request.protocol.acquire(&AcquireArgs { id, lease: *lease, fence: None, wait: None, order, orphans: &[] })
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
    let lease = client.lease(&Arc::new(Core::won(client.start(request, id, origin), ballot)))?;
    let lock = request.options.observed(request.key.as_str(), request.protocol.kind());
    client.quorum.limits.observers.tell(&Event::Wanted { lock });
    lease.acquired(began);
    keep(&lease, head);
    Ok(lease)
}
