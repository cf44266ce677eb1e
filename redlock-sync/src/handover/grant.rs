//! The life of a grant: how a mutex goes from its holder to a wait of another process.
//!
//! 1. **A wait enters the queue** on the server, as `id random`. The random part is that of the token by which it will
//!    hold the lock, if the lock is granted to it ([`ServerWait`](super::wait::ServerWait)).
//! 2. **A release grants** ([`next_grant`], `lua/release.lua`): in one step it takes the first wait out of the queue,
//!    sets the key to `random:granted:id`, and notifies the client. So what is notified is true.
//! 3. **The wait is notified**, and `AcquireLoop::lease_from_grant` asks one question ([`held_since`]). With one
//!    server, the grant is the lock by this rule: *it counts from the start of the last attempt that found the lock
//!    held and left the wait in the queue.* It costs no round trip.
//! 4. **If that is not certain, the wait makes an attempt**, and the server gives it the key from its own grant. It is
//!    not certain if
//!    - an attempt of this wait may still take the key, or the wait may have been out of the queue ([`GrantEvidence`]);
//!    - the grant is not what the wait asked for: lease, fence, holder name, replicas;
//!    - less than a third of the lease is left;
//!    - a server has restarted lately, or the server is a cluster.
//! 5. **With several nodes** a grant is never the lock. Each node reserves the key for a short time, under the random
//!    part of the released token. The notified wait names it in its next attempt, and a majority decides. If no node
//!    reached a wait, the releasing client ends the reservations ([`unreserve`]).
//! 6. **A wait that gives up** leaves the queue by a release that names it. The same call passes on what was granted to
//!    it. A grant that comes later is given back (`ClientInner::add_late_grant`).
//!
//! Other kinds of locks are not granted: a notification says that an attempt may succeed now.

use std::time::Duration;

use super::listener::Notification;
use super::rules::{LONGEST_GRANT, MIN_RESERVATION};
use crate::clock::Tick;
use crate::options::{LockOptions, MIN_VALIDITY, RENEW_DIVISOR, drift};
use crate::protocol::reply::{Acquired, QueuePlace, Released, Vote};
use crate::protocol::{Grant, Protocol};
use crate::quorum::{Ballot, Quorum};

/// Evidence that a grant to this wait is the lock, without another attempt. Pure.
///
/// A grant of which the wait is notified is the lock only if two things are certain. First, the wait was in the queue
/// without a gap, from the first attempt that entered it until the grant removed it. Second, no attempt of this wait
/// can still take the key from the grant.
#[derive(Debug)]
pub(crate) struct GrantEvidence {
    /// The start of the last attempt that found the wait in the queue. A grant to this wait was made after this moment.
    last_queued: Option<Tick>,
    /// Every attempt was answered by a definite no. Otherwise no grant to the wait is the lock.
    pub(super) is_certain: bool,
    /// The client may have sent an attempt twice. A server can execute the second copy after the wait is over, and the
    /// queue then has the wait again.
    pub(crate) wait_may_remain: bool,
}

impl GrantEvidence {
    pub(crate) fn new() -> GrantEvidence {
        GrantEvidence { last_queued: None, is_certain: true, wait_may_remain: false }
    }

    /// True if the wait may be in a queue.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.last_queued.is_some() || self.wait_may_remain
    }

    /// A moment before which no grant to the wait was made; `None` if that is not certain.
    pub(crate) fn grant_since(&self) -> Option<Tick> {
        self.last_queued.filter(|_| self.is_certain)
    }

    /// Records what an attempt without success has learned. `named_wait`: the attempt named the wait.
    pub(crate) fn record(&mut self, ballot: &Ballot<Acquired>, named_wait: bool) {
        let is_clean = |vote: &Vote<Acquired>| matches!(vote, Vote::Taken { .. });
        let is_unknown = ballot.token_may_remain();
        self.is_certain &= !ballot.duplicate && ballot.votes.iter().all(is_clean);
        self.wait_may_remain |= named_wait && is_unknown;
        for vote in &ballot.votes {
            match vote {
                Vote::Taken { place: QueuePlace::Nowhere, .. } => {}
                Vote::Taken { place, .. } => {
                    // The first queued attempt gets `New`, and later ones get `Kept`. If a later one gets `New`, a
                    // grant has removed the wait, and its message was lost. If the first one gets `Kept`, the server
                    // has executed a copy of the call before.
                    self.is_certain &= (*place == QueuePlace::New) == self.last_queued.is_none();
                    self.last_queued = Some(ballot.started);
                }
                _ => {}
            }
        }
    }
}

/// The lease of a grant. With several nodes: how long each reserves the key for the next attempt of the wait.
pub(crate) fn lease(quorum: &Quorum, lease: Duration) -> Duration {
    if quorum.len() == 1 { lease.min(LONGEST_GRANT) } else { MIN_RESERVATION.max(quorum.settings.two_rounds()) }
}

/// What a release of a lock with these options grants to the next wait. `threads_wait`: threads of this process wait
/// for the lock too.
pub(crate) fn next_grant(quorum: &Quorum, options: &LockOptions, threads_wait: bool) -> Grant {
    let lease = lease(quorum, options.lease);
    Grant { lease, with_fence: options.fenced, several: quorum.len() > 1, threads_wait }
}

/// Since when the wait surely holds the lock by this grant of one node; `None` if an attempt has to decide.
pub(crate) fn held_since(
    quorum: &Quorum,
    options: &LockOptions,
    notification: &Notification,
    evidence: &GrantEvidence,
) -> Option<Tick> {
    // In a cluster, `PUBLISH` counts only the executing server's own subscribers, but all servers deliver it. So the
    // script may count 0 receivers and free the lock although this client got the message.
    if quorum.is_too_young() || quorum.nodes.are_in_slots() {
        return None;
    }
    let since = evidence.grant_since()?;
    (is_as_asked_for(quorum, options, notification) && is_young(quorum, options, since)).then_some(since)
}

/// True if the grant is what the wait would get by an attempt. A grant has the lease that the last holder chose, a
/// fence if that holder asked for fences, and a token without a readable part. Times that count from the acquisition,
/// such as the longest hold, would begin before the wait. The last holder has not asked replicas.
fn is_as_asked_for(quorum: &Quorum, options: &LockOptions, notification: &Notification) -> bool {
    let has_fence = notification.fence > 0 || !options.fenced;
    let is_for_replicas = quorum.settings.min_replicas_ack > 0;
    options.is_plain() && options.lease == notification.time && has_fence && !is_for_replicas
}

/// True if enough is left of a lease that began at `since` to renew it.
fn is_young(quorum: &Quorum, options: &LockOptions, since: Tick) -> bool {
    let lease = options.lease;
    let left = lease.saturating_sub(drift(lease)).saturating_sub(quorum.now().since(since));
    left >= (lease / RENEW_DIVISOR).max(MIN_VALIDITY)
}

/// Takes back a reservation if no node could notify a waiter.
pub(crate) fn unreserve(quorum: &Quorum, protocol: &Protocol, ballot: &Ballot<Released>, random: &str, by: Tick) {
    let Some(lock) = protocol.mutex() else { return };
    let has = |released| ballot.votes.contains(&Vote::Yes(released));
    if has(Released::Reserved) && !has(Released::Granted) {
        quorum.round(&lock.unreserve(random), by);
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
            evidence.record(&Ballot { votes: [vote.clone()].into(), started, duplicate: *duplicate }, true);
        }
        evidence
    }

    #[test]
    fn a_grant_is_the_lock_only_after_clean_noes_to_a_wait_that_was_never_missing() {
        use QueuePlace::{Kept, New, Nowhere};
        let since = |attempts: &[(u64, Vote<Acquired>, bool)]| after(attempts).grant_since();
        assert_eq!(since(&[]), None);
        assert_eq!(since(&[(1, no(Nowhere), false)]), None);
        assert_eq!(since(&[(1, no(New), false)]), Some(Tick::from_nanos(1)));
        assert_eq!(since(&[(1, no(New), false), (2, no(Kept), false)]), Some(Tick::from_nanos(2)));
        assert_eq!(since(&[(1, no(New), false), (2, no(New), false)]), None, "the wait was gone in between");
        assert_eq!(since(&[(1, no(Kept), false)]), None, "a copy has entered it");
        assert_eq!(since(&[(1, no(New), true)]), None, "a copy may still take the grant");
        assert_eq!(
            since(&[(1, Vote::Yes(Acquired::default()), false), (2, no(New), false)]),
            None,
            "it is rolled back"
        );
        let unknown =
            Vote::Failed(Failure { kind: FailureKind::TimedOut, executed: Executed::Maybe, message: String::new() });
        let lost = after(&[(1, unknown, false), (2, no(New), false)]);
        assert_eq!((lost.grant_since(), lost.wait_may_remain), (None, true));
    }
}
