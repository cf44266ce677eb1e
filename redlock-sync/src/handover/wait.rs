//! How a queue head waits for other processes: when it enters the server queues, how long it sleeps, and how the wait
//! ends.

use std::sync::Arc;
use std::time::Duration;

use super::grant::{self, GrantEvidence};
use super::listener::{Awaits, Listener, ListenerWait, Notification, Woken};
use super::rules::{LONGEST_SLEEP, SET_CHECK_INTERVAL, SHORT_SLEEP};
use super::thread_queue::ThreadQueues;
use crate::clock::Tick;
use crate::error::Error;
use crate::options::{Mode, jittered};
use crate::protocol::reply::Vote;
use crate::protocol::{LeaseCalls, Next, ReleaseArgs, Request};
use crate::quorum::{Quorum, Refusal};
use crate::token::is_ours;

/// How long after the end of the holder's lease a wait tries again. A key lives through its last millisecond.
const END_SLACK: Duration = Duration::from_millis(2);
/// The longest pause between two attempts of a wait that polls.
const LONGEST_POLL: Duration = Duration::from_millis(100);
/// The longest time for which a wait that polls counts as alive without an attempt.
const LONGEST_MARK: Duration = Duration::from_secs(60);
/// The longest sleep with several nodes. If a release does not reach the node where the waits listen, no wait is
/// notified, and that node goes on naming the former holder. The other nodes know that the lock is free.
const LONGEST_ON_SEVERAL: Duration = Duration::from_secs(1);
/// The longest sleep in a cluster. A failover can lose the wait while the notification connection to another server
/// survives. If the lock then goes from holder to holder, the wait never sees it free.
const LONGEST_IN_CLUSTER: Duration = Duration::from_secs(2);
/// The longest sleep of a wait that listens on another node than most waits do.
const ASIDE: Duration = Duration::from_millis(250);
/// A waiter for a permit sleeps one lease at most, within these bounds. A permit reserved for a dead waiter just
/// expires, and no message is sent.
const LONGEST_FOR_PERMIT: (Duration, Duration) = (SHORT_SLEEP, Duration::from_secs(2 * 60));

/// The wait of one acquire for other processes. Most acquires need none.
pub(crate) struct ServerWait<'a, T> {
    request: &'a Request,
    quorum: &'a Quorum,
    queues: &'a ThreadQueues<T>,
    listener: &'a Arc<Listener>,
    until: Tick,
    pub(crate) queued: Option<ListenerWait>,
    pub(crate) evidence: GrantEvidence,
    /// True once the wait has planned a sleep until the end of the holder's lease. From then on, the client's call each
    /// second checks the lock ([`Awaits::Lock`]).
    has_checked: bool,
}

impl<'a, T> ServerWait<'a, T> {
    pub(crate) fn new(
        request: &'a Request,
        quorum: &'a Quorum,
        queues: &'a ThreadQueues<T>,
        listener: &'a Arc<Listener>,
        until: Tick,
    ) -> ServerWait<'a, T> {
        let evidence = GrantEvidence::new();
        ServerWait { request, quorum, queues, listener, until, queued: None, evidence, has_checked: false }
    }

    /// True if this wait may enter the server queues.
    pub(crate) fn may_queue(&self) -> bool {
        self.request.options.retry.max_attempts.is_none()
    }

    /// The id under which the next attempt enters the server queues; `None` if it does not.
    ///
    /// There is none before the subscription is confirmed (`ListenerWait::subscription`), so no wake-up is
    /// lost. A release that runs before the attempt leaves the key free or held anew, which the attempt sees. A release
    /// that runs after the attempt finds the wait, and a client that listens.
    pub(crate) fn next_wait_id(&mut self, is_first: bool, is_last: bool) -> Result<Option<Arc<str>>, Error> {
        if is_last && !self.evidence.may_be_queued() {
            return Ok(None);
        }
        let is_contended = || !self.quorum.uncontended.is_uncontended(self.request.key.as_str(), self.quorum.now());
        if is_first && !is_last && self.listener.listens() && self.may_queue() && is_contended() {
            self.begin();
        }
        let Some(queued) = &mut self.queued else { return Ok(None) };
        // Only a mutex is granted.
        let can_be_granted = self.request.protocol.mutex().is_some();
        let id = queued.next_id(longest_pause(self.quorum, self.request), can_be_granted)?;
        if queued.id != id && queued.id.is_some() {
            // The client now listens on another channel, so it does not receive a message to the old wait.
            self.leave_queues();
            self.evidence = GrantEvidence::new();
            self.evidence.is_certain = false;
        }
        if let Some(queued) = &mut self.queued {
            queued.id.clone_from(&id);
        }
        Ok(id)
    }

    pub(crate) fn begin(&mut self) -> &mut ListenerWait {
        self.queued.get_or_insert_with(|| self.listener.begin())
    }

    // --- the end of a wait -------------------------------------------------------------------------------------------

    /// Removes the wait from the server queues, and passes on what was granted to it. Otherwise the lock would stay
    /// granted to a wait that is over.
    pub(crate) fn leave_queues(&mut self) {
        let id = self.queued.as_ref().and_then(|queued| queued.id.clone());
        let (Some(id), true) = (id, self.evidence.may_be_queued()) else { return };
        let quorum = self.quorum;
        // After the end of a wait, the round under way and this one together get one node timeout.
        let by = quorum.round_deadline().min(self.until.after(quorum.settings.node_timeout));
        let grant = grant::next_grant(quorum, &self.request.options, false);
        let release = ReleaseArgs { id: None, keep: Duration::ZERO, wait: Some(&id), next: Next::First(grant) };
        let protocol = &*self.request.protocol;
        let ballot = quorum.round(&protocol.release(&release), by);
        if let Some((_, random)) = id.split_once(' ') {
            grant::unreserve(quorum, protocol, &ballot, random, by);
        }
        self.evidence.wait_may_remain |= ballot.duplicate || !ballot.votes.iter().all(Vote::is_definite);
    }

    /// The wait, which is over, if it may still be in a queue.
    pub(crate) fn remaining(&self) -> Option<&ListenerWait> {
        self.queued.as_ref().filter(|_| self.evidence.wait_may_remain)
    }

    // --- waiting -----------------------------------------------------------------------------------------------------

    /// Sleeps until a notification arrives or the next attempt is due, after `made` attempts. Returns the notification
    /// if the last holder granted the lock to this wait.
    pub(crate) fn sleep(&mut self, refusal: &Refusal, made: u32) -> Option<Notification> {
        if !self.may_queue() {
            let end = self.quorum.now().after(self.poll_pause(refusal, made)).min(self.until);
            self.queues.sleep_until(end, &self.request.options.cancel);
            return None;
        }
        let queued = self.begin();
        // After a fast path, the attempt that enters the queue follows at once, if the wait can enter a queue now.
        let was_fast_path = made == 1 && queued.id.is_none();
        let may_enter = queued.subscription().is_some() || queued.must_poll();
        if was_fast_path && refusal.error.is_busy() && (may_enter || refusal.is_queued()) || queued.is_outdated() {
            return None;
        }
        let time = self.sleep_time(refusal, made);
        self.sleep_until(refusal, self.quorum.now().after(time))
    }

    /// How long to wait for a notification.
    fn sleep_time(&mut self, refusal: &Refusal, made: u32) -> Duration {
        let quorum = self.quorum;
        let polls = || self.poll_pause(refusal, made);
        let (Some(ballot), Some(queued)) = (&refusal.ballot, &self.queued) else { return polls() };
        let node = queued.node();
        let vote = ballot.votes.get(node.unwrap_or(0));
        let Some(Vote::Taken { token, ttl, .. }) = vote.filter(|_| queued.id.is_some()) else { return polls() };
        // A foreign holder sends no notification. A key without a time-to-live that may be taken over ends without one.
        let is_without_ttl = ttl.is_none() && self.request.options.take_over_keys_without_ttl;
        if !token.is_empty() && !is_ours(token) || is_without_ttl || node.is_none() && !queued.polls() {
            return polls();
        }
        let longest = jittered(self.longest_sleep());
        let time = ttl.map_or(LONGEST_SLEEP, |left| left + END_SLACK).min(longest);
        match node {
            Some(_) if self.is_watched() && self.has_checked && time > SHORT_SLEEP => longest,
            None => time.min(jittered(LONGEST_POLL)),
            Some(node) if quorum.len() > 1 && quorum.notification_server().is_none_or(|(first, _)| first != node) => {
                time.min(ASIDE)
            }
            Some(_) if quorum.len() > 1 => time.min(jittered(LONGEST_ON_SEVERAL)),
            Some(_) if quorum.nodes.are_in_slots() => time.min(jittered(LONGEST_IN_CLUSTER)),
            Some(_) => {
                self.has_checked = true;
                time
            }
        }
    }

    /// The pause before the next attempt of a wait that polls. It ends when the holder's lease can end.
    fn poll_pause(&self, refusal: &Refusal, made: u32) -> Duration {
        let lease_end = refusal.expires_in().map_or(Duration::MAX, |left| left + END_SLACK);
        self.request.options.retry.pause(made, fastrand::f64()).min(lease_end)
    }

    /// True if the client learns by itself that the lock is free or that a holder has ended (`Awaits`). This needs one
    /// server. It does not hold for a reader, which a wait that no longer exists can keep out.
    fn is_watched(&self) -> bool {
        let is_one_server = self.quorum.len() == 1 && !self.quorum.nodes.are_in_slots();
        is_one_server && self.request.protocol.kind().mode != Mode::Joint
    }

    fn longest_sleep(&self) -> Duration {
        let (least, most) = LONGEST_FOR_PERMIT;
        if self.request.protocol.semaphore().is_some() {
            self.request.options.lease.clamp(least, most)
        } else {
            LONGEST_SLEEP
        }
    }

    fn sleep_until(&mut self, refusal: &Refusal, end: Tick) -> Option<Notification> {
        let mut end = end.min(self.until);
        let queued = self.queued.as_ref()?;
        queued.await_also(self.awaits(queued, refusal));
        loop {
            match queued.sleep(end, &self.request.options.cancel) {
                Woken::Timer | Woken::Connected | Woken::Closed => return None,
                Woken::Notified(grant) if grant.random.is_some() => return Some(grant),
                Woken::Notified(hint) => {
                    let delay = if hint.time.is_zero() { hint.time } else { hint.time + END_SLACK };
                    end = self.quorum.now().after(delay.min(jittered(LONGEST_SLEEP))).min(self.until);
                }
            }
        }
    }

    /// What ends the sleep besides a notification and the timer.
    fn awaits(&self, queued: &ListenerWait, refusal: &Refusal) -> Awaits {
        if refusal.error.is_unavailable() {
            return Awaits::Servers;
        }
        let Some(id) = queued.id.as_ref().filter(|_| queued.node().is_some()) else { return Awaits::Nothing };
        let key = Arc::clone(self.request.key.name());
        if self.request.protocol.mutex().is_some() {
            return Awaits::Lock { key, queue: self.request.key.queue().into(), wait: Arc::clone(id) };
        }
        let first_end =
            refusal.expires_in().map_or(SET_CHECK_INTERVAL, |left| (left + END_SLACK).min(SET_CHECK_INTERVAL));
        Awaits::Set(key, self.quorum.now().after(first_end))
    }
}

/// The longest time between two attempts of a wait that polls, as long as its process runs. Each attempt can take a
/// node timeout, and the thread of a busy machine wakes late. At most a minute, whatever the retry policy says: a wait
/// that is wrongly believed to be gone only loses its place.
fn longest_pause(quorum: &Quorum, request: &Request) -> Duration {
    let pause = LONGEST_POLL.max(request.options.retry.longest_pause());
    quorum.settings.two_rounds().saturating_add(pause.saturating_mul(3)).min(LONGEST_MARK)
}
