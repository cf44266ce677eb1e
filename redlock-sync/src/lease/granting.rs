//! Giving a lock to the next wait, as far as it is the same for a holder that releases it and for a wait that is left.

use std::time::Duration;

use crate::clock::Tick;
use crate::config::{MIN_RESERVATION, grant_span};
use crate::node::Lane;
use crate::primitive::Primitive;
use crate::quorum::{Ballot, Quorum, Vote};

/// What a release says that granted the lock, and one that reserved it for a wait that it could not reach.
const GRANTED: Vote = Vote::Yes { fence: 2 };
const RESERVED: Vote = Vote::Yes { fence: 3 };

/// For how long a lock is granted. Of several nodes each keeps it until the attempt that takes it.
pub(crate) fn span(quorum: &Quorum, lease: Duration) -> Duration {
    if quorum.len() == 1 { grant_span(lease) } else { MIN_RESERVATION.max(quorum.limits.node_timeout * 2) }
}

/// Takes a grant back that was reserved and of which no node could tell a waiter.
pub(crate) fn unreserve(quorum: &Quorum, primitive: &dyn Primitive, ballot: &Ballot, random: &str, by: Tick) {
    let is_reserved = |i: usize| ballot.votes.get(i) == Some(&RESERVED);
    if (0..quorum.len()).any(is_reserved) && !ballot.votes.contains(&GRANTED) {
        quorum.round(&primitive.unreserve(random), Lane::Reserved, by, &|_| true);
    }
}
