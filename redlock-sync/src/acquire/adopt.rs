//! Taking over a lock that its holder has left held.

use std::sync::Arc;

use super::{judge, keep, observed, take_back};
use crate::error::{Error, LostReason};
use crate::handover::queue::Entered;
use crate::handover::rules::Chain;
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::node::Lane;
use crate::protocol::Request;
use crate::protocol::reply::{Acquired, Vote};
use crate::token::LockId;

/// Takes over a lock that its holder has left held, by its token. Nothing is waited for: if that token does not hold the lock, it is lost.
pub(crate) fn adopt(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    observed(client, request, || take_over(client, request, former))
}

fn take_over(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    let _competing = client.competes();
    client.ready()?;
    request.options.check(&client.quorum.limits)?;
    let (quorum, key, kind) = (&client.quorum, request.key.as_str(), request.protocol.kind());
    let Some(adopting) = request.protocol.adopting() else {
        return Err(Error::config(format!("lock `{key}` cannot be adopted: it is a {}", kind.name)));
    };
    let head = match client.queues.try_enter(request.key.name(), kind, &request.options) {
        Some(Entered::Head(head)) => Some(head),
        _ => None,
    };
    let by = quorum.round_deadline();
    let length = Core::first_lease(&request.options);
    quorum.note_lease(length);
    let (id, next) = client.tokens.fresh(request.options.owner.as_deref())?;
    let call = adopting.adopt(&id, length, former, request.options.fenced);
    let ballot = quorum.round(&call, Lane::Ordinary, by, &|_| true);
    if let Err(error) = judge(client, request, "adopt", &ballot, length) {
        take_back(client, request, &ballot, &id, length, by);
        let tally = ballot.tally();
        // The nodes that did not answer may have it still.
        if error.is_busy() && tally.yes + tally.failed >= quorum.need() {
            return Err(quorum.failed("adopt", key, &ballot));
        }
        let is_taken = |vote: &Vote<Acquired>| vote.is_definite_no() && *vote != Vote::Absent;
        let reason = if ballot.votes.iter().any(is_taken) { LostReason::Taken } else { LostReason::Deleted };
        return Err(if error.is_busy() { Error::Lost { key: key.to_owned(), reason } } else { error });
    }
    let missed: Vec<bool> = ballot.votes.iter().map(|vote| !vote.is_definite()).collect();
    if missed.contains(&true) {
        // It is freed there, and the next renewal sets ours: else that node would have the former token to its end.
        client.left_token(request, former, quorum.now().after(length), missed);
    }
    let start = client.start(request, id, Origin { wait: None, chain: Chain::default(), next: Some(next) });
    let lease = client.lease(&Arc::new(Core::won(start, &ballot)))?;
    if let Some(head) = head {
        keep(&lease, head);
    }
    Ok(lease)
}
