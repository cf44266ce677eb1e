//! Taking a lock, from top to bottom.
//!
//! 1. [`acquire`]: the way in. A thread waits in the queue of its process; the head goes on.
//! 2. [`AcquireLoop`]: **the loop** of attempts, and of waits for other processes in between ([`ServerWait`]).
//! 3. [`attempt`](mod@attempt): one round, what it brought, and what is taken back.
//! 4. [`together`]: several locks in one round trip.
//! 5. [`common_slots`]: a second attempt at a semaphore, aimed at slots that a majority has free.
//! 6. [`adopt`](mod@adopt): a lock that a holder has left held.
//! 7. [`join`]: a part of a lease that threads of this process have together.
//! 8. [`limit`]: when a call that waits gives up.
//! 9. [`claim`]: tasks of a queue, which are claimed in another way.

pub(crate) mod adopt;
mod attempt;
pub(crate) mod claim;
mod common_slots;
mod joining;
mod limit;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
pub(crate) mod together;

use std::sync::Arc;

use self::attempt::{Try, attempt, only_attempt};
pub(crate) use self::joining::join;
pub(crate) use self::limit::WaitLimit;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::grant;
use crate::handover::keys_without_ttl::KeysWithoutTtl;
use crate::handover::listener::Pushed;
use crate::handover::queue::{QueueHead, QueueOutcome};
use crate::handover::queued::Queued;
use crate::handover::rules::Pauses;
use crate::handover::wait::{ServerWait, rest};
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::observer::Event;
use crate::options::Mode;
use crate::protocol::Request;
use crate::quorum::Refusal;
use crate::token::LockId;

/// How long an acquire may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxWait {
    /// One attempt.
    No,
    Until(Tick),
    /// Until the lock is held, the retry policy gives up, or the servers were unavailable for too long.
    Forever,
}

impl MaxWait {
    /// An attempt that begins later than this is the last one.
    fn until(self) -> Tick {
        match self {
            MaxWait::No => Tick::ZERO,
            MaxWait::Until(until) => until,
            MaxWait::Forever => Tick::NEVER,
        }
    }
}

/// Takes the lock.
pub(crate) fn acquire(client: &Arc<ClientInner>, request: &Request, wait: MaxWait) -> Result<Lease, Error> {
    observed(client, request, || take(client, request, wait))
}

/// Tells the observers how a call begins and ends.
fn observed(
    client: &ClientInner,
    request: &Request,
    call: impl FnOnce() -> Result<Lease, Error>,
) -> Result<Lease, Error> {
    let (observers, began) = (&client.quorum.limits.observers, client.quorum.now());
    let lock = request.options.observed(request.key.as_str(), request.protocol.shown());
    observers.tell(&Event::Wanted { lock });
    let mut outcome = call();
    match &mut outcome {
        Ok(lease) => lease.acquired(began),
        Err(error) if observers.are_there() => {
            let waited = client.quorum.now().since(began);
            observers.tell(&Event::NotAcquired { lock, waited, error });
        }
        Err(_) => {}
    }
    outcome
}

fn take(client: &Arc<ClientInner>, request: &Request, wait: MaxWait) -> Result<Lease, Error> {
    let _competing = client.competes();
    client.ready()?;
    request.not_cancelled()?;
    let (queues, key, kind) = (&client.queues, request.key.name(), request.protocol.kind());
    if wait == MaxWait::No {
        let head = match queues.try_enqueue(key, kind, &request.options) {
            Some(QueueOutcome::Handed(lease)) if is_good(&lease) => return Ok(lease),
            Some(QueueOutcome::Head(head)) => Some(head),
            _ => None,
        };
        let lease = only_attempt(client, request)?;
        if let Some(head) = head {
            keep(&lease, head);
        }
        return Ok(lease);
    }
    let until = wait.until();
    // Where attempts are counted, the wait in the queue takes no longer than they would.
    let attempts_take = request.options.retry.total_time();
    let in_queue = attempts_take.map_or(until, |time| until.min(client.quorum.now().after(time)));
    // Behind a lock of another kind there is nothing to wait for, if the servers have it. If they do not answer now, the
    // attempt at the head of the queue asks them again.
    if queues.is_of_another_kind(key, kind) {
        match only_attempt(client, request) {
            Err(error) if error.is_busy() || error.is_unavailable() => {}
            outcome => return outcome,
        }
    }
    // Not at the end of the wait: a look and the last attempt would outlast it by two node timeouts.
    let look = || {
        if in_queue.since(client.quorum.now()) > client.quorum.limits.node_timeout {
            client.look_after(key);
        }
    };
    loop {
        match queues.enqueue_and_check(key, in_queue, kind, &request.options, &look) {
            QueueOutcome::Head(head) => {
                let pause = head.rest();
                if pause.until > Tick::ZERO {
                    rest(&client.quorum, queues, request, pause.until.min(until));
                }
                let lease = AcquireLoop::new(client, request, wait, pause.pauses).run()?;
                keep(&lease, head);
                return Ok(lease);
            }
            QueueOutcome::Handed(lease) => {
                // It can have run out on the way, if this process did not run.
                if is_good(&lease) {
                    return Ok(lease);
                }
            }
            // A thread that never got to the head still makes one attempt, and so learns whether the lock is busy or Redis is away.
            QueueOutcome::Late => return request.not_cancelled().and_then(|()| only_attempt(client, request)),
            QueueOutcome::Closed => return Err(Error::Closed),
        }
    }
}

/// What was handed to this thread can be used. If it is shared and cannot, no other thread joins it.
fn is_good(lease: &Lease) -> bool {
    let core = lease.core();
    if core.protocol().kind().mode != Mode::Joint {
        return lease.check().is_ok();
    }
    let is_fresh = core.is_fresh(core.quorum.now());
    if !is_fresh {
        core.gate.close();
    }
    is_fresh
}

/// The holder stays the head while it holds the lock, so that it can hand it on; one that holds it beside others lets
/// the next thread in at once.
fn keep(lease: &Lease, head: QueueHead<Lease>) {
    if lease.core().protocol().kind().mode == Mode::Exclusive {
        lease.core().keep_head(head);
    } else {
        lease.share(head);
    }
}

/// The one thread of this process that competes with other processes for a lock: the head of its queue.
struct AcquireLoop<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a Request,
    limit: WaitLimit<'a>,
    began: Tick,
    made: u32,
    wait: ServerWait<'a, Lease>,
    /// The random part of a grant on several nodes. Kept once there is one: it does no harm, and the first attempt with
    /// it may not get through.
    pending_grant: Option<LockId>,
    keys_without_ttl: KeysWithoutTtl,
}

impl<'a> AcquireLoop<'a> {
    fn new(client: &'a Arc<ClientInner>, request: &'a Request, limit: MaxWait, pauses: Pauses) -> AcquireLoop<'a> {
        let limit = WaitLimit::new(client, limit);
        let wait = ServerWait::new(request, &client.quorum, &client.queues, &client.listener, limit.until, pauses);
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

    /// Until the lock is held, or the wait is over.
    fn run(mut self) -> Result<Lease, Error> {
        let outcome = self.attempts();
        if let Some((queued, id)) = self.wait.lingering() {
            self.client.left_wait(self.request, queued, id);
        }
        outcome
    }

    /// **This is the loop**: attempts, and waiting in between.
    fn attempts(&mut self) -> Result<Lease, Error> {
        loop {
            // The first time, `take` has asked whether the client is ready.
            let ready = if self.made > 0 { self.client.ready() } else { Ok(()) };
            if let Err(error) = ready.and_then(|()| self.request.not_cancelled()) {
                self.wait.give_up();
                return Err(error);
            }
            let tried_at = self.client.quorum.now();
            let retry = &self.request.options.retry;
            let is_last = tried_at >= self.limit.until || retry.is_exhausted(self.made.saturating_add(1));
            let (outcome, was_bare) = self.attempt(is_last, tried_at)?;
            let refusal = match outcome {
                Ok(lease) => {
                    self.limit.answered();
                    return Ok(lease);
                }
                Err(refusal) => refusal,
            };
            self.made = self.made.saturating_add(1);
            let is_over = is_last || self.limit.is_over();
            if self.ends_with(&refusal.error, tried_at) || is_over {
                // The last attempt leaves the queue, if it is answered.
                if !(is_last && refusal.error.is_busy() && refusal.is_clean()) {
                    self.wait.give_up();
                }
                return Err(refusal.error);
            }
            // Ends at the deadline at the latest: the attempt after that is the last.
            if let Some(pushed) = self.wait.sleep(&refusal, was_bare, self.made)
                && let Some(lease) = self.open(&pushed)
            {
                return Ok(lease);
            }
        }
    }

    /// One attempt; whether it was bare. Most locks are free, and a bare one costs the servers least. Where it finds
    /// others, the next one enters the queue.
    fn attempt(&mut self, is_last: bool, now: Tick) -> Result<(Result<Lease, Box<Refusal>>, bool), Error> {
        let by = now.after(self.client.quorum.limits.node_timeout);
        let id = self.wait.entry(self.made == 0, is_last)?;
        let is_bare = self.made == 0 && id.is_none() && !is_last && !self.request.options.retry.is_counted();
        let leftover_tokens = self.more_leftover_tokens(now);
        let what = Try {
            is_bare,
            entry: id.as_deref().map(|id| Queued::entry(id, is_last, now.since(self.began))),
            keeps_wait: self.wait.evidence.may_linger,
            leftover_tokens: &leftover_tokens,
            chain: self.wait.chain,
        };
        let outcome = attempt(self.client, self.request, &what, by);
        match &outcome {
            Ok(lease) => {
                self.wait.evidence.may_linger |= id.is_some() && lease.core().may_linger();
            }
            Err(refusal) => {
                if let Some(ballot) = &refusal.ballot {
                    self.wait.evidence.record(ballot, id.is_some());
                    self.keys_without_ttl.record(ballot);
                }
            }
        }
        Ok((outcome, is_bare))
    }

    /// What the next attempt may take the lock from: a grant to this wait, and keys that no program looks after.
    fn more_leftover_tokens(&self, now: Tick) -> Vec<LockId> {
        let options = &self.request.options;
        let keys_without_ttl =
            self.keys_without_ttl.unchanged_for(options.lease, now).filter(|_| options.take_over_keys_without_ttl);
        self.pending_grant.iter().cloned().chain(keys_without_ttl).collect()
    }

    /// True for an error that no further attempt can help.
    fn ends_with(&mut self, error: &Error, tried_at: Tick) -> bool {
        match error {
            Error::Busy { .. } => {
                self.limit.answered();
                false
            }
            Error::Unavailable { .. } => self.limit.unanswered(error, tried_at),
            _ => true,
        }
    }

    /// The lease of a grant that is the lock (`handover/grant.rs` has the table). `None` if an attempt has to decide.
    fn open(&mut self, pushed: &Pushed) -> Option<Lease> {
        let (client, quorum) = (self.client, &self.client.quorum);
        let random = pushed.random.as_deref()?;
        if quorum.len() > 1 {
            self.pending_grant = Some(LockId::from_server(random));
            return None;
        }
        let wait = self.wait.queued.as_ref()?.id.as_ref()?;
        let since = grant::held_since(quorum, &self.request.options, pushed, &self.wait.evidence)?;
        let origin = Origin { wait: None, chain: self.wait.chain, next: None };
        let start = client.start(self.request, LockId::granted(random, wait), origin);
        let fence = Some(pushed.fence).filter(|fence| *fence > 0);
        let core = Arc::new(Core::granted(start, fence, since, pushed.span));
        if client.queues.is_closed() {
            core.release(quorum.limits.node_timeout);
            return None;
        }
        client.lease(&core).ok()
    }
}
