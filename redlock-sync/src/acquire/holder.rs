//! Who holds a lock, as others see it.

use std::time::Duration;

use crate::quorum::{Ballot, Tally, Vote};
use crate::token::LockId;

/// Who holds a lock right now, as seen by a majority of the nodes.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let order = locks.mutex("order:42");
/// assert!(order.inspect()?.is_none());
/// let guard = order.lock()?;
/// let holder = order.inspect()?.unwrap();
/// assert_eq!(&holder.id, guard.id());
/// assert!(holder.remaining.unwrap() <= std::time::Duration::from_secs(30));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's token; [`LockId::owner`] is its readable part. Of another program's token the whole may be unreadable.
    pub id: LockId,
    /// Time-to-live of the key; the holder may lengthen it. `None` if some program set the key without one.
    pub remaining: Option<Duration>,
}

impl Holder {
    pub(super) fn of_majority(ballot: &Ballot) -> Option<Holder> {
        let need = Tally::need(ballot.votes.len());
        let held = |vote: &Vote| match vote {
            Vote::Taken { token, ttl } => Some((token.clone(), ttl.unwrap_or(Duration::MAX))),
            _ => None,
        };
        let all: Vec<(String, Duration)> = ballot.votes.iter().filter_map(held).collect();
        let of_token = |token: &str| {
            let mut ttls: Vec<Duration> = all.iter().filter(|(t, _)| t == token).map(|(_, ttl)| *ttl).collect();
            ttls.sort_unstable_by(|a, b| b.cmp(a));
            ttls.get(need - 1).copied()
        };
        all.iter().find_map(|(token, _)| {
            let ttl = of_token(token)?;
            Some(Holder { id: LockId::from_server(token), remaining: (ttl != Duration::MAX).then_some(ttl) })
        })
    }
}
