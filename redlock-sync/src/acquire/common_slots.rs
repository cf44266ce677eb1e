//! A second attempt at a lock with slots, where the nodes lent different ones to the first.

use std::sync::Arc;

use crate::clock::Tick;
use crate::inner::ClientInner;
use crate::node::Priority;
use crate::protocol::reply::Vote;
use crate::protocol::{Protocol, Request};
use crate::quorum::Refusal;

/// The request of that attempt, if a majority of the nodes has the same slots free. Called when what the first was lent has been given back.
pub(super) fn retry_on_common_slots(
    client: &ClientInner,
    request: &Request,
    refusal: &Refusal,
    by: Tick,
) -> Option<Request> {
    let (quorum, semaphore) = (&client.quorum, request.protocol.semaphore()?);
    let is_split = refusal.ballot.as_ref()?.votes.contains(&Vote::Void);
    if !is_split || !refusal.error.is_busy() || quorum.now() >= by {
        return None;
    }
    let lent = quorum.round(&request.protocol.inspect(), Priority::Normal, by, &|_| true);
    let aimed = Protocol::Semaphore(semaphore.with_common_slots(&lent.votes)?);
    Some(Request { protocol: Arc::new(aimed), ..request.clone() })
}
