//! What a guard and its renewal thread share: the lease itself, and every round that it makes.
//!
//! There are two locks, always taken in this order. `rounds` is held through a round, so the rounds of one lease never
//! overlap. A refill never races a release, and nothing is sent after the release. `state` is held for a few
//! instructions, and never across I/O. The user's loss handlers are called with neither, since a handler that blocks
//! must not delay `unlock`.
//!
//! 1. This file: `check`, and the rounds that extend the lease. Its state is in `lease/state.rs`.
//! 2. [`fence`]: fencing tokens.
//! 3. [`loss`]: what follows from a loss: the log, and the user's handlers. [`held`]: a look for losses.
//! 4. [`release`]: the end of a lease: release, grant to the next wait, revocation.
//! 5. [`pending`]: the tokens that a server may still have although no lease does.
//! 6. [`passing`]: the hand-over to the next thread of this process.
//! 7. [`joint`]: the check before more threads join, and the step from an exclusive lock to a shared one.

mod fence;
mod held;
mod joint;
mod loss;
mod passing;
mod pending;
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

pub(super) use self::held::suspects;
pub(crate) use self::loss::call_handler;
use self::loss::reason_of;
pub(super) use self::pending::UnansweredRelease;
pub(crate) use self::pending::{GivenUp, Pending, PendingRelease};
pub(super) use self::release::PreparedRelease;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Lease;
use super::expiry::VoteExpiry;
use super::state::{LeaseState, LeaseStatus};
use crate::clock::Tick;
use crate::error::{Error, LostReason};
use crate::fork::ForkGuard;
use crate::handover::sharing::HolderCount;
use crate::handover::thread_queue::QueueHead;
use crate::key::Key;
use crate::options::{LockOptions, MIN_LEASE, RENEW_DIVISOR, drift, jittered};
use crate::protocol::reply::{Acquired, Extended, PerNode, Vote};
use crate::protocol::{AcquireArgs, LeaseCalls, QueuePolicy, TypedCall};
use crate::quorum::{Ballot, Quorum};
use crate::sync::Mutex;
use crate::token::LockId;

pub(crate) struct LeaseInner {
    pub(crate) quorum: Arc<Quorum>,
    protocol: Arc<dyn LeaseCalls>,
    /// The protocol of the shared lock, once an exclusive lock was downgraded.
    downgraded: OnceLock<Arc<dyn LeaseCalls>>,
    pub(crate) key: Key,
    pub(crate) id: LockId,
    pub(crate) options: Arc<LockOptions>,
    /// Counts the threads that hold the lease.
    pub(crate) gate: Arc<HolderCount>,
    /// The process that acquired it. A forked child's copy does nothing.
    pub(crate) process: ForkGuard,
    born: Tick,
    /// The holder's own wait, if it may still be in a queue.
    wait: Option<Arc<str>>,
    local: LocalHandover,
    pub(super) state: Mutex<LeaseStatus>,
    pub(super) rounds: Mutex<RoundState>,
}

/// The values from which a lease is made.
pub(crate) struct LeaseStart {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) protocol: Arc<dyn LeaseCalls>,
    pub(crate) key: Key,
    pub(crate) id: LockId,
    pub(crate) options: Arc<LockOptions>,
    pub(crate) process: ForkGuard,
    pub(crate) wait: Option<Arc<str>>,
}

/// A run of hand-overs between threads of this process.
#[derive(Debug, Clone, Copy)]
struct LocalHandover {
    /// Since when, and how many times, the lock has been passed on without asking whether other processes wait.
    since: Tick,
    count: u32,
}

/// What one round of a lease leaves to the next.
pub(super) struct RoundState {
    expiry: VoteExpiry,
    /// The largest fence that a node gave with its vote.
    offered_fence: Option<u64>,
    /// The fencing token, once it is final.
    fence: Option<u64>,
    /// Our acquire, or a copy of it, may still be executed on a node.
    acquire_may_run: bool,
    /// The nodes that may have our token.
    may_have: PerNode<bool>,
}

/// The outcome of a release.
#[derive(Debug)]
pub(crate) struct ReleaseOutcome {
    pub(crate) result: Result<(), Error>,
    /// The lease was not lost before, as far as was known.
    pub(crate) is_orderly: bool,
    /// What a node may still have, although the lease is over.
    pub(crate) pending: Option<Box<PendingRelease>>,
}

impl LeaseInner {
    /// A lease from an acquire round that was won.
    pub(crate) fn won(start: LeaseStart, ballot: &Ballot<Acquired>) -> LeaseInner {
        let lease = LeaseInner::first_lease(&start.options);
        let expiry = VoteExpiry::new(&ballot.votes, ballot.started, lease);
        let offered_fence = ballot.largest_fence();
        // With one node, its fence is final.
        let fence = offered_fence.filter(|_| start.quorum.len() == 1);
        let may_have = ballot.may_be_set().collect();
        let rounds = RoundState { expiry, offered_fence, fence, acquire_may_run: ballot.token_may_remain(), may_have };
        let master_changes = start.quorum.nodes.master_changes().unwrap_or_default();
        let state = LeaseStatus::held(&start.options, ballot.started, rounds.expiry.deadline(), master_changes);
        LeaseInner::new(start, rounds, state, ballot.started)
    }

    /// A lease on one node, which the last holder granted some time after `since`, for as long as the options say. Not
    /// for options that count from the acquisition.
    pub(crate) fn granted(start: LeaseStart, fence: Option<u64>, since: Tick) -> LeaseInner {
        let votes = [Vote::Yes(Acquired { fence, ..Acquired::default() })].into();
        let inner = LeaseInner::won(start, &Ballot { votes, started: since, duplicate: false });
        LeaseInner { local: LocalHandover { since: inner.quorum.now(), count: 0 }, ..inner }
    }

    fn new(start: LeaseStart, rounds: RoundState, state: LeaseStatus, born: Tick) -> LeaseInner {
        let LeaseStart { quorum, protocol, key, id, options, process, wait } = start;
        LeaseInner {
            quorum,
            protocol,
            downgraded: OnceLock::new(),
            key,
            id,
            options,
            gate: Arc::new(HolderCount::new()),
            process,
            born,
            wait,
            local: LocalHandover { since: born, count: 0 },
            state: Mutex::new(state),
            rounds: Mutex::new(rounds),
        }
    }

    /// The calls of the lease at present.
    pub(crate) fn protocol(&self) -> &Arc<dyn LeaseCalls> {
        self.downgraded.get().unwrap_or(&self.protocol)
    }

    /// Keeps the place of the queue head until the lease ends.
    pub(crate) fn keep_head(&self, head: QueueHead<Lease>) {
        let mut state = self.state.lock();
        // The lease may be lost already. Then the place is given up here, without the lock.
        if state.now.is_live() {
            state.head = Some(head);
        }
    }

    /// Raises the minimum hold for a nested call, which begins now.
    pub(crate) fn hold_at_least(&self, min_hold: Duration) {
        let end = self.quorum.now().after(min_hold);
        let mut state = self.state.lock();
        state.keep_until = state.keep_until.max(end);
    }

    pub(crate) fn take_head(&self) -> Option<QueueHead<Lease>> {
        self.state.lock().head.take()
    }

    pub(in crate::lease) fn release_queue_head(&self) {
        drop(self.take_head());
    }

    /// True if its own wait may still be in a queue.
    pub(crate) fn keeps_wait(&self) -> bool {
        self.wait.is_some()
    }

    /// True if a copy of its acquire may still be executed on a node.
    pub(crate) fn acquire_may_run(&self) -> bool {
        self.rounds.lock().acquire_may_run
    }

    /// The lease that an acquire asks for: never longer than the maximum hold.
    pub(crate) fn first_lease(options: &LockOptions) -> Duration {
        options.max_hold.map_or(options.lease, |max| options.lease.min(max))
    }

    /// When the renewal thread has to act for the first time.
    pub(crate) fn first_due(&self) -> Tick {
        // A node that missed the acquire gets the key soon: spare votes let the lock survive the loss of a node. It is
        // not done at once, so that a short hold does not pay for it.
        let is_short = self.rounds.lock().expiry.is_incomplete();
        let lease = self.options.lease;
        let wait = if is_short { retry_pause(lease) } else { lease / RENEW_DIVISOR };
        let state = self.state.lock();
        if state.may_renew() { self.born.after(wait).min(state.until) } else { state.until }
    }

    /// Ends renewal: the lease runs out unless its holder releases it before.
    pub(crate) fn renew_no_more(&self) {
        self.state.lock().renewals_left = Some(0);
    }

    pub(crate) fn state(&self) -> LeaseState {
        if self.process.is_forked_child() {
            return LeaseState::Released;
        }
        let state = self.expire_if_overdue(self.quorum.now());
        self.notify_loss();
        state
    }

    /// Declares the lease lost if its time has passed, and returns its state. The first thread that notices does so.
    /// The handlers are called later, without locks.
    fn expire_if_overdue(&self, now: Tick) -> LeaseState {
        let state = self.state.lock();
        if !state.is_overdue(now) {
            return state.now;
        }
        drop(state);
        self.change(|state| {
            state.expire(now, &self.options);
            state.now
        })
    }

    /// `Ok` while the lease is surely held. No I/O. It reads the clock itself, and not a flag that a starved thread
    /// would have had to set.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let ours = self.still_ours();
        if ours.is_err() {
            self.notify_loss();
        }
        ours
    }

    /// Like `check`, for callers that hold `rounds`.
    #[inline]
    fn still_ours(&self) -> Result<(), Error> {
        if self.process.is_forked_child() {
            return Err(Error::Closed);
        }
        self.held_in(self.expire_if_overdue(self.quorum.now()))
    }

    /// `Ok` if the lock is held in this state.
    fn held_in(&self, state: LeaseState) -> Result<(), Error> {
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
        if self.process.is_forked_child() {
            return Duration::ZERO;
        }
        let state = self.state.lock();
        if state.now.is_live() { state.until.since(self.quorum.now()) } else { Duration::ZERO }
    }

    /// By when this hold has ended whatever its guard does, so that others can have the lock. `None` if it is renewed
    /// without limit.
    pub(crate) fn surely_ends(&self) -> Option<Tick> {
        let lease = self.options.lease;
        let state = self.state.lock();
        let renewed_to = state.renewals_left.map(|left| state.until.after(lease.saturating_mul(left)));
        let end = renewed_to.unwrap_or(Tick::NEVER).min(state.hold_end);
        // The servers keep the key for longer than this process relies on it.
        (end < Tick::NEVER).then(|| end.after(drift(lease)))
    }

    /// One round that extends the lease, and what follows from its votes. An error if the lease is over: then nothing
    /// is sent. The caller holds `rounds`. A renewal is not quick: no caller waits for it, and each yes is a spare
    /// vote.
    fn extending_round(
        &self,
        rounds: &mut RoundState,
        call: &TypedCall<Extended>,
        lease: Duration,
        by: Tick,
        is_quick: bool,
    ) -> Result<Ballot<Extended>, Error> {
        self.still_ours()?;
        let master_changes = self.master_changes();
        let by = self.state.lock().round_begins(by, lease, master_changes);
        let ballot = if is_quick { self.quorum.quick_round(call, by) } else { self.quorum.round(call, by) };
        rounds.expiry.apply(&ballot.votes, ballot.started, lease);
        let until = rounds.expiry.deadline();
        let gone = reason_of(&ballot);
        self.change(|state| state.round_ended(ballot.won(), until, gone));
        Ok(ballot)
    }

    /// Called by the renewal thread when it is due. Returns when it is due again: never, if the lease has ended.
    pub(crate) fn tick(&self) -> Tick {
        self.state.lock().master_changes = self.master_changes();
        let (next, outcome) = self.renew();
        if let Some(outcome) = outcome {
            self.notify_renewal(&outcome);
        }
        self.notify_loss();
        next
    }

    /// Returns when the next renewal is due, and the outcome of this one, if there was one.
    fn renew(&self) -> (Tick, Option<Result<(), Error>>) {
        self.expire_if_overdue(self.quorum.now());
        let mut rounds = self.rounds.lock();
        let lease = self.next_lease();
        let before = {
            let state = self.state.lock();
            if !state.now.is_live() {
                return (Tick::NEVER, None);
            }
            if !state.may_renew() || lease < MIN_LEASE {
                return (state.until, None);
            }
            state.until
        };
        let call = self.protocol().extend(&self.id, lease);
        let Ok(ballot) = self.extending_round(&mut rounds, &call, lease, self.quorum.round_deadline(), false) else {
            return (Tick::NEVER, None);
        };
        let (confirmed, outcome) = (ballot.won(), self.round_result("renew", &ballot));
        let until = {
            let mut state = self.state.lock();
            // Two rounds without a majority that each reached another node can extend the lease together.
            if confirmed || state.until > before {
                state.renewed();
            }
            if !state.now.is_live() {
                return (Tick::NEVER, Some(outcome));
            }
            state.until
        };
        if confirmed {
            self.refill(&mut rounds, &ballot, lease);
        }
        let pause =
            if confirmed { self.options.lease / RENEW_DIVISOR } else { jittered(retry_pause(self.options.lease)) };
        (ballot.started.after(pause).min(until), Some(outcome))
    }

    /// True if a Sentinel group has got a new master, or may have, since the last round began. A renewal that went to
    /// the former master may not have reached the new one, where the lock would end with its former lease.
    pub(crate) fn has_new_master(&self) -> bool {
        self.quorum.nodes.master_changes().is_some_and(|now| now != self.state.lock().master_changes)
    }

    /// How often the master has changed until now.
    fn master_changes(&self) -> u64 {
        self.quorum.nodes.master_changes().unwrap_or_default()
    }

    /// How long the renewal thread may sleep until it looks whether there is a new master.
    pub(crate) fn longest_sleep(&self) -> Duration {
        let may_change = self.quorum.nodes.master_changes().is_some();
        if may_change { self.options.lease / (4 * RENEW_DIVISOR) } else { Duration::MAX }
    }

    /// The length to ask for now: a lease, but nothing beyond the maximum hold.
    fn next_lease(&self) -> Duration {
        self.at_most(self.options.lease)
    }

    /// This length, but nothing beyond the maximum hold.
    fn at_most(&self, lease: Duration) -> Duration {
        let hold_end = self.state.lock().hold_end;
        lease.min(hold_end.since(self.quorum.now()))
    }

    /// Sets our token again on nodes that answered "no such key", after a round in which a majority confirmed it. Their
    /// votes count from the next round on. If its outcome is unknown, it is like an acquire of unknown outcome.
    fn refill(&self, rounds: &mut RoundState, ballot: &Ballot<Extended>, lease: Duration) {
        // On its one node, a claim that is gone was ended or taken.
        let Some(lock) = self.protocol().lock() else { return };
        let is_empty = |i: usize| ballot.votes.get(i) == Some(&Vote::Absent);
        if !(0..self.quorum.len()).any(is_empty) || self.quorum.now() >= rounds.expiry.deadline() {
            return;
        }
        let fence = rounds.fence.or(rounds.offered_fence);
        let attempt =
            AcquireArgs { id: &self.id, lease, fence, wait: None, policy: QueuePolicy::Holder, take_over: &[] };
        let call = lock.acquire(&attempt);
        let filled = self.quorum.round_on(&call, self.quorum.round_deadline(), &is_empty);
        rounds.acquire_may_run |= filled.token_may_remain();
        for (may_have, may_be_set) in rounds.may_have.iter_mut().zip(filled.may_be_set()) {
            *may_have |= may_be_set;
        }
    }

    /// Extends the lease to at least `lease` from now.
    pub(crate) fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.still_ours()?;
        let mut rounds = self.rounds.lock();
        let lease = self.at_most(lease);
        self.quorum.record_lease_length(lease);
        let call = self.protocol().extend(&self.id, lease);
        let ballot = self.extending_round(&mut rounds, &call, lease, self.quorum.round_deadline(), true)?;
        self.round_result("extend", &ballot)
    }

    /// The result of a round for the call that asked for it.
    fn round_result<R>(&self, op: &'static str, ballot: &Ballot<R>) -> Result<(), Error> {
        let (won, ours) = (ballot.won(), self.still_ours());
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

impl fmt::Debug for LeaseInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.process.is_forked_child() { LeaseState::Released } else { self.state.lock().now };
        f.debug_struct("Lease")
            .field("key", &self.key.as_str())
            .field("id", &self.id)
            .field("state", &state)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// The pause before a renewal without a majority is tried again, and before missing votes are filled.
fn retry_pause(lease: Duration) -> Duration {
    (lease / 20).clamp(Duration::from_millis(5), Duration::from_millis(500))
}
