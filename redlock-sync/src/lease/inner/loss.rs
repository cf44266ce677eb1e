//! How a loss is noticed, and what follows from it: the log, and the user's handlers.

use std::panic::RefUnwindSafe;

use super::{LeaseInner, RoundState};
use crate::clock::Tick;
use crate::error::{Error, LostReason};
use crate::handler::caught;
use crate::lease::state::{LeaseState, LeaseStatus, OnLost};
use crate::names::key_in_message;
use crate::options::MIN_LEASE;
use crate::protocol::reply::Vote;
use crate::quorum::Ballot;

/// Handlers run without its locks, and their panics are caught.
impl RefUnwindSafe for LeaseInner {}

impl LeaseInner {
    /// Calls `f` once when the lease is lost; at once if it is lost already.
    pub(crate) fn on_lost(&self, holder: u64, f: OnLost) {
        self.state.lock().handlers.push((holder, f));
        self.state();
    }

    /// True if the lease runs, and its guard has not ended it.
    pub(crate) fn is_held(&self) -> bool {
        self.expire_if_overdue(self.quorum.now()).is_live()
    }

    /// True if the lease is over, and its guard did not end it.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.expire_if_overdue(self.quorum.now()), LeaseState::Lost(_))
    }

    /// Removes the handlers of a thread. There are none if a loss has called them. They must be dropped without the
    /// lock: what a handler has captured may use this lease.
    pub(in crate::lease) fn take_handlers(&self, holder: u64) -> Vec<(u64, OnLost)> {
        self.state.lock().handlers.extract_if(.., |(of, _)| *of == holder).collect()
    }

    pub(in crate::lease) fn restore_handlers(&self, handlers: Vec<(u64, OnLost)>) {
        self.state.lock().handlers.extend(handlers);
    }

    /// Removes all handlers: the guard is gone.
    pub(in crate::lease) fn forget_all_handlers(&self) {
        let forgotten = std::mem::take(&mut self.state.lock().handlers);
        drop(forgotten);
    }

    /// Makes a transition, and logs what follows from it. If the time of the lease has passed then, it is lost. A loss
    /// gives up the place of the queue head.
    pub(super) fn change<R>(&self, transition: impl FnOnce(&mut LeaseStatus) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.now;
        let result = transition(&mut state);
        if state.now.is_live() {
            state.expire(self.quorum.now(), &self.options);
        }
        let after = state.now;
        let until = state.until;
        let is_lost = before.is_live() && matches!(after, LeaseState::Lost(_));
        let head = state.head.take_if(|_| is_lost);
        drop(state);
        self.log_change(before, after, until);
        drop(head);
        result
    }

    /// A loss that the user asked for is not a warning.
    pub(in crate::lease) fn log_loss(&self, reason: LostReason) {
        let level = if reason == LostReason::Revoked { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "{}", self.lost(reason));
    }

    fn description(&self) -> String {
        key_in_message(self.key.as_str(), "lock ", "a claim in queue ")
    }

    /// Logs a loss, and when renewals begin to fail and succeed again.
    fn log_change(&self, before: LeaseState, after: LeaseState, until: Tick) {
        match (before, after) {
            (LeaseState::Held, LeaseState::Suspended) => {
                log::warn!(
                    "a renewal of {} was not confirmed; it is lost in {} ms unless a later renewal succeeds",
                    self.description(),
                    until.since(self.quorum.now()).as_millis()
                );
            }
            (LeaseState::Suspended, LeaseState::Held) => log::info!("{} is renewed again", self.description()),
            (LeaseState::Held | LeaseState::Suspended, LeaseState::Lost(reason)) => self.log_loss(reason),
            _ => {}
        }
    }

    /// Asks the servers whether the lock was taken away, until `by` or for a node timeout at most. If it was, the
    /// handlers are called.
    pub(crate) fn check_on_servers(&self, by: Tick) {
        // A round under way notices it as well. The state is read once no other round can begin: after a release,
        // nothing is sent.
        if let Some(mut rounds) = self.rounds.try_lock()
            && self.still_ours().is_ok()
        {
            // The shortest lease extends nothing, since a server never shortens one.
            let call = self.protocol().extend(&self.id, MIN_LEASE);
            let ballot = self.quorum.round(&call, by);
            self.record_losses(&mut rounds, &ballot);
        }
        self.notify_loss();
    }

    /// True if it is lost and its handlers were not called. A revocation calls them itself.
    pub(crate) fn has_unreported_loss(&self) -> bool {
        let state = self.state.lock();
        matches!(state.now, LeaseState::Lost(reason) if reason != LostReason::Revoked) && !state.handlers.is_empty()
    }

    /// Records which nodes no longer have the lock, from a round that extends nothing.
    pub(super) fn record_losses<R>(&self, rounds: &mut RoundState, ballot: &Ballot<R>) {
        rounds.expiry.clear(&ballot.votes);
        let until = rounds.expiry.deadline();
        let gone = reason_of(ballot);
        self.change(|state| state.shorten(until, gone));
    }

    /// Calls the handlers, once, if the lease is lost. Never with `rounds` held, since a handler may take any time. In
    /// a forked child nothing is locked. Another thread of the parent may have held the lock at the fork, and is
    /// missing in the child.
    pub(crate) fn notify_loss(&self) {
        if self.process.is_forked_child() {
            return;
        }
        let state = self.state.lock().now;
        if let LeaseState::Lost(reason) = state {
            self.notify_handlers(reason);
        }
    }

    pub(super) fn notify_handlers(&self, reason: LostReason) {
        let handlers = std::mem::take(&mut self.state.lock().handlers);
        for (_, handler) in handlers {
            call_handler(handler, self.lost(reason), &self.description());
        }
    }
}

/// Calls a handler of a loss of `what`. A panic is logged.
pub(crate) fn call_handler(handler: OnLost, error: Error, what: &str) {
    if caught(move || handler(error)).is_err() {
        log::error!("an on_lost handler of {what} panicked");
    }
}

/// Why no majority has the lock any more.
pub(super) fn reason_of<R>(ballot: &Ballot<R>) -> LostReason {
    let taken = |vote: &Vote<R>| vote.is_definite_no() && !matches!(vote, Vote::Absent);
    if ballot.votes.iter().any(taken) { LostReason::Taken } else { LostReason::Deleted }
}
