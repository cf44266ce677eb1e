//! The loop of attempts, and waiting for other processes in between.

use std::sync::Arc;
use std::time::Duration;

use super::queued::{Queued, Standing};
use super::{Engine, Refusal, Request, Try, Wait};
use crate::clock::Tick;
use crate::config::{LONG_PAUSE, LONGEST_NAP, LOOK, Pauses, RENEW_DIVISOR, SHORT_NAP, drift, jittered};
use crate::ear::{Awaits, Pushed, Woken};
use crate::error::Error;
use crate::lease::{Core, Lease, Origin, granting};
use crate::node::Lane;
use crate::primitive::{Chain, GiveUp, Next};
use crate::quorum::Vote;
use crate::token::{LockId, is_ours, random_part};

/// How long after the holder's lease should have ended a wait tries again: a key lives through its last millisecond.
const NAP_SLACK: Duration = Duration::from_millis(2);
/// The longest pause between two attempts of a wait that is told nothing.
const LONGEST_POLL: Duration = Duration::from_millis(100);
/// As that for one that listens on another node than the others.
const ASIDE: Duration = Duration::from_millis(250);

/// How a wait for other processes ended.
pub(super) enum Outcome {
    /// Try again.
    Up,
    /// The last holder granted it.
    Granted(Lease),
}

/// The one thread of this process that competes with other processes for a lock: the head of its line.
pub(super) struct Contender<'a> {
    engine: &'a Arc<Engine>,
    request: &'a Request,
    wait: Wait,
    until: Tick,
    made: u32,
    /// The wait for other processes; most acquires need none.
    queued: Option<Queued>,
    standing: Standing,
    /// The random part of a grant on several nodes. Kept once there is one: it does no harm, and the first attempt with it may not get through.
    ticket: Option<LockId>,
    chain: Chain,
    /// It has slept, or sleeps, until the holder's lease should have ended. If the holder has renewed the lease, later looks are left to the client
    /// ([`Awaits::Lock`]).
    has_looked: bool,
    unavailable_since: Option<Tick>,
}

impl<'a> Contender<'a> {
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        request: &'a Request,
        wait: Wait,
        until: Tick,
        pauses: Pauses,
    ) -> Contender<'a> {
        Contender {
            engine,
            request,
            wait,
            until,
            made: 0,
            queued: None,
            standing: Standing::new(),
            ticket: None,
            chain: Chain { began: None, pauses },
            has_looked: false,
            unavailable_since: None,
        }
    }

    /// As after an attempt that entered the wait under this id.
    #[cfg(test)]
    pub(super) fn enter_as(&mut self, id: &str, ballot: &crate::quorum::Ballot) {
        self.standing.note(ballot, true);
        self.queued.get_or_insert_with(|| Queued::begin(&self.engine.ear)).id = Some(id.into());
    }

    /// Until the lock is held, or the wait is over.
    pub(super) fn compete(mut self) -> Result<Lease, Error> {
        let outcome = self.attempts();
        self.haunt();
        outcome
    }

    /// **This is the loop**: attempts, and waiting in between.
    fn attempts(&mut self) -> Result<Lease, Error> {
        loop {
            // The first time, `acquire` has asked.
            if self.made > 0
                && let Err(closed) = self.engine.ready()
            {
                self.leave();
                return Err(closed);
            }
            let tried_at = self.engine.quorum.now();
            let retry = &self.request.terms.retry;
            let is_last = tried_at >= self.until || retry.is_exhausted(self.made.saturating_add(1));
            let (outcome, is_bare) = self.attempt(is_last)?;
            let refusal = match outcome {
                Ok(lease) => {
                    self.engine.outage_is_over();
                    return Ok(lease);
                }
                Err(refusal) => refusal,
            };
            self.made = self.made.saturating_add(1);
            // An attempt that outlasted the deadline was the last one: another would take a node timeout more.
            let is_over = is_last || self.engine.quorum.now() >= self.until;
            if self.ends_with(&refusal.error, tried_at) || is_over {
                // The last attempt leaves the queue, if it is answered.
                if !(is_last && refusal.error.is_busy() && refusal.is_clean()) {
                    self.leave();
                }
                return Err(refusal.error);
            }
            // Ends at the deadline at the latest: the attempt after that is the last.
            if let Outcome::Granted(lease) = self.wait_for_others(&refusal, is_bare) {
                return Ok(lease);
            }
        }
    }

    /// One attempt; whether it was bare. Most locks are free, and a bare one costs the servers least. Where it finds others, the next one
    /// enters the queue.
    fn attempt(&mut self, is_last: bool) -> Result<(Result<Lease, Box<Refusal>>, bool), Error> {
        let by = self.engine.quorum.round_deadline();
        let id = self.entry(is_last)?;
        let is_bare = self.made == 0 && id.is_none() && !is_last && !self.request.terms.retry.is_counted();
        let attempt = Try {
            is_bare,
            entry: id.as_deref().map(|id| Queued::entry(id, is_last)),
            keeps_wait: self.standing.is_haunted,
            ticket: self.ticket.as_ref(),
            chain: self.chain,
        };
        let outcome = self.engine.attempt(self.request, &attempt, by);
        match &outcome {
            Ok(lease) => self.standing.is_haunted |= id.is_some() && lease.core().is_haunted(),
            Err(refusal) => {
                if let Some(ballot) = &refusal.ballot {
                    self.standing.note(ballot, id.is_some());
                }
            }
        }
        Ok((outcome, is_bare))
    }

    /// The id under which the next attempt enters the queue, if it does.
    ///
    /// There is none before the subscription is confirmed (`Ear::place`), so no wake-up is lost: a release that is executed before the attempt leaves the
    /// key free or held anew, which the attempt sees; one that is executed after it finds the entry, and a listening client.
    fn entry(&mut self, is_last: bool) -> Result<Option<Arc<str>>, Error> {
        if is_last && !self.standing.may_be_queued() {
            return Ok(None);
        }
        if self.made == 0 && !is_last && self.engine.ear.listens() && !self.request.terms.retry.is_counted() {
            self.queued.get_or_insert_with(|| Queued::begin(&self.engine.ear));
        }
        let Some(queued) = &mut self.queued else { return Ok(None) };
        let id = queued.next_id()?;
        if queued.id != id && queued.id.is_some() {
            // The client listens on another channel now: no message to the old entry is heard.
            self.leave();
            self.standing = Standing::new();
            self.standing.distrust();
        }
        if let Some(queued) = &mut self.queued {
            queued.id.clone_from(&id);
        }
        Ok(id)
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

    // --- the end of a wait --------------------------------------------------------------------------------------------

    /// Takes the wait out of the queues, and passes on what it was granted: else the lock would stay granted to a wait that is over.
    fn leave(&mut self) {
        let id = self.queued.as_ref().and_then(|queued| queued.id.clone());
        // Without random numbers the grant ends by itself.
        let (Some(id), true, Ok(random)) = (id, self.standing.may_be_queued(), random_part()) else { return };
        let quorum = &self.engine.quorum;
        // A wait that is over has one node timeout in all for what was under way and for this.
        let by = quorum.round_deadline().min(self.until.after(quorum.limits.node_timeout));
        let grant = self.engine.grant(self.request, &random, &self.chain);
        let give_up = GiveUp { id: None, keep: Duration::ZERO, wait: Some(&id), next: Next::First(grant) };
        let primitive = &*self.request.primitive;
        let ballot = quorum.round(&primitive.release(&give_up), Lane::Reserved, by, &|_| true);
        granting::unreserve(quorum, primitive, &ballot, &random, by);
        self.standing.is_haunted |= ballot.ghost || !ballot.votes.iter().all(|v| v.is_yes() || v.is_definite_no());
    }

    /// Gives back what may be granted to the wait although it is over: what was granted by now, as soon as the servers answer; what a late attempt
    /// brings, when it is pushed.
    fn haunt(&self) {
        let Some(queued) = self.queued.as_ref().filter(|_| self.standing.is_haunted) else { return };
        let Some(id) = queued.id.clone() else { return };
        self.engine.leave_later(self.request, &id);
        if queued.polls() {
            return;
        }
        let (engine, request) = (Arc::downgrade(self.engine), self.request.clone());
        let give_back = move |pushed: Pushed| {
            if let (Some(engine), Some(random)) = (engine.upgrade(), &pushed.random) {
                engine.give_back(&request, LockId::granted(random, &id));
            }
        };
        self.engine.ear.haunt(queued.ear.number(), Box::new(give_back));
    }

    // --- waiting ------------------------------------------------------------------------------------------------------

    /// Waits until the holder pushes, or until it is time to look again.
    fn wait_for_others(&mut self, refusal: &Refusal, was_bare: bool) -> Outcome {
        let retry = &self.request.terms.retry;
        if retry.is_counted() {
            let expires_in = refusal.expires_in();
            self.engine.lines.pause(retry, self.made, expires_in, self.until);
            return Outcome::Up;
        }
        let queued = self.queued.get_or_insert_with(|| Queued::begin(&self.engine.ear));
        let may_enter = queued.ear.place().is_some() || queued.ear.polls();
        if was_bare && refusal.error.is_busy() && (may_enter || refusal.is_queued()) || queued.is_outdated() {
            return Outcome::Up;
        }
        let nap = self.nap(refusal);
        self.sleep(refusal, self.engine.quorum.now().after(nap))
    }

    /// How long to wait for a push.
    fn nap(&mut self, refusal: &Refusal) -> Duration {
        let (quorum, retry) = (&self.engine.quorum, &self.request.terms.retry);
        let polls = || {
            let lease_end = refusal.expires_in().map_or(Duration::MAX, |left| left + NAP_SLACK);
            retry.pause(self.made, fastrand::f64()).min(lease_end)
        };
        let (Some(ballot), Some(queued)) = (&refusal.ballot, &self.queued) else { return polls() };
        let node = queued.node();
        let vote = ballot.votes.get(node.unwrap_or(0));
        let Some(Vote::Taken { token, ttl, .. }) = vote.filter(|_| queued.id.is_some()) else { return polls() };
        // A holder of another library pushes nothing.
        if !token.is_empty() && !is_ours(token) || node.is_none() && !queued.polls() {
            return polls();
        }
        let nap = ttl.map_or(LONGEST_NAP, |left| left + NAP_SLACK).min(jittered(LONGEST_NAP));
        match node {
            Some(_) if quorum.len() == 1 && self.has_looked && nap > SHORT_NAP => jittered(LONGEST_NAP),
            None => nap.min(jittered(LONGEST_POLL)),
            Some(node) if quorum.len() > 1 && quorum.wake_node().is_none_or(|(first, _)| first != node) => {
                nap.min(ASIDE)
            }
            Some(_) => {
                self.has_looked = true;
                nap
            }
        }
    }

    fn sleep(&mut self, refusal: &Refusal, end: Tick) -> Outcome {
        let (engine, mut end, mut looks) = (self.engine, end.min(self.until), false);
        self.await_also(refusal);
        loop {
            let Some(queued) = &self.queued else { return Outcome::Up };
            let now = engine.quorum.now();
            let next_look = if looks { now.after(LOOK) } else { Tick::NEVER };
            match queued.ear.sleep(end.min(next_look)) {
                Woken::Timer if next_look < end => engine.look(self.request, end),
                Woken::Timer | Woken::Connected | Woken::Closed => return Outcome::Up,
                Woken::Push(pushed) => {
                    let now = engine.quorum.now();
                    let pauses = pushed.pauses.max(self.chain.pauses);
                    self.chain = Chain::told(now, pushed.age, pauses);
                    if let Some(random) = &pushed.random {
                        return self.open(random, &pushed);
                    }
                    let rest = if pushed.span.is_zero() { pushed.span } else { pushed.span + NAP_SLACK };
                    end = now.after(rest.min(jittered(LONGEST_NAP))).min(self.until);
                    // After a pause begins another chain.
                    looks = pushed.pauses.count() > 0 && pushed.age.is_zero() && pushed.span <= LONG_PAUSE;
                    self.chain.began = self.chain.began.filter(|_| !pushed.age.is_zero());
                }
            }
        }
    }

    /// What ends the sleep besides a push and the timer.
    fn await_also(&self, refusal: &Refusal) {
        let Some(queued) = &self.queued else { return };
        queued.ear.await_also(match &queued.id {
            _ if refusal.error.is_unavailable() => Awaits::Servers,
            Some(id) if queued.node().is_some() => Awaits::Lock(Arc::clone(self.request.key.name()), Arc::clone(id)),
            _ => Awaits::Nothing,
        });
    }

    /// The lock was granted to this wait. On one node it holds the lock as it stands, if that is just what it asked for and nothing can take it
    /// away. Otherwise an ordinary attempt decides, which gets the lock with the settings of this wait; on several nodes always, so that
    /// exclusion is plain Redlock.
    pub(super) fn open(&mut self, random: &str, pushed: &Pushed) -> Outcome {
        let (engine, request, quorum) = (self.engine, self.request, &self.engine.quorum);
        let Some(id) = self.queued.as_ref().and_then(|queued| queued.id.clone()) else { return Outcome::Up };
        let granted = LockId::granted(random, &id);
        if quorum.len() > 1 {
            self.ticket = Some(LockId::from_server(random));
            return Outcome::Up;
        }
        let Some(since) = self.standing.grant_since() else { return Outcome::Up };
        if !(self.is_as_asked_for(pushed) && self.is_young(since)) {
            return Outcome::Up;
        }
        let origin = Origin { wait: None, chain: self.chain, next: None };
        let start = engine.start(request, granted, origin);
        let core = Arc::new(Core::granted(start, pushed.fence, since, pushed.span));
        if engine.lines.is_closed() {
            core.release(quorum.now(), quorum.limits.node_timeout);
            return Outcome::Up;
        }
        engine.lease(&core).map_or(Outcome::Up, Outcome::Granted)
    }

    /// A grant has the lease that the last holder chose, a fence if that one asked for fences, and a token without a readable part; and what is
    /// counted from the acquisition, such as the longest hold, would begin before the wait.
    fn is_as_asked_for(&self, pushed: &Pushed) -> bool {
        let terms = &self.request.terms;
        let has_fence = pushed.fence > 0 || !terms.fenced;
        terms.is_plain() && terms.lock_id.is_none() && terms.lease == pushed.span && has_fence
    }

    /// Enough is left of a lease that began then to renew it.
    fn is_young(&self, since: Tick) -> bool {
        let (quorum, lease) = (&self.engine.quorum, self.request.terms.lease);
        let left = lease.saturating_sub(drift(lease)).saturating_sub(quorum.now().since(since));
        left >= (lease / RENEW_DIVISOR).max(quorum.limits.min_validity)
    }
}
