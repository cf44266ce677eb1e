//! The holder of a lock, as other clients see it.

use std::time::Duration;

use crate::quorum::{Ballot, Tally, Vote};
use crate::token::LockId;

/// The holder of a lock at this moment, as seen by a majority of the nodes.
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
            Vote::Taken { token, ttl, .. } => Some((token.clone(), ttl.unwrap_or(Duration::MAX))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Tick;

    fn seen(votes: &[Option<(&str, Option<u64>)>]) -> Option<(String, Option<u64>)> {
        let vote = |seen: &Option<(&str, Option<u64>)>| {
            let taken = |(token, ms): (&str, Option<u64>)| Vote::taken(token.to_owned(), ms.map(Duration::from_millis));
            seen.map_or(Vote::Absent, taken)
        };
        let ballot = Ballot { votes: votes.iter().map(vote).collect(), started: Tick::ZERO, ghost: false };
        let holder = Holder::of_majority(&ballot)?;
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap();
        Some((holder.id.as_str().to_owned(), holder.remaining.map(ms)))
    }

    #[test]
    fn a_holder_has_a_majority_and_for_as_long_as_it_keeps_one() {
        let (a, b) = (|ms| Some(("a", Some(ms))), |ms| Some(("b", Some(ms))));
        assert_eq!(seen(&[a(10)]), Some(("a".into(), Some(10))));
        assert_eq!(seen(&[b(90), a(10), a(30)]), Some(("a".into(), Some(10))));
        assert_eq!(seen(&[a(50), a(10), a(30)]), Some(("a".into(), Some(30))));
        assert_eq!(seen(&[a(50), a(10), None, None, a(30)]), Some(("a".into(), Some(10))));
        assert_eq!(seen(&[a(10), b(10), None]), None);
        assert_eq!(seen(&[None]), None);
    }

    #[test]
    fn a_key_without_end_has_no_remaining_time() {
        let endless = Some(("a", None));
        assert_eq!(seen(&[endless]), Some(("a".into(), None)));
        assert_eq!(seen(&[endless, Some(("a", Some(7))), None]), Some(("a".into(), Some(7))));
    }
}
