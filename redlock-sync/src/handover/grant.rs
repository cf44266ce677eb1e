//! Between processes: a wait as the servers know it, what its attempts have learned of its place in their queues, and
//! when a grant to it is the lock as it stands.

use std::sync::Arc;
use std::time::Duration;

use super::listener::{self, Listener};
use super::rules::{MIN_RESERVATION, QUEUE_LIFETIME, grant_span};
use crate::clock::Tick;
use crate::error::Error;
use crate::node::Lane;
use crate::protocol::reply::{Acquired, QueuePlace, Released, Vote};
use crate::protocol::{Protocol, WaitEntry, millis};
use crate::quorum::{Ballot, Quorum};
use crate::token::random_part;

/// A wait for other processes.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) listener: listener::ListenerWait,
    /// Its name in the queues; none until its client listens, or is known not to.
    pub(crate) id: Option<Arc<str>>,
    /// The generation of the subscription that its last attempt knew of.
    known: u64,
}

impl Queued {
    pub(crate) fn begin(listener: &Arc<Listener>) -> Queued {
        Queued { listener: listener.begin(), id: None, known: 0 }
    }

    /// Its client cannot be told anything: the wait looks by itself.
    pub(crate) fn polls(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.starts_with('-'))
    }

    /// The id for the next attempt, if the wait can enter a queue now. Another than before where the client listens
    /// elsewhere. The attempts of one that polls are no further apart than `pause` (`lua/push.lua`).
    pub(crate) fn next_id(&mut self, pause: Duration) -> Result<Option<Arc<str>>, Error> {
        if let Some(subscription) = self.listener.subscription() {
            self.known = subscription.generation;
            if let Some(id) = self.id.as_ref().filter(|id| id.split('/').next() == Some(&*subscription.channel)) {
                return Ok(Some(Arc::clone(id)));
            }
            return Ok(Some(format!("{}/{}", subscription.channel, self.listener.number()).into()));
        }
        if self.listener.polls() && !self.polls() {
            return Ok(Some(format!("-{}:{}", millis(pause), random_part()?).into()));
        }
        Ok(self.id.clone())
    }

    /// What an attempt says of the wait.
    pub(crate) fn entry(id: &str, is_last: bool, waited: Duration) -> WaitEntry<'_> {
        WaitEntry { id, stays: if is_last { Duration::ZERO } else { QUEUE_LIFETIME }, waited }
    }

    /// The node where its client listens.
    pub(crate) fn node(&self) -> Option<usize> {
        self.listener.subscription().map(|subscription| subscription.node)
    }

    /// True if the client has subscribed anew since the last attempt: what was pushed in between is lost.
    pub(crate) fn is_outdated(&self) -> bool {
        self.listener.subscription().is_some_and(|subscription| subscription.generation != self.known)
    }
}

/// What is known of a wait's entry on one node. Pure.
///
/// A grant that is pushed to the wait is the lock as it stands only if the entry was there without a gap from the first
/// marking attempt until the grant took it, and if no attempt can still take the key from the grant.
#[derive(Debug)]
pub(crate) struct GrantEvidence {
    /// A grant to this wait was made after this moment: the start of the last attempt that found the entry.
    anchor: Option<Tick>,
    /// Each attempt was answered by a clean no.
    is_certain: bool,
    /// A copy of an attempt may enter the wait, or leave it there, when it is over.
    pub(crate) may_linger: bool,
}

impl GrantEvidence {
    pub(crate) fn new() -> GrantEvidence {
        GrantEvidence { anchor: None, is_certain: true, may_linger: false }
    }

    /// No grant to the wait is the lock as it stands.
    pub(crate) fn distrust(&mut self) {
        self.is_certain = false;
    }

    /// True if the wait may be in a queue.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.anchor.is_some() || self.may_linger
    }

    /// Since when a grant to the wait surely holds, if it surely does.
    pub(crate) fn grant_since(&self) -> Option<Tick> {
        self.anchor.filter(|_| self.is_certain)
    }

    /// Takes over what an attempt without success has learned. `marks` if it named the wait.
    pub(crate) fn record(&mut self, ballot: &Ballot<Acquired>, marks: bool) {
        let is_clean = |vote: &Vote<Acquired>| matches!(vote, Vote::Taken { .. });
        let is_unknown = ballot.may_linger();
        self.is_certain &= !ballot.duplicate && ballot.votes.iter().all(is_clean);
        self.may_linger |= marks && is_unknown;
        for vote in &ballot.votes {
            match vote {
                Vote::Taken { place: QueuePlace::Nowhere, .. } => {}
                Vote::Taken { place, .. } => {
                    // It entered a second time: the entry was taken out in between, by a grant of which this wait was not told.
                    self.is_certain &= (*place == QueuePlace::New) == self.anchor.is_none();
                    self.anchor = Some(ballot.started);
                }
                _ => {}
            }
        }
    }
}

/// For how long a lock is granted. Of several nodes each keeps it until the attempt that takes it.
pub(crate) fn span(quorum: &Quorum, lease: Duration) -> Duration {
    if quorum.len() == 1 { grant_span(lease) } else { MIN_RESERVATION.max(quorum.limits.node_timeout * 2) }
}

/// Takes a grant back that was reserved and of which no node could tell a waiter.
pub(crate) fn unreserve(quorum: &Quorum, protocol: &Protocol, ballot: &Ballot<Released>, random: &str, by: Tick) {
    let Some(lock) = protocol.mutex() else { return };
    let has = |released| ballot.votes.contains(&Vote::Yes(released));
    if has(Released::Reserved) && !has(Released::Granted) {
        quorum.round(&lock.unreserve(random), Lane::Reserved, by, &|_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::{Executed, Failure, FailureKind};

    fn no(place: QueuePlace) -> Vote<Acquired> {
        Vote::Taken { token: "t".into(), ttl: None, place }
    }

    fn after(attempts: &[(u64, Vote<Acquired>, bool)]) -> GrantEvidence {
        let mut evidence = GrantEvidence::new();
        for (at, vote, duplicate) in attempts {
            let started = Tick::from_nanos(*at);
            evidence.record(&Ballot { votes: vec![vote.clone()], started, duplicate: *duplicate }, true);
        }
        evidence
    }

    #[test]
    fn a_grant_is_the_lock_only_after_clean_noes_to_an_entry_that_was_never_missing() {
        use QueuePlace::{Kept, New, Nowhere};
        let since = |attempts: &[(u64, Vote<Acquired>, bool)]| after(attempts).grant_since();
        assert_eq!(since(&[]), None);
        assert_eq!(since(&[(1, no(Nowhere), false)]), None);
        assert_eq!(since(&[(1, no(New), false)]), Some(Tick::from_nanos(1)));
        assert_eq!(since(&[(1, no(New), false), (2, no(Kept), false)]), Some(Tick::from_nanos(2)));
        assert_eq!(since(&[(1, no(New), false), (2, no(New), false)]), None, "the entry was gone in between");
        assert_eq!(since(&[(1, no(Kept), false)]), None, "a copy has entered it");
        assert_eq!(since(&[(1, no(New), true)]), None, "a copy may still take the grant");
        assert_eq!(since(&[(1, Vote::Yes(Acquired::default()), false), (2, no(New), false)]), None, "it is taken back");
        let unknown =
            Vote::Failed(Failure { kind: FailureKind::TimedOut, executed: Executed::Maybe, message: String::new() });
        let lost = after(&[(1, unknown, false), (2, no(New), false)]);
        assert_eq!((lost.grant_since(), lost.may_linger), (None, true));
    }
}
