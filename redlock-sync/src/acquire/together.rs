//! Takes several locks in one round trip: one attempt for each, all in one packet. Each attempt asks for the lock, and
//! for a fence if its options want one.

use std::iter;
use std::sync::Arc;

use super::attempt::Attempt;
use super::keep_or_share_head;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::thread_queue::{QueueHead, QueueOutcome};
use crate::inner::ClientInner;
use crate::lease::Lease;
use crate::observer::Event;
use crate::protocol::reply::Acquired;
use crate::protocol::{LeaseCalls, Request};
use crate::quorum::Ballot;

/// Takes the locks in their order, up to the first one that is not free or that other threads of this process want.
/// Later locks that the packet took as well are rolled back.
pub(crate) fn together(client: &Arc<ClientInner>, requests: &[Request]) -> Result<Vec<Lease>, Error> {
    let _call = client.begin_call();
    client.check_open()?;
    let (quorum, began) = (&client.quorum, client.quorum.now());
    requests.iter().try_for_each(Request::not_cancelled)?;
    let heads: Vec<QueueHead<Lease>> = requests.iter().map_while(|request| enqueue(client, request)).collect();
    let attempts = iter::zip(requests, &heads).map(|(request, _)| Attempt::prepare(client, request));
    let attempts = attempts.collect::<Result<Vec<_>, _>>()?;
    let call = |attempt: &Attempt<'_>| attempt.call(!attempt.request.options.fenced, None, &[]);
    let calls: Vec<_> = attempts.iter().map(call).collect();
    let by = quorum.round_deadline();
    let mut ballots = quorum.rounds(&calls, by);
    for ballot in &mut ballots {
        quorum.disqualify_restarted(&mut ballot.votes);
    }
    let mut each = attempts.into_iter().zip(ballots).zip(heads).peekable();
    let mut leases = Vec::new();
    while let Some(((attempt, ballot), head)) =
        each.next_if(|((attempt, ballot), _)| attempt.outcome("acquire", ballot).is_ok())
    {
        leases.push(hold_observed(attempt, &ballot, head, began));
    }
    // The roll-back comes last since it can take time; the leases above are renewed meanwhile. The heads are kept until
    // it ends, so no thread of this process makes an attempt before.
    let may_be_set = |((_, ballot), _): &((_, Ballot<_>), _)| ballot.may_be_set().any(|may| may);
    let (refused, heads): (Vec<_>, Vec<_>) = each.filter(may_be_set).unzip();
    roll_back(client, &refused, by);
    drop(heads);
    // All leases were made before an error is returned, so each lock is either held or released.
    leases.into_iter().collect()
}

/// Rolls these attempts back, also in one packet. A roll-back that is not confirmed is repeated in the background.
fn roll_back(client: &ClientInner, attempts: &[(Attempt<'_>, Ballot<Acquired>)], by: Tick) {
    let calls: Vec<_> = attempts.iter().map(|(attempt, _)| attempt.release()).collect();
    if calls.is_empty() {
        return;
    }
    for ((attempt, ballot), released) in attempts.iter().zip(client.quorum.rounds(&calls, by)) {
        let votes = || ballot.votes.iter().zip(&released.votes);
        let is_gone = votes().all(|(vote, release)| !vote.may_be_set() || release.is_yes() || release.is_definite_no());
        if ballot.token_may_remain() || released.duplicate || !is_gone {
            attempt.add_pending(ballot);
        }
    }
}

/// Enters the queue of threads and returns its head. `None` if other threads of this process want the lock.
fn enqueue(client: &ClientInner, request: &Request) -> Option<QueueHead<Lease>> {
    match client.queues.try_enqueue(request.key.name(), request.protocol.kind(), &request.options) {
        Some(QueueOutcome::Head(head)) => Some(head),
        _ => None,
    }
}

fn hold_observed(
    attempt: Attempt<'_>,
    ballot: &Ballot<Acquired>,
    head: QueueHead<Lease>,
    began: Tick,
) -> Result<Lease, Error> {
    let (client, request) = (attempt.client, attempt.request);
    client.outages.end(request.key.as_str());
    let mut lease = attempt.hold(ballot, None, None)?;
    let lock = request.options.observed(request.key.as_str(), request.protocol.shown());
    client.quorum.settings.observers.notify(&Event::Wanted { lock });
    lease.acquired(began);
    keep_or_share_head(&lease, head);
    Ok(lease)
}
