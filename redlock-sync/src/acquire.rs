//! Taking a lock, from top to bottom.
//!
//! 1. [`acquire`]: the entry point. A thread waits in the queue of its process until it is the head. Before that,
//!    [`join`] shares a lease that other threads of this process hold.
//! 2. [`AcquireLoop`]: **the loop** that alternates between attempts and waits for other processes ([`ServerWait`]).
//! 3. [`attempt`](mod@attempt): one round, its outcome, and its roll-back.
//! 4. [`together`]: takes several locks in one round trip.
//! 5. [`adopt`](mod@adopt): takes over a lock that a holder has left held.
//! 6. [`limit`]: decides when a call that waits gives up.
//! 7. [`claim`]: claims tasks of a queue, which works without the loop.

pub(crate) mod adopt;
mod attempt;
pub(crate) mod claim;
mod limit;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
pub(crate) mod together;

use std::sync::Arc;
use std::time::Duration;

use self::attempt::{AttemptOptions, attempt, only_attempt, past_own_tokens};
pub(crate) use self::limit::WaitLimit;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::grant;
use crate::handover::keys_without_ttl::KeysWithoutTtl;
use crate::handover::listener::Notification;
use crate::handover::rules::QUEUE_LIFETIME;
use crate::handover::thread_queue::{QueueHead, QueueOutcome};
use crate::handover::wait::ServerWait;
use crate::inner::ClientInner;
use crate::lease::{Lease, LeaseInner};
use crate::observer::{Event, LockKind};
use crate::options::{Kind, LockOptions, Mode};
use crate::protocol::{LeaseCalls, Request, WaitArgs};
use crate::quorum::Refusal;
use crate::token::LockId;

/// How long an acquire may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxWait {
    /// The call makes one attempt and does not wait.
    No,
    Until(Tick),
    /// The call waits until it holds the lock, the retry policy gives up, or the servers were unavailable for too long.
    Forever,
}

impl MaxWait {
    /// An attempt that begins at this time or later is the last one.
    pub(crate) fn until(self) -> Tick {
        match self {
            MaxWait::No => Tick::ZERO,
            MaxWait::Until(until) => until,
            MaxWait::Forever => Tick::NEVER,
        }
    }
}

/// Takes the lock.
pub(crate) fn acquire(client: &Arc<ClientInner>, request: &Request, wait: MaxWait) -> Result<Lease, Error> {
    observed(client, request, || enqueue_and_acquire(client, request, wait))
}

/// Reports the begin and the outcome of `call` to the observers.
fn observed(
    client: &ClientInner,
    request: &Request,
    call: impl FnOnce() -> Result<Lease, Error>,
) -> Result<Lease, Error> {
    let (observers, began) = (&client.quorum.settings.observers, client.quorum.now());
    let lock = request.options.observed(request.key.as_str(), request.protocol.shown());
    observers.notify(&Event::Wanted { lock });
    let mut outcome = call();
    match &mut outcome {
        Ok(lease) => lease.acquired(began),
        Err(error) if observers.are_there() => {
            let waited = client.quorum.now().since(began);
            observers.notify(&Event::NotAcquired { lock, waited, error });
        }
        Err(_) => {}
    }
    outcome
}

/// Waits in the queue of threads; the thread at its head runs the loop of attempts.
fn enqueue_and_acquire(client: &Arc<ClientInner>, request: &Request, wait: MaxWait) -> Result<Lease, Error> {
    let _call = client.begin_call();
    client.check_open()?;
    request.not_cancelled()?;
    let (queues, key, kind) = (&client.queues, request.key.name(), request.protocol.kind());
    if wait == MaxWait::No {
        let head = match queues.try_enqueue(key, kind, &request.options) {
            Some(QueueOutcome::Handed(lease)) if is_usable(&lease) => return Ok(lease),
            Some(QueueOutcome::Head(head)) => Some(head),
            _ => None,
        };
        let lease = only_attempt(client, request)?;
        if let Some(head) = head {
            keep_or_share_head(&lease, head);
        }
        return Ok(lease);
    }
    // If the retry policy limits the attempts, the wait in the queue takes no longer than those attempts would.
    let attempts_take = request.options.retry.total_time();
    let in_queue = attempts_take.map_or(wait.until(), |time| wait.until().min(client.quorum.now().after(time)));
    // If threads of this process hold or want a lock of another kind by this name, the servers report the conflict at
    // once. If the servers do not answer now, the attempt at the head of the queue asks them again.
    if queues.is_of_another_kind(key, kind) {
        match only_attempt(client, request) {
            Err(error) if error.is_busy() || error.is_unavailable() => {}
            outcome => return outcome,
        }
    }
    loop {
        match queues.enqueue(key, in_queue, kind, &request.options) {
            QueueOutcome::Head(head) => {
                let lease = AcquireLoop::new(client, request, wait).run()?;
                keep_or_share_head(&lease, head);
                return Ok(lease);
            }
            QueueOutcome::Handed(lease) => {
                // The lease can have expired during the hand-over, if this process was suspended.
                if is_usable(&lease) {
                    return Ok(lease);
                }
            }
            // A thread that never reached the head still makes one attempt. So its error says whether the lock is busy
            // or the servers are unavailable.
            QueueOutcome::Late => return request.not_cancelled().and_then(|()| only_attempt(client, request)),
            QueueOutcome::Closed => return Err(Error::Closed),
        }
    }
}

/// True if the lease that was handed to this thread is still held. If a shared lease is not, no further thread may join
/// it.
fn is_usable(lease: &Lease) -> bool {
    let inner = lease.inner();
    if inner.protocol().kind().mode != Mode::Joint {
        return lease.check().is_ok();
    }
    let is_fresh = inner.is_fresh(inner.quorum.now());
    if !is_fresh {
        inner.gate.close();
    }
    is_fresh
}

/// An exclusive holder stays the head of the queue while it holds the lock, so that it can hand the lock to the next
/// thread. A shared holder lets the next thread become the head at once.
fn keep_or_share_head(lease: &Lease, head: QueueHead<Lease>) {
    if lease.inner().protocol().kind().mode == Mode::Exclusive {
        lease.inner().keep_head(head);
    } else {
        lease.share(head);
    }
}

/// Joins a lease that threads of this process share, if there is one for these settings.
///
/// A join needs no I/O, except for a check from time to time whether another process waits for the lock. If one does,
/// or if the lease may end soon, no more threads join this lease.
pub(crate) fn join(client: &ClientInner, key: &str, kind: Kind, options: &LockOptions) -> Option<Lease> {
    if kind.mode != Mode::Joint || !options.is_plain() || options.cancel.is_cancelled() || client.check_open().is_err()
    {
        return None;
    }
    let (mut lease, is_check_due) = client.queues.join(key, kind, options)?;
    // The lease was held at that time, which is within this call.
    let now = lease.taken;
    if !lease.inner().is_fresh(now) || is_check_due && !lease.inner().no_writer_waits() {
        lease.inner().gate.close();
        return None;
    }
    // Only readers share a lease.
    client.quorum.settings.observers.notify(&Event::Wanted { lock: options.observed(key, LockKind::Read) });
    lease.acquired(now);
    Some(lease)
}

/// The one thread of this process that competes with other processes for a lock: the head of its queue.
struct AcquireLoop<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a Request,
    limit: WaitLimit<'a>,
    began: Tick,
    /// Number of attempts made.
    made: u32,
    wait: ServerWait<'a, Lease>,
    /// With several nodes: the beginning of the latest grant that this wait was notified of. Each later attempt names
    /// it, and a node that reserved the key under it then says yes. An outdated one does no harm.
    pending_grant: Option<LockId>,
    keys_without_ttl: KeysWithoutTtl,
}

impl<'a> AcquireLoop<'a> {
    fn new(client: &'a Arc<ClientInner>, request: &'a Request, limit: MaxWait) -> AcquireLoop<'a> {
        let limit = WaitLimit::new(client, request.key.as_str(), limit, request.options.unavailable_after);
        let wait = ServerWait::new(request, &client.quorum, &client.queues, &client.listener, limit.until);
        AcquireLoop {
            client,
            request,
            limit,
            began: client.quorum.now(),
            made: 0,
            wait,
            pending_grant: None,
            keys_without_ttl: KeysWithoutTtl::default(),
        }
    }

    /// Runs the loop. If the wait may still be in a server queue afterwards, it is removed there in the background.
    fn run(mut self) -> Result<Lease, Error> {
        let outcome = self.attempts();
        if let Some(wait) = self.wait.remaining() {
            self.client.remove_ended_wait(self.request, wait);
        }
        outcome
    }

    /// **This is the loop** of attempts, with a wait after each.
    fn attempts(&mut self) -> Result<Lease, Error> {
        loop {
            // Before the first attempt, `enqueue_and_acquire` has checked that the client is open.
            let open = if self.made > 0 { self.client.check_open() } else { Ok(()) };
            if let Err(error) = open.and_then(|()| self.request.not_cancelled()) {
                self.wait.leave_queues();
                return Err(error);
            }
            let tried_at = if self.made == 0 { self.began } else { self.client.quorum.now() };
            let retry = &self.request.options.retry;
            let is_last = tried_at >= self.limit.until || retry.is_exhausted(self.made.saturating_add(1));
            let id = self.wait.next_wait_id(self.made == 0, is_last)?;
            let refusal = match self.attempt(id.as_deref(), is_last, tried_at) {
                Ok(lease) => {
                    self.limit.answered();
                    return Ok(lease);
                }
                Err(refusal) => refusal,
            };
            self.made = self.made.saturating_add(1);
            let is_over = is_last || self.limit.is_over();
            if self.is_fatal(&refusal.error, tried_at) || is_over {
                // If every node has answered the last attempt, it has removed the wait from the server queues already.
                if !(is_last && refusal.error.is_busy() && refusal.is_clean()) {
                    self.wait.leave_queues();
                }
                return Err(refusal.error);
            }
            // The sleep ends at the deadline at the latest; the attempt after that is the last one.
            if let Some(notification) = self.wait.sleep(&refusal, self.made)
                && let Some(lease) = self.lease_from_grant(&notification)
            {
                return Ok(lease);
            }
        }
    }

    /// Makes one attempt, which enters the server queues under this id.
    fn attempt(&mut self, id: Option<&str>, is_last: bool, now: Tick) -> Result<Lease, Box<Refusal>> {
        let by = now.after(self.client.quorum.settings.node_timeout);
        past_own_tokens(self.client, self.request, by, || self.round(id, is_last, now, by))
    }

    /// One round of an attempt. Most locks are free, and the fast path costs the servers least. If it finds the lock
    /// held, the next attempt enters the server queues.
    fn round(&mut self, id: Option<&str>, is_last: bool, now: Tick, by: Tick) -> Result<Lease, Box<Refusal>> {
        let take_over = self.take_over(now);
        let stays = if is_last { Duration::ZERO } else { QUEUE_LIFETIME };
        let options = AttemptOptions {
            is_fast_path: self.made == 0 && id.is_none() && !is_last && self.wait.may_queue(),
            wait: id.map(|id| WaitArgs { id, stays }),
            keeps_wait: self.wait.evidence.wait_may_remain,
            take_over: &take_over,
        };
        let outcome = attempt(self.client, self.request, &options, by);
        match &outcome {
            Ok(lease) => {
                // With several clusters, one that is moving the slot refused this attempt. Its queue still has our
                // wait, and the later release cannot remove it. So remove it in the background.
                let inner = lease.inner();
                let wait_may_remain =
                    inner.acquire_may_run() || self.client.quorum.nodes.are_in_slots() && inner.keeps_wait();
                self.wait.evidence.wait_may_remain |= id.is_some() && wait_may_remain;
            }
            Err(refusal) => {
                if let Some(ballot) = &refusal.ballot {
                    self.wait.evidence.record(ballot, id.is_some());
                    self.keys_without_ttl.record(ballot);
                }
            }
        }
        outcome
    }

    /// What the next attempt may take the lock over from: the pending grant of this wait and, if the options allow it,
    /// the value of a key without a TTL.
    fn take_over(&self, now: Tick) -> Vec<LockId> {
        let options = &self.request.options;
        let keys_without_ttl =
            self.keys_without_ttl.unchanged_for(options.lease, now).filter(|_| options.take_over_keys_without_ttl);
        self.pending_grant.iter().cloned().chain(keys_without_ttl).collect()
    }

    /// True for an error after which no further attempt is made.
    fn is_fatal(&mut self, error: &Error, tried_at: Tick) -> bool {
        match error {
            Error::Busy { .. } => {
                self.limit.answered();
                false
            }
            Error::Unavailable { .. } => self.limit.unanswered(error, tried_at),
            _ => true,
        }
    }

    /// Returns the lease if the grant is already the lock (`handover/grant.rs`), and `None` if an
    /// attempt has to decide.
    fn lease_from_grant(&mut self, notification: &Notification) -> Option<Lease> {
        let (client, quorum) = (self.client, &self.client.quorum);
        let random = notification.random.as_deref()?;
        if quorum.len() > 1 {
            // Not the released token itself: the attempt may reach a node before the release does.
            self.pending_grant = Some(LockId::from_server(&format!("{random}:granted:")));
            return None;
        }
        // The token that the wait brought into the queue. Any other message is no grant to it.
        let (wait, own) = self.wait.queued.as_ref()?.id.as_ref()?.split_once(' ')?;
        if random != own {
            return None;
        }
        let since = grant::held_since(quorum, &self.request.options, notification, &self.wait.evidence)?;
        let start = client.start(self.request, LockId::granted(random, wait), None);
        let fence = Some(notification.fence).filter(|fence| *fence > 0);
        let inner = Arc::new(LeaseInner::granted(start, fence, since));
        if client.queues.is_closed() {
            drop(inner.release(quorum.settings.node_timeout, &client.pending));
            return None;
        }
        client.lease(&inner).ok()
    }
}
