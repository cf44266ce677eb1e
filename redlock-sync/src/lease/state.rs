//! The state of a lease, and its only transitions.
//!
//! | state | meaning | until | leaves to |
//! |---|---|---|---|
//! | Held | the last round was confirmed by a majority | the majority's mark | Suspended, Lost, Released |
//! | Suspended | the last renewal brought no majority; the lease still runs | the same mark | Held, Lost, Released |
//! | Lost | not held any more; final | - | - |
//! | Released | given up by its guard; final | - | - |

use crate::clock::Tick;
use crate::error::LostReason;

/// The state of a lease, which shows failing renewals before the lock is lost.
///
/// ```
/// # let server = redlock_tests::Server::start();
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

#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseStatus {
    pub(super) now: LeaseState,
    pub(super) until: Tick,
    /// No node keeps the lock for longer, whatever became of the extensions that were sent.
    pub(super) latest: Tick,
    /// The end of the minimum hold.
    pub(super) keep_until: Tick,
}

impl LeaseStatus {
    pub(super) fn held(until: Tick) -> LeaseStatus {
        LeaseStatus { now: LeaseState::Held, until, latest: until, keep_until: Tick::ZERO }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.now, LeaseState::Held | LeaseState::Suspended)
    }

    /// True if it is live but its time has passed. It then has to be declared lost.
    pub(super) fn is_overdue(&self, now: Tick) -> bool {
        self.is_live() && now >= self.until
    }

    /// Records the end of a round; does nothing unless live. Returns the state before and after it.
    pub(super) fn round_ended(&mut self, confirmed: bool, until: Tick) -> (LeaseState, LeaseState) {
        let before = self.now;
        if self.is_live() {
            self.now = if confirmed { LeaseState::Held } else { LeaseState::Suspended };
            self.until = until;
        }
        (before, self.now)
    }

    /// Moves the deadline forward, since nodes that confirmed the lease do not have it any more.
    pub(super) fn end_earlier(&mut self, until: Tick) {
        self.until = self.until.min(until);
    }

    /// Ends the lease for good, as lost or as released. True if this call did so.
    pub(super) fn end(&mut self, how: LeaseState) -> bool {
        let was_live = self.is_live();
        if was_live {
            self.now = how;
        }
        was_live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_released_are_final() {
        let mut state = LeaseStatus::held(Tick::from_nanos(10));
        state.round_ended(false, Tick::from_nanos(10));
        assert_eq!(state.now, LeaseState::Suspended);
        assert!(!state.is_overdue(Tick::from_nanos(9)) && state.is_overdue(Tick::from_nanos(10)));
        assert!(state.end(LeaseState::Lost(LostReason::Expired)));
        assert!(!state.end(LeaseState::Lost(LostReason::Taken)) && !state.end(LeaseState::Released));
        state.round_ended(true, Tick::NEVER);
        assert_eq!(state.now, LeaseState::Lost(LostReason::Expired));

        assert!(!state.is_live() && !state.is_overdue(Tick::NEVER));

        let mut state = LeaseStatus::held(Tick::from_nanos(10));
        state.round_ended(true, Tick::from_nanos(20));
        assert_eq!((state.now, state.until), (LeaseState::Held, Tick::from_nanos(20)));
        assert!(state.end(LeaseState::Released));
        assert!(!state.end(LeaseState::Lost(LostReason::Taken)));
        assert!(!state.is_overdue(Tick::NEVER));
    }
}
