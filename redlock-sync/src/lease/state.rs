//! The state of a lease with all that changes with it, and its only transitions.
//!
//! | state | meaning | until | leaves to |
//! |---|---|---|---|
//! | Held | the last round was confirmed by a majority | the majority's mark | Suspended, Lost, Released |
//! | Suspended | the last renewal brought no majority; the lease still runs | the same mark | Held, Lost, Released |
//! | Lost | not held any more; final | - | - |
//! | Released | given up by its guard; final | - | - |

use std::time::Duration;

use super::Lease;
use crate::clock::Tick;
use crate::error::{Error, LostReason};
use crate::handover::thread_queue::QueueHead;
use crate::options::{LockOptions, MIN_LEASE, drift};

/// The state of a lease, which shows failing renewals before the lock is lost.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{LeaseState, Redlock};
/// let locks = Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").lock()?;
/// assert_eq!(guard.state(), LeaseState::Held);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and the last round was confirmed by a majority of the nodes.
    Held,
    /// Still held, but the last renewal was not confirmed; it is lost when none is before the lease runs out.
    Suspended,
    /// Lost; it never comes back.
    Lost(LostReason),
    /// Given up by its guard; also said of a forked child's copy of a guard, which holds nothing.
    Released,
}

impl LeaseState {
    pub(super) fn is_live(self) -> bool {
        matches!(self, LeaseState::Held | LeaseState::Suspended)
    }
}

/// A handler of a loss.
pub(crate) type OnLost = Box<dyn FnOnce(Error) + Send>;

/// The state of a lease, and all that changes with it. Its methods are the only transitions.
pub(super) struct LeaseStatus {
    pub(super) now: LeaseState,
    /// Until then the lock is surely held, if it is not over.
    pub(super) until: Tick,
    /// No node keeps the lock for longer, whatever became of the extensions that were sent.
    pub(super) latest: Tick,
    /// The end of the minimum hold.
    pub(super) keep_until: Tick,
    /// The end of `max_hold`: nothing extends the lease beyond this.
    pub(super) hold_end: Tick,
    /// How many renewals may follow. `None`: any number.
    pub(super) renewals_left: Option<u32>,
    /// How often the master of a Sentinel group had changed when the last round began.
    pub(super) master_changes: u64,
    /// True if observers were notified of the acquisition.
    pub(super) is_observed: bool,
    /// The guard was dropped, and no minimum hold keeps the key. Only the release is under way.
    pub(super) is_dropped: bool,
    /// After the drop, the release may have been sent again.
    pub(super) is_release_repeated: bool,
    /// The handlers of a loss, each with the number of its thread (`Lease::holder`).
    pub(super) handlers: Vec<(u64, OnLost)>,
    /// The place of the queue head for this key. Released when the lease ends, however it ends.
    pub(super) head: Option<QueueHead<Lease>>,
}

impl LeaseStatus {
    /// A lock that was acquired at `born`, and is surely held until `until`.
    pub(super) fn held(options: &LockOptions, born: Tick, until: Tick, master_changes: u64) -> LeaseStatus {
        let hold_end = options.max_hold.map_or(Tick::NEVER, |max| born.after(max));
        let until = until.min(hold_end);
        LeaseStatus {
            now: LeaseState::Held,
            until,
            latest: until,
            keep_until: born.after(options.min_hold),
            hold_end,
            renewals_left: if options.renew { options.max_renewals } else { Some(0) },
            master_changes,
            is_observed: false,
            is_dropped: false,
            is_release_repeated: false,
            handlers: Vec::new(),
            head: None,
        }
    }

    /// Ends the lease for good, as lost or as released. Returns the state before: of all calls, one gets a live one.
    pub(super) fn end(&mut self, how: LeaseState) -> LeaseState {
        let before = self.now;
        if before.is_live() {
            self.now = how;
        }
        before
    }

    /// True if it is live but its time has passed.
    pub(super) fn is_overdue(&self, now: Tick) -> bool {
        self.now.is_live() && now >= self.until
    }

    /// Declares the lease lost if its time has passed.
    pub(super) fn expire(&mut self, now: Tick, options: &LockOptions) {
        if self.is_overdue(now) {
            // The lease ends a little before `max_hold`: drift was subtracted, or less than `MIN_LEASE` remained, so it
            // was not renewed.
            let at_max_hold = self.hold_end.since(self.until) <= drift(options.lease) + MIN_LEASE;
            let is_out_of_renewals = options.max_renewals.is_some() && !self.may_renew();
            self.now = LeaseState::Lost(match self.now {
                _ if options.renew && (at_max_hold || is_out_of_renewals) => LostReason::MaxHold,
                LeaseState::Suspended => LostReason::Unreachable,
                _ => LostReason::Expired,
            });
        }
    }

    /// A round begins that extends the lease. Returns its deadline.
    pub(super) fn round_begins(&mut self, by: Tick, lease: Duration, master_changes: u64) -> Tick {
        // A reply after the end of the lease cannot save it, and waiting for it would delay the report of the loss.
        let by = by.min(self.until);
        self.latest = self.latest.max(by.after(lease));
        self.master_changes = master_changes;
        by
    }

    /// Such a round has ended. A majority has the lock until `until`; `gone` is the reason if none can have it.
    pub(super) fn round_ended(&mut self, is_confirmed: bool, until: Tick, gone: LostReason) {
        if self.now.is_live() {
            self.now = if is_confirmed { LeaseState::Held } else { LeaseState::Suspended };
            self.until = until.min(self.hold_end);
        }
        self.shorten(until, gone);
    }

    /// The lock is held until `until` at most: nodes that confirmed the lease do not have it any more. If no majority
    /// can have it, it is lost, and `gone` is the reason.
    pub(super) fn shorten(&mut self, until: Tick, gone: LostReason) {
        self.until = self.until.min(until);
        if until == Tick::ZERO {
            self.end(LeaseState::Lost(gone));
        }
    }

    pub(super) fn may_renew(&self) -> bool {
        self.renewals_left != Some(0)
    }

    pub(super) fn renewed(&mut self) {
        self.renewals_left = self.renewals_left.map(|left| left.saturating_sub(1));
    }

    /// Lets the release be sent again. False if the token may have a guard, or stays.
    pub(super) fn repeat_release(&mut self) -> bool {
        self.is_release_repeated |= self.is_dropped;
        self.is_dropped
    }

    /// Ends the lease in favour of the next thread, which gets the rest of it and the place of the queue head.
    pub(super) fn pass_on(&mut self, options: &LockOptions, now: Tick) -> LeaseStatus {
        self.end(LeaseState::Released);
        let head = self.head.take();
        LeaseStatus { latest: self.latest, head, ..LeaseStatus::held(options, now, self.until, self.master_changes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(until: u64, options: &LockOptions) -> LeaseStatus {
        LeaseStatus::held(options, Tick::ZERO, Tick::from_nanos(until), 0)
    }

    #[test]
    fn lost_and_released_are_final() {
        let options = LockOptions::default();
        let (at, gone) = (Tick::from_nanos, LostReason::Deleted);
        let mut state = held(10, &options);
        state.round_ended(false, at(10), gone);
        assert_eq!(state.now, LeaseState::Suspended);
        assert!(!state.is_overdue(at(9)) && state.is_overdue(at(10)));
        state.expire(at(10), &options);
        let lost = LeaseState::Lost(LostReason::Unreachable);
        assert_eq!(state.end(LeaseState::Lost(LostReason::Taken)), lost);
        assert_eq!(state.end(LeaseState::Released), lost);
        state.round_ended(true, Tick::NEVER, gone);
        assert_eq!(state.now, lost);
        assert!(!state.is_overdue(Tick::NEVER));

        let mut state = held(10, &options);
        state.round_ended(true, at(20), gone);
        assert_eq!((state.now, state.until), (LeaseState::Held, at(20)));
        assert_eq!(state.end(LeaseState::Released), LeaseState::Held);
        assert_eq!(state.end(LeaseState::Lost(LostReason::Taken)), LeaseState::Released);
        state.shorten(Tick::ZERO, gone);
        assert_eq!(state.now, LeaseState::Released);
    }

    #[test]
    fn a_round_that_finds_no_majority_says_why() {
        let options = LockOptions::default();
        let lost = |is_confirmed, until: u64, now| {
            let mut state = held(10, &options);
            state.round_ended(is_confirmed, Tick::from_nanos(until), LostReason::Taken);
            state.expire(Tick::from_nanos(now), &options);
            state.now
        };
        assert_eq!(lost(false, 0, 1), LeaseState::Lost(LostReason::Taken));
        assert_eq!(lost(false, 5, 5), LeaseState::Lost(LostReason::Unreachable));
        assert_eq!(lost(true, 5, 6), LeaseState::Lost(LostReason::Expired));
        assert_eq!(lost(false, 5, 4), LeaseState::Suspended);
        let mut state = held(10, &options);
        state.shorten(Tick::from_nanos(20), LostReason::Taken);
        assert_eq!((state.now, state.until), (LeaseState::Held, Tick::from_nanos(10)), "it is not extended");
    }

    #[test]
    fn only_the_release_of_a_dropped_guard_is_repeated() {
        let mut state = held(10, &LockOptions::default());
        assert!(!state.repeat_release());
        state.end(LeaseState::Released);
        assert!(!state.repeat_release(), "a guard that waits for its release is not dropped");
        assert!(!state.is_release_repeated);
        state.is_dropped = true;
        assert!(state.repeat_release() && state.repeat_release() && state.is_release_repeated);
    }
}
