//! One wait in the server queues: its id, what its attempts have learned of its queue entry, and when a grant to it is
//! the lock without another attempt.

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

/// A wait in the queues on the servers.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) listener: listener::ListenerWait,
    /// Its id in the server queues. `None` until its client listens, or knows that it cannot listen.
    pub(crate) id: Option<Arc<str>>,
    /// The generation of the subscription when the last attempt was made.
    known: u64,
}

impl Queued {
    pub(crate) fn begin(listener: &Arc<Listener>) -> Queued {
        Queued { listener: listener.begin(), id: None, known: 0 }
    }

    /// True if the client cannot receive pushes, so that the wait polls. Ids that begin with `-` belong to such waits;
    /// the servers cannot notify them.
    pub(crate) fn polls(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.starts_with('-'))
    }

    /// The id for the next attempt; `None` if the wait cannot enter a queue yet. The id changes if the client now
    /// listens on another channel. If the wait polls, its attempts are at most `pause` apart (`lua/push.lua`).
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

    /// The arguments by which an attempt names the wait.
    pub(crate) fn entry(id: &str, is_last: bool, waited: Duration) -> WaitEntry<'_> {
        WaitEntry { id, stays: if is_last { Duration::ZERO } else { QUEUE_LIFETIME }, waited }
    }

    /// The node on which the client listens.
    pub(crate) fn node(&self) -> Option<usize> {
        self.listener.subscription().map(|subscription| subscription.node)
    }

    /// True if the client has subscribed again since the last attempt. Pushes from the time in between are lost.
    pub(crate) fn is_outdated(&self) -> bool {
        self.listener.subscription().is_some_and(|subscription| subscription.generation != self.known)
    }
}

/// Evidence that a grant to this wait is the lock, without another attempt. Pure.
///
/// A pushed grant is the lock only if two things are certain. First, the queue entry was there without a gap, from the
/// first attempt that entered it until the grant removed it. Second, no attempt of this wait can still take the key
/// from the grant.
#[derive(Debug)]
pub(crate) struct GrantEvidence {
    /// The start of the last attempt that found the entry. A grant to this wait was made after this moment.
    anchor: Option<Tick>,
    /// Every attempt was answered by a definite no.
    is_certain: bool,
    /// A copy of an attempt may still enter the wait into a queue, or keep it there, after the wait is over.
    pub(crate) may_linger: bool,
}

impl GrantEvidence {
    pub(crate) fn new() -> GrantEvidence {
        GrantEvidence { anchor: None, is_certain: true, may_linger: false }
    }

    /// Rules out that any grant to the wait is the lock.
    pub(crate) fn distrust(&mut self) {
        self.is_certain = false;
    }

    /// True if the wait may be in a queue.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.anchor.is_some() || self.may_linger
    }

    /// A moment before which no grant to the wait was made; `None` if that is not certain.
    pub(crate) fn grant_since(&self) -> Option<Tick> {
        self.anchor.filter(|_| self.is_certain)
    }

    /// Records what an attempt without success has learned. `marks` says whether the attempt named the wait.
    pub(crate) fn record(&mut self, ballot: &Ballot<Acquired>, marks: bool) {
        let is_clean = |vote: &Vote<Acquired>| matches!(vote, Vote::Taken { .. });
        let is_unknown = ballot.may_linger();
        self.is_certain &= !ballot.duplicate && ballot.votes.iter().all(is_clean);
        self.may_linger |= marks && is_unknown;
        for vote in &ballot.votes {
            match vote {
                Vote::Taken { place: QueuePlace::Nowhere, .. } => {}
                Vote::Taken { place, .. } => {
                    // The entry is new again, so it was removed in between: by a grant of which this wait was not
                    // notified.
                    self.is_certain &= (*place == QueuePlace::New) == self.anchor.is_none();
                    self.anchor = Some(ballot.started);
                }
                _ => {}
            }
        }
    }
}

/// How long a grant stays valid. With several nodes: how long each reserves the key for the waiter's next attempt.
pub(crate) fn span(quorum: &Quorum, lease: Duration) -> Duration {
    if quorum.len() == 1 { grant_span(lease) } else { MIN_RESERVATION.max(quorum.limits.node_timeout * 2) }
}

/// Takes back a reservation if no node could notify a waiter.
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
