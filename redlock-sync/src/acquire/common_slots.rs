//! A second attempt at a semaphore, after the nodes lent different slots to the first attempt.

use std::sync::Arc;

use crate::clock::Tick;
use crate::inner::ClientInner;
use crate::node::Priority;
use crate::protocol::reply::Vote;
use crate::protocol::{Protocol, Request};
use crate::quorum::Refusal;

/// The request of the second attempt, if the same slots are free on a majority of the nodes. Called after the slots of
/// the first attempt were released.
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
    let held = quorum.round(&request.protocol.inspect(), Priority::Normal, by, &|_| true);
    let restricted = Protocol::Semaphore(semaphore.with_common_slots(&held.votes)?);
    Some(Request { protocol: Arc::new(restricted), ..request.clone() })
}
