//! What a guard and its renewal thread share: the lease itself, and every round it makes.
//!
//! Two locks, always taken in this order: `io` is held through a round, so that the rounds of one lease never overlap (a refill
//! never races a release, and nothing is sent after the release); `state` is held for a few instructions, never across I/O.
//! The user's handlers of a loss are called with neither: one that blocks must not keep `unlock` waiting.
//!
//! Fencing tokens are in [`fence`], the end of a lease is in [`release`], handing it to the next thread of this process in [`passing`].

mod fence;
mod passing;
mod release;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    reason = "a test fails by a panic"
)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Lease;
use super::backlog::Backlog;
use super::holding::Holding;
use super::state::{LeaseState, State};
use crate::clock::Tick;
use crate::config::{MIN_LEASE, RENEW_DIVISOR, Terms, check_lease, drift, jittered};
use crate::error::{Error, LostReason};
use crate::fork::Home;
use crate::key::Key;
use crate::node::Lane;
use crate::primitive::{Attempt, Chain, Order, Primitive};
use crate::quorum::{Ballot, Quorum, Vote};
use crate::script::Call;
use crate::token::{LockId, RandomPart};
use crate::wait::Turn;

type OnLost = Box<dyn FnOnce(Error) + Send>;

pub(crate) struct Core {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) primitive: Arc<dyn Primitive>,
    pub(crate) key: Key,
    pub(crate) id: LockId,
    pub(crate) terms: Terms,
    /// The process that acquired it; a forked child's copy is inert.
    pub(crate) home: Home,
    born: Tick,
    /// From `max_hold`: nothing lengthens the lease beyond this.
    hold_end: Tick,
    origin: Origin,
    streak: Streak,
    renewals: AtomicU32,
    backlog: Arc<Backlog>,
    state: Mutex<State>,
    io: Mutex<Io>,
    on_lost: Mutex<Vec<OnLost>>,
    /// The head of this process's line; given up when the lease ends, however it ends.
    turn: Mutex<Option<Turn<Lease>>>,
}

/// What a lease is made from.
pub(crate) struct Start {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) primitive: Arc<dyn Primitive>,
    pub(crate) key: Key,
    pub(crate) id: LockId,
    pub(crate) terms: Terms,
    pub(crate) home: Home,
    pub(crate) origin: Origin,
}

/// How the lock was got, as far as its release needs to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    /// The wait of its holder, if it may still be in a queue.
    pub(crate) wait: Option<Arc<str>>,
    pub(crate) chain: Chain,
    /// The random part of the token that the release may grant; of its own kind, since drawing one takes a system call.
    pub(crate) next: Option<RandomPart>,
}

/// A lock that is passed on inside this process.
#[derive(Debug, Clone, Copy)]
struct Streak {
    /// Since when, and how often, it has been passed on without asking whether other processes wait.
    since: Tick,
    count: u32,
}

/// What the rounds of a lease carry from one to the next.
struct Io {
    holding: Holding,
    fence: Option<u64>,
    /// A copy of our acquire may still be executed somewhere.
    haunted: bool,
}

/// How a release went.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) result: Result<(), Error>,
    /// The token may still stand on some node, although the lease is over.
    pub(crate) haunted: bool,
    /// A majority said that the token is not there.
    pub(crate) is_confirmed: bool,
}

/// What the renewal thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    At(Tick),
    Done,
}

impl Core {
    /// A lease from an acquire round that was won.
    pub(crate) fn won(start: Start, ballot: &Ballot) -> Core {
        let lease = Core::first_lease(&start.terms);
        let holding = Holding::new(&ballot.votes, ballot.started, lease);
        Core::new(start, holding, ballot.started, ballot.is_haunted())
    }

    /// A lease on one node, which the last holder granted some time after `since`. For terms of which nothing is counted from the
    /// acquisition.
    pub(crate) fn granted(start: Start, fence: u64, since: Tick, lease: Duration) -> Core {
        let holding = Holding::new(&[Vote::Yes { fence }], since, lease);
        let core = Core::new(start, holding, since, false);
        Core { streak: Streak { since: core.quorum.now(), count: 0 }, ..core }
    }

    fn new(start: Start, holding: Holding, born: Tick, haunted: bool) -> Core {
        let Start { quorum, backlog, primitive, key, id, terms, home, origin } = start;
        let hold_end = terms.max_hold.map_or(Tick::NEVER, |max| born.after(max));
        let until = holding.deadline().min(hold_end);
        // One node has no other to be ahead of: its fence is final.
        let fence = (quorum.len() == 1 && holding.fence() > 0).then(|| holding.fence());
        Core {
            quorum,
            primitive,
            key,
            id,
            terms,
            home,
            born,
            hold_end,
            origin,
            streak: Streak { since: born, count: 0 },
            renewals: AtomicU32::new(0),
            backlog,
            state: Mutex::new(State::held(until)),
            io: Mutex::new(Io { holding, fence, haunted }),
            on_lost: Mutex::new(Vec::new()),
            turn: Mutex::new(None),
        }
    }

    /// Keeps the head of the line until the lease ends.
    pub(crate) fn keep_turn(&self, turn: Turn<Lease>) {
        *self.turn.lock() = Some(turn);
        // It may have been lost already.
        if !self.state.lock().is_live() {
            self.leave_line();
        }
    }

    fn leave_line(&self) {
        let turn = self.turn.lock().take();
        drop(turn);
    }

    /// A copy of its acquire may still be executed somewhere.
    pub(crate) fn is_haunted(&self) -> bool {
        self.io.lock().haunted
    }

    /// The lease that an acquire asks for: never beyond the maximum hold.
    pub(crate) fn first_lease(terms: &Terms) -> Duration {
        terms.max_hold.map_or(terms.lease, |max| terms.lease.min(max))
    }

    /// When the renewal thread has to look for the first time.
    pub(crate) fn first_due(&self) -> Tick {
        let until = self.state.lock().until;
        if !self.may_renew() {
            return until;
        }
        let lease = self.terms.lease;
        // A node that missed the acquire gets the key soon, since the lock survives the loss of a node by its spare votes; but not so soon that a
        // short hold would pay for it.
        let is_short = self.io.lock().holding.is_incomplete();
        let wait = if is_short { retry_pause(lease) } else { lease / RENEW_DIVISOR };
        self.born.after(wait).min(until)
    }

    fn may_renew(&self) -> bool {
        self.terms.renew && !self.is_out_of_renewals()
    }

    fn is_out_of_renewals(&self) -> bool {
        self.terms.max_renewals.is_some_and(|max| self.renewals.load(Ordering::Relaxed) >= max)
    }

    fn is_forked_copy(&self) -> bool {
        self.home.is_left()
    }

    pub(crate) fn state(&self) -> LeaseState {
        if self.is_forked_copy() {
            return LeaseState::Released;
        }
        self.settle();
        self.tell_loss();
        self.state.lock().now
    }

    /// Declares the lease lost if its time has passed; the thread that notices first does. The handlers are called later, without locks.
    fn settle(&self) {
        let now = self.quorum.now();
        if self.state.lock().is_overdue(now) {
            self.lose(self.reason_of_expiry());
        }
    }

    /// Why a lease whose time has passed was not renewed.
    fn reason_of_expiry(&self) -> LostReason {
        let state = *self.state.lock();
        // The last lease before the maximum hold ends earlier than that by the drift, or by a rest too short to ask for.
        let at_max_hold = self.hold_end.since(state.until) <= drift(self.terms.lease) + MIN_LEASE;
        match state.now {
            _ if self.terms.renew && (at_max_hold || self.is_out_of_renewals()) => LostReason::MaxHold,
            LeaseState::Suspended => LostReason::Unreachable,
            _ => LostReason::Expired,
        }
    }

    /// Ok while the lease is surely held. No I/O. Looks at the clock itself, and not at a flag that a starved thread would have had to set.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let outcome = self.still_ours();
        self.tell_loss();
        outcome
    }

    /// As `check`, for callers that hold `io`.
    fn still_ours(&self) -> Result<(), Error> {
        if self.is_forked_copy() {
            return Err(Error::Closed);
        }
        self.settle();
        let state = self.state.lock().now;
        match state {
            LeaseState::Held | LeaseState::Suspended => Ok(()),
            LeaseState::Lost(reason) => Err(self.lost(reason)),
            LeaseState::Released => Err(self.lost(LostReason::Revoked)),
        }
    }

    pub(crate) fn lost(&self, reason: LostReason) -> Error {
        Error::Lost { key: self.key.as_str().to_owned(), reason }
    }

    pub(crate) fn remaining(&self) -> Duration {
        let state = *self.state.lock();
        if state.is_live() && !self.is_forked_copy() { state.until.since(self.quorum.now()) } else { Duration::ZERO }
    }

    /// By when this hold has ended whatever its guard does, and others can have the lock; none if it is renewed without limit.
    pub(crate) fn surely_ends(&self) -> Option<Tick> {
        let lease = self.terms.lease;
        let renewed_to = |times: u32| self.state.lock().until.after(lease.saturating_mul(times));
        let renewals = match self.terms.max_renewals {
            _ if !self.terms.renew => Some(renewed_to(0)),
            Some(max) => Some(renewed_to(max.saturating_sub(self.renewals.load(Ordering::Relaxed)))),
            None => None,
        };
        let end = renewals.unwrap_or(Tick::NEVER).min(self.hold_end);
        // The servers keep the key for longer than this process counts on it.
        (end < Tick::NEVER).then(|| end.after(drift(lease)))
    }

    /// Has `f` called once when the lease is lost; at once when it is already.
    pub(crate) fn on_lost(&self, f: OnLost) {
        // Registered before the state is looked at: a loss in between finds it.
        self.on_lost.lock().push(f);
        self.state();
    }

    /// True if this call made it lost.
    fn lose(&self, reason: LostReason) -> bool {
        let made_lost = self.state.lock().lose(reason);
        if made_lost {
            self.log_loss(reason);
            self.leave_line();
        }
        made_lost
    }

    /// A loss that the user asked for is no warning.
    fn log_loss(&self, reason: LostReason) {
        let level = if reason == LostReason::Revoked { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "{}", self.lost(reason));
    }

    /// Once for each time that renewals begin to fail, or succeed again.
    fn log_change(&self, before: LeaseState, after: LeaseState, until: Tick) {
        let left = || until.since(self.quorum.now()).as_millis();
        match (before, after) {
            (LeaseState::Held, LeaseState::Suspended) => {
                log::warn!(
                    "a renewal of lock `{}` was not confirmed; it is lost in {} ms unless one is",
                    self.key,
                    left()
                );
            }
            (LeaseState::Suspended, LeaseState::Held) => log::info!("lock `{}` is renewed again", self.key),
            _ => {}
        }
    }

    /// Calls the handlers, once, if the lease is lost. Never with `io` held: a handler takes as long as it takes.
    pub(in crate::lease) fn tell_loss(&self) {
        let state = self.state.lock().now;
        if let LeaseState::Lost(reason) = state {
            self.tell(reason);
        }
    }

    fn tell(&self, reason: LostReason) {
        if self.is_forked_copy() {
            return;
        }
        let handlers = std::mem::take(&mut *self.on_lost.lock());
        for handler in handlers {
            let error = self.lost(reason);
            // A handler that panics must not take the renewal thread with it.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || handler(error)));
            if let Err(payload) = outcome {
                log::error!("an on_lost handler of lock `{}` panicked", self.key);
                // What it panicked with could panic when it is dropped.
                std::mem::forget(payload);
            }
        }
    }

    // --- rounds -------------------------------------------------------------------------------------------------------

    /// One round that lengthens the lease, and what follows from its votes. The caller holds `io`.
    fn extend_round(&self, io: &mut Io, lease: Duration) -> Ballot {
        let call = self.primitive.extend(&self.id, lease, false);
        self.lengthening_round(io, &call, lease, self.quorum.round_deadline())
    }

    fn lengthening_round(&self, io: &mut Io, call: &Arc<Call>, lease: Duration, by: Tick) -> Ballot {
        // What comes after the end of the lease cannot save it, and waiting for it would hold back the news.
        let by = {
            let mut state = self.state.lock();
            let by = by.min(state.until);
            state.latest = state.latest.max(by.after(lease));
            by
        };
        let ballot = self.quorum.round(call, Lane::Reserved, by, &|_| true);
        io.holding.apply(&ballot.votes, ballot.started, lease);
        let until = io.holding.deadline().min(self.hold_end);
        let confirmed = ballot.tally().won();
        let (before, after) = self.state.lock().round_ended(confirmed, until);
        if self.quorum.now() >= until {
            self.lose(self.reason_of(&ballot, until));
        } else {
            self.log_change(before, after, until);
        }
        ballot
    }

    /// Why a round left us without a majority.
    fn reason_of(&self, ballot: &Ballot, until: Tick) -> LostReason {
        if until > Tick::ZERO {
            return self.reason_of_expiry();
        }
        let taken = |vote: &Vote| vote.is_definite_no() && *vote != Vote::Absent;
        if ballot.votes.iter().any(taken) { LostReason::Taken } else { LostReason::Deleted }
    }

    /// Called by the renewal thread when it is due.
    pub(crate) fn tick(&self) -> Next {
        let next = self.renew();
        self.tell_loss();
        next
    }

    fn renew(&self) -> Next {
        self.settle();
        let mut io = self.io.lock();
        let now = self.quorum.now();
        let state = *self.state.lock();
        if !state.is_live() || self.is_forked_copy() {
            return Next::Done;
        }
        let lease = self.next_lease(now);
        if !self.may_renew() || lease < MIN_LEASE {
            return Next::At(state.until);
        }
        let before = state.until;
        let ballot = self.extend_round(&mut io, lease);
        let confirmed = ballot.tally().won();
        let state = *self.state.lock();
        // Two rounds without a majority that each reached another node can lengthen the lease together.
        if confirmed || state.until > before {
            self.renewals.fetch_add(1, Ordering::Relaxed);
        }
        if !state.is_live() {
            return Next::Done;
        }
        if confirmed {
            self.refill(&mut io, &ballot, lease);
        }
        let pause = if confirmed { self.terms.lease / RENEW_DIVISOR } else { jittered(retry_pause(self.terms.lease)) };
        Next::At(ballot.started.after(pause).min(state.until))
    }

    /// The length to ask for now: a lease, but nothing beyond the maximum hold.
    fn next_lease(&self, now: Tick) -> Duration {
        self.terms.lease.min(self.hold_end.since(now))
    }

    /// Sets our token again on nodes that answered "no such key" in a round in which a majority confirmed it. Their votes count from the
    /// next round on. One of unknown outcome is an acquire of unknown outcome.
    fn refill(&self, io: &mut Io, ballot: &Ballot, lease: Duration) {
        let is_empty = |i: usize| ballot.votes.get(i) == Some(&Vote::Absent);
        if !(0..self.quorum.len()).any(is_empty) || self.quorum.now() >= io.holding.deadline() {
            return;
        }
        let fence = Some(io.fence.unwrap_or(io.holding.fence())).filter(|fence| *fence > 0);
        let attempt = Attempt { id: &self.id, lease, fence, wait: None, order: Order::None, tickets: &[] };
        let call = self.primitive.acquire(&attempt);
        let filled = self.quorum.round(&call, Lane::Reserved, self.quorum.round_deadline(), &is_empty);
        io.haunted |= filled.ghost;
    }

    /// Lengthens the lease to at least `lease` from now.
    pub(crate) fn extend(&self, lease: Duration) -> Result<(), Error> {
        check_lease("lease", lease, &self.quorum.limits)?;
        let outcome = self.lengthen(lease);
        self.tell_loss();
        outcome
    }

    fn lengthen(&self, lease: Duration) -> Result<(), Error> {
        self.still_ours()?;
        let mut io = self.io.lock();
        self.still_ours()?;
        let lease = lease.min(self.hold_end.since(self.quorum.now()));
        self.quorum.note_lease(lease);
        let ballot = self.extend_round(&mut io, lease);
        self.verdict("extend", &ballot)
    }

    /// What a round means for the call that asked for it.
    fn verdict(&self, op: &'static str, ballot: &Ballot) -> Result<(), Error> {
        let (won, ours) = (ballot.tally().won(), self.still_ours());
        if ours.is_err()
            && !won
            && let Some(error) = self.quorum.wrong_type(op, self.key.as_str(), ballot)
        {
            return Err(error);
        }
        ours?;
        if won { Ok(()) } else { Err(self.quorum.failed(op, self.key.as_str(), ballot)) }
    }
}

/// Time until a renewal that brought no majority is tried again, and until missing votes are filled.
fn retry_pause(lease: Duration) -> Duration {
    (lease / 20).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().now;
        f.debug_struct("Lease")
            .field("key", &self.key.as_str())
            .field("id", &self.id)
            .field("state", &state)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
