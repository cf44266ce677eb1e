//! Taking over a lock that its holder has left held.

use std::sync::Arc;

use super::attempt::Attempt;
use super::{keep_or_share_head, observed};
use crate::error::{Error, LostReason};
use crate::handover::thread_queue::QueueOutcome;
use crate::inner::ClientInner;
use crate::lease::Lease;
use crate::protocol::reply::Vote;
use crate::protocol::{LeaseCalls, Request};
use crate::token::LockId;

/// Takes over a lock that its holder has left held under the token `former`. It does not wait: if `former` does not
/// hold the lock, the lock is lost. With several nodes the call is refused.
pub(crate) fn adopt(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    client.quorum.needs_one_server(&format!("adopt lock `{}`", request.key), "keep the guard in one process")?;
    observed(client, request, || take_over(client, request, former))
}

fn take_over(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    let _call = client.begin_call();
    client.check_open()?;
    let (key, kind) = (request.key.as_str(), request.protocol.kind());
    let Some(mutex) = request.protocol.mutex() else {
        return Err(Error::config(format!("lock `{key}` cannot be adopted: it is a {}", kind.name)));
    };
    let head = match client.queues.try_enqueue(request.key.name(), kind, &request.options) {
        Some(QueueOutcome::Head(head)) => Some(head),
        _ => None,
    };
    let attempt = Attempt::prepare(client, request)?;
    let by = client.quorum.round_deadline();
    let call = mutex.adopt(&attempt.id, attempt.lease, former, request.options.fenced);
    let mut ballot = client.quorum.round(&call, by);
    // A server that has restarted may have the former token again, although another holder has adopted it.
    client.quorum.disqualify_restarted(&mut ballot.votes);
    if let Err(error) = attempt.outcome("adopt", &ballot) {
        attempt.roll_back(&ballot, by);
        if !error.is_busy() {
            return Err(error);
        }
        let is_taken = ballot.votes.iter().any(|vote| matches!(vote, Vote::Taken { .. }));
        let reason = if is_taken { LostReason::Taken } else { LostReason::Deleted };
        return Err(Error::Lost { key: key.to_owned(), reason });
    }
    let lease = attempt.hold(&ballot, None, None)?;
    if let Some(head) = head {
        keep_or_share_head(&lease, head);
    }
    Ok(lease)
}
