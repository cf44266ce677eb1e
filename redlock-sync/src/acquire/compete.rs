//! The loop of attempts, and waiting for other processes in between.

use std::sync::{Arc, OnceLock};
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
    waiter: OnceLock<Arc<str>>,
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
            waiter: OnceLock::new(),
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

    fn waiter(&self) -> &Arc<str> {
        self.waiter.get_or_init(waiter_id)
    }

    fn attempt(&mut self, is_bare: bool, is_last: bool) -> Result<Lease, Box<Refusal>> {
        let by = self.engine.quorum.round_deadline();
        if is_bare {
            return self.engine.attempt(self.request, None, None, by);
        }
        let stays = if is_last { Duration::ZERO } else { LONGEST_NAP + MARK_SLACK };
        let mark = Waiter { id: self.waiter(), stays, was_marked: self.is_marked };
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
                let since = engine.outage_since(tried_at);
                let since = *self.unavailable_since.get_or_insert(since);
                let lasted = engine.quorum.now().since(since);
                self.wait == Wait::Forever && lasted >= engine.quorum.limits.unavailable_after
            }
            _ => true,
        }
    }

    /// Takes the mark off one who waits no more, and passes on what he was granted: else the next release would be for nobody.
    fn leave(&mut self) {
        if !self.is_marked {
            return;
        }
        let quorum = &self.engine.quorum;
        let (id, chain) = self.ticket.take().map_or_else(|| (granted_id(), 0), |ticket| (ticket.id, ticket.chain));
        let next = granted_id();
        let span = grant_span(self.request.terms.lease);
        let grant = Grant { next: &next, span, chain, with_fence: quorum.are_fences_wanted() };
        let give_up = GiveUp { id: &id, keep: Duration::ZERO, waiter: Some(self.waiter()), grant: Some(grant) };
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
        let retry_after = if let Error::Busy { retry_after, .. } = refusal.error { retry_after } else { None };
        self.engine.lines.pause(&self.request.terms.retry, self.made, retry_after, self.until);
        Woken::Up
    }

    /// An envelope came: with one node whoever pops it holds the lock. With more, or if the caller has an id of his own to show, it is a
    /// ticket for an ordinary attempt, and exclusion is plain Redlock: two waiters could pop the same grant on different nodes.
    pub(super) fn open(&self, ballot: &Ballot, seen: &str, ticket: Ticket, fence: u64, span: Duration) -> Woken {
        let (engine, request, quorum) = (self.engine, self.request, &self.engine.quorum);
        // A grant lasts as long as the last holder's terms say. Nothing shortens it, so it is a ticket as well for one whose hold shall end by itself
        // before that.
        let terms = &request.terms;
        let is_too_long = (!terms.renew || terms.max_hold.is_some()) && span > Core::first_lease(terms);
        let is_shared = quorum.len() > 1 && !sabotage::is("grant-as-token");
        if is_shared || terms.lock_id.is_some() || is_too_long {
            return Woken::Ticket(ticket);
        }
        let origin = Origin { waiter: Some(Arc::clone(self.waiter())), chain: ticket.chain };
        let start = engine.start(request, ticket.id.clone(), origin);
        // The attempt saw another token, so the grant was made after that attempt was sent, and lasts at least from then.
        let token = ticket.id.as_str().as_bytes();
        let is_new = seen.as_bytes() != token.get(..SEEN_BYTES).unwrap_or(token);
        let since = if is_new { ballot.started } else { Tick::ZERO };
        // What is counted from the acquisition, such as the longest hold, is counted from here: the attempt was before the wait.
        let core = Arc::new(Core::granted(start, fence, quorum.now(), since, span));
        if engine.lines.is_closed() {
            core.release(quorum.limits.node_timeout);
            return Woken::Up;
        }
        let valid = since.after(span).before(drift(span)).since(quorum.now());
        // What is left has to last until its first renewal.
        let enough = quorum.limits.min_validity.max(span / RENEW_DIVISOR);
        if valid < enough && !core.confirm() {
            return Woken::Ticket(ticket);
        }
        match engine.lease(&core) {
            Ok(lease) => Woken::Granted(lease),
            Err(_) => Woken::Up,
        }
    }
}
