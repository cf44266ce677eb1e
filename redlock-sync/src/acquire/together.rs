//! Locks that are taken in one round trip: one bare attempt for each, all in one packet.

use std::sync::Arc;

use super::{attempt_order, judge, keep, take_back};
use crate::error::Error;
use crate::handover::queue::Entered;
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::observer::Event;
use crate::protocol::{AcquireArgs, Request};
use crate::quorum::Ballot;

/// Takes as many of the locks as can be had at once, from the first on: up to one that is not free, or that threads of this process want. What it got
/// behind that is taken back. None if the attempts cannot travel together, or if one of them would have to ask for more than the lock.
pub(crate) fn together(client: &Arc<ClientInner>, requests: &[Request]) -> Result<Vec<Lease>, Error> {
    let _competing = client.competes();
    let began = client.quorum.now();
    client.ready()?;
    let (quorum, queues) = (&client.quorum, &client.queues);
    requests.iter().try_for_each(|request| request.options.check(&quorum.limits))?;
    let is_bare = |request: &Request| !request.options.fenced && queues.orphans(request.key.name()).is_empty();
    if !requests.iter().all(is_bare) {
        return Ok(Vec::new());
    }
    let now = quorum.now();
    // None that is left to other programs for the moment.
    let enter =
        |request: &Request| match queues.try_enter(request.key.name(), request.protocol.kind(), &request.options) {
            Some(Entered::Head(head)) if head.rest().until <= now => Some(head),
            _ => None,
        };
    let heads: Vec<_> = requests.iter().map_while(enter).collect();
    let requests = requests.get(..heads.len()).unwrap_or_default();
    let by = quorum.round_deadline();
    let draw = |request: &Request| client.tokens.fresh(request.options.owner.as_deref());
    let drawn = requests.iter().map(draw).collect::<Result<Vec<_>, _>>()?;
    let call = |(request, (id, _)): (&Request, &(_, _))| {
        let lease = Core::first_lease(&request.options);
        quorum.note_lease(lease);
        let order = attempt_order(quorum);
        request.protocol.acquire(&AcquireArgs { id, lease, fence: None, wait: None, order, orphans: &[] })
    };
    let calls: Vec<_> = requests.iter().zip(&drawn).map(call).collect();
    let Some(mut ballots) = quorum.rounds(&calls, by) else { return Ok(Vec::new()) };
    for ballot in &mut ballots {
        quorum.disqualify_restarted(&mut ballot.votes);
    }
    let is_won = |(request, ballot): (&Request, &Ballot<_>)| {
        judge(client, request, "acquire", ballot, Core::first_lease(&request.options)).is_ok()
    };
    let won = requests.iter().zip(&ballots).take_while(|each| is_won(*each)).count();
    if won > 0 {
        client.outages.end();
    }
    for ((request, (id, _)), ballot) in requests.iter().zip(&drawn).zip(&ballots).skip(won) {
        take_back(client, request, ballot, id, Core::first_lease(&request.options), by);
    }
    let each = requests.iter().zip(drawn).zip(ballots).zip(heads).take(won);
    let leases = each.map(|(((request, (id, next)), ballot), head)| {
        let origin = Origin { next: Some(next), ..Origin::default() };
        let lease = client.lease(&Arc::new(Core::won(client.start(request, id, origin), &ballot)))?;
        client
            .quorum
            .limits
            .observers
            .tell(&Event::Wanted { lock: request.options.observed(request.key.as_str(), request.protocol.kind()) });
        lease.acquired(began);
        keep(&lease, head);
        Ok(lease)
    });
    // All of them, so that each is either held or released.
    leases.collect::<Vec<Result<_, _>>>().into_iter().collect()
}
