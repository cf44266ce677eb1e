//! The loop of attempts, and waiting for other processes in between.

use std::sync::Arc;
use std::time::Duration;

use super::envelope::Envelope;
use super::{Engine, Refusal, Request, Wait};
use crate::clock::Tick;
use crate::config::{LONGEST_NAP, RENEW_DIVISOR, drift, grant_span, jittered};
use crate::error::Error;
use crate::lease::{Core, Lease, Origin};
use crate::node::{Lane, Popped};
use crate::primitive::{GiveUp, Grant, Waiter};
use crate::quorum::{Ballot, Vote};
use crate::sabotage;
use crate::token::{LockId, granted_id, is_ours, waiter_id};

/// How much longer than its longest nap a waiter is marked as one.
const MARK_SLACK: Duration = Duration::from_secs(1);
/// How long after the holder's lease should have ended a waiter tries again.
const NAP_SLACK: Duration = Duration::from_millis(2);
/// An idle server looks for waits that have run out only so often.
const SERVER_TICK: Duration = Duration::from_millis(100);
/// As much of another's token as the acquire script tells.
const SEEN_BYTES: usize = 80;

/// A grant that is good for an ordinary attempt.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) id: LockId,
    /// Server time in ms at which the chain of grants began.
    pub(super) chain: u64,
}

/// How a wait for other processes ended.
pub(super) enum Woken {
    /// Try again.
    Up,
    /// Try again; the lock stands on a token which nobody holds.
    Ticket(Ticket),
    /// The last holder granted it.
    Granted(Lease),
}

/// The one thread of this process that competes with others for a lock: who is at the head of its line.
pub(super) struct Contender<'a> {
    engine: &'a Arc<Engine>,
    request: &'a Request,
    wait: Wait,
    until: Tick,
    made: u32,
    /// Under which the servers know that it waits. Most need none.
    waiter: Option<Arc<str>>,
    is_marked: bool,
    /// Kept once there is one: it does no harm, and the attempt with it may not get through.
    ticket: Option<Ticket>,
    unavailable_since: Option<Tick>,
}

impl<'a> Contender<'a> {
    pub(super) fn new(engine: &'a Arc<Engine>, request: &'a Request, wait: Wait, until: Tick) -> Contender<'a> {
        Contender {
            engine,
            request,
            wait,
            until,
            made: 0,
            waiter: None,
            is_marked: false,
            ticket: None,
            unavailable_since: None,
        }
    }

    /// **This is the loop**: attempts, and waiting in between.
    pub(super) fn compete(mut self) -> Result<Lease, Error> {
        loop {
            // The first time it was asked on entry.
            if self.made > 0
                && let Err(closed) = self.engine.ready()
            {
                self.leave();
                return Err(closed);
            }
            let tried_at = self.engine.quorum.now();
            let retry = &self.request.terms.retry;
            let is_last = tried_at >= self.until || retry.is_exhausted(self.made.saturating_add(1));
            // Most locks are free, and a bare attempt costs the servers least. If it fails, a full one follows at once, which marks the waiter and
            // takes what was granted to nobody. An only attempt is a full one, and where they are counted each is.
            let is_bare = self.made == 0 && !is_last && !retry.is_counted();
            let refusal = match self.attempt(is_bare, is_last) {
                Ok(lease) => {
                    self.engine.outage_is_over();
                    return Ok(lease);
                }
                Err(refusal) => refusal,
            };
            self.made = self.made.saturating_add(1);
            if self.ends_with(&refusal.error, tried_at) || is_last {
                return Err(refusal.error);
            }
            // An attempt that outlasted the deadline was the last one: another would take a node timeout more.
            if self.engine.quorum.now() >= self.until {
                self.leave();
                return Err(refusal.error);
            }
            if is_bare && refusal.error.is_busy() {
                continue;
            }
            // Ends at the deadline at the latest: the attempt after that is the last.
            match self.wait_for_others(&refusal) {
                Woken::Up => {}
                Woken::Ticket(ticket) => self.ticket = Some(ticket),
                Woken::Granted(lease) => return Ok(lease),
            }
        }
    }

    fn attempt(&mut self, is_bare: bool, is_last: bool) -> Result<Lease, Box<Refusal>> {
        let by = self.engine.quorum.round_deadline();
        if is_bare {
            return self.engine.attempt(self.request, None, None, by);
        }
        let waiter = match &self.waiter {
            Some(waiter) => Arc::clone(waiter),
            None => Arc::clone(self.waiter.insert(waiter_id()?)),
        };
        let stays = if is_last { Duration::ZERO } else { LONGEST_NAP + MARK_SLACK };
        let mark = Waiter { id: &waiter, stays, was_marked: self.is_marked };
        let outcome = self.engine.attempt(self.request, Some(mark), self.ticket.as_ref(), by);
        self.is_marked = !is_last;
        outcome
    }

    /// True for an error that no further attempt can help.
    pub(super) fn ends_with(&mut self, error: &Error, tried_at: Tick) -> bool {
        let engine = self.engine;
        match error {
            Error::Busy { .. } => {
                self.unavailable_since = None;
                engine.outage_is_over();
                false
            }
            Error::Unavailable { .. } => {
                // Asked each time, so that the outage is known to go on.
                let since = engine.outage_since(tried_at, error);
                let since = *self.unavailable_since.get_or_insert(since);
                let lasted = engine.quorum.now().since(since);
                self.wait == Wait::Forever && lasted >= engine.quorum.limits.unavailable_after
            }
            _ => true,
        }
    }

    /// Takes the mark off one who waits no more, and passes on what he was granted: else the next release would be for nobody.
    fn leave(&mut self) {
        // Without random numbers the mark ends by itself.
        let (Some(waiter), true, Ok(next)) = (&self.waiter, self.is_marked, granted_id()) else { return };
        let quorum = &self.engine.quorum;
        // Where it was granted nothing, there is nothing to compare with: a token that stands nowhere.
        let (id, chain) = self.ticket.take().map_or_else(|| (next.clone(), 0), |ticket| (ticket.id, ticket.chain));
        let span = grant_span(self.request.terms.lease);
        let grant = Grant { next: &next, span, chain, with_fence: self.request.terms.fenced };
        let give_up = GiveUp { id: &id, keep: Duration::ZERO, waiter: Some(waiter), grant: Some(grant) };
        // A wait that is over has one node timeout in all for what was under way and for this.
        let by = quorum.round_deadline().min(self.until.after(quorum.limits.node_timeout));
        quorum.round(&self.request.primitive.release(&give_up), Lane::Reserved, by, &|_| true);
    }

    /// Waits until the holder pushes, or until it is time to look again.
    fn wait_for_others(&self, refusal: &Refusal) -> Woken {
        let (quorum, retry) = (&self.engine.quorum, &self.request.terms.retry);
        let (Some(ballot), Some((node, wake_node))) = (&refusal.ballot, quorum.wake_node()) else {
            return self.pause(refusal);
        };
        let Some(Vote::Taken { token: seen, ttl }) = ballot.votes.get(node) else { return self.pause(refusal) };
        // A holder that does not push has to be polled; and where attempts are counted, the waits are those that were set.
        let is_pushed = is_ours(seen) && !retry.is_counted();
        let nap = if is_pushed {
            ttl.map_or(LONGEST_NAP, |left| (left + NAP_SLACK).min(jittered(LONGEST_NAP)))
        } else {
            retry.pause(self.made, fastrand::f64())
        };
        let left = self.until.since(quorum.now());
        // Shorter than the server can measure. What is pushed meanwhile stays in the list, and the next attempt takes it.
        if left <= SERVER_TICK || !is_pushed && nap < SERVER_TICK {
            return self.pause(refusal);
        }
        let nap = nap.min(left.saturating_sub(SERVER_TICK));
        // A server that hangs does not keep him beyond his deadline.
        let patience = (nap + 2 * SERVER_TICK + quorum.limits.node_timeout).min(left);
        match wake_node.pop(self.request.primitive.wake_list(), nap, patience) {
            Popped::Nothing => Woken::Up,
            Popped::Unavailable => self.pause(refusal),
            Popped::Pushed(bytes) => match Envelope::read(&bytes) {
                Some(Envelope { token: Some(id), fence, chain, span }) => {
                    self.open(ballot, seen, Ticket { id, chain }, fence, span)
                }
                Some(Envelope { token: None, span, .. }) => {
                    // A key lives through its last millisecond.
                    let rest = if span.is_zero() { span } else { span + NAP_SLACK };
                    self.engine.lines.rest(quorum.now().after(rest).min(self.until));
                    Woken::Up
                }
                None => Woken::Up,
            },
        }
    }

    /// Where nothing can be pushed: polling.
    fn pause(&self, refusal: &Refusal) -> Woken {
        let expires_in = if let Error::Busy { expires_in, .. } = refusal.error { expires_in } else { None };
        self.engine.lines.pause(&self.request.terms.retry, self.made, expires_in, self.until);
        Woken::Up
    }

    /// An envelope came. On one node the waiter that popped it holds the lock as it stands, if that is just what it asked for. Otherwise the
    /// token is a ticket for an ordinary attempt, which gets the lock with the waiter's own settings; and on several nodes two waiters
    /// could pop the same grant, so exclusion has to be plain Redlock.
    pub(super) fn open(&self, ballot: &Ballot, seen: &str, ticket: Ticket, fence: u64, span: Duration) -> Woken {
        let (engine, request, quorum) = (self.engine, self.request, &self.engine.quorum);
        let is_shared = quorum.len() > 1 && !sabotage::is("grant-as-token");
        // If the attempt saw another token, the grant was made after that attempt was sent, and lasts at least from then.
        let (token, since) = (ticket.id.as_str().as_bytes(), ballot.started);
        let is_new = seen.as_bytes() != token.get(..SEEN_BYTES).unwrap_or(token);
        let fits = is_new && self.is_as_asked_for(fence, span) && self.is_young(since);
        if is_shared || !(fits || sabotage::is("grant-keeps-settings")) {
            return Woken::Ticket(ticket);
        }
        let origin = Origin { waiter: self.waiter.clone(), chain: ticket.chain };
        let start = engine.start(request, ticket.id, origin);
        let core = Arc::new(Core::granted(start, fence, since, span));
        if engine.lines.is_closed() {
            core.release(quorum.limits.node_timeout);
            return Woken::Up;
        }
        match engine.lease(&core) {
            Ok(lease) => Woken::Granted(lease),
            Err(_) => Woken::Up,
        }
    }

    /// A grant has the lease that the last holder chose, a fence if that one asked for fences, and a token without a readable part; and what is counted from the acquisition, such as
    /// the longest hold, would begin before the wait.
    fn is_as_asked_for(&self, fence: u64, span: Duration) -> bool {
        let terms = &self.request.terms;
        let has_fence = fence > 0 || !terms.fenced;
        terms.is_plain() && terms.lock_id.is_none() && terms.lease == span && has_fence
    }

    /// A lease that began then is not due for renewal yet: as much is left of it as any holder may find.
    fn is_young(&self, since: Tick) -> bool {
        let (quorum, lease) = (&self.engine.quorum, self.request.terms.lease);
        let age = quorum.now().since(since);
        let left = lease.saturating_sub(drift(lease)).saturating_sub(age);
        age < lease / RENEW_DIVISOR && left >= quorum.limits.min_validity
    }
}
