//! A lease that several threads of this process hold together.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::clock::Tick;
use crate::error::Error;
use crate::lease::state::LeaseState;
use crate::options::RENEW_DIVISOR;
use crate::protocol::reply::{Extended, Vote};
use crate::protocol::{Protocol, ReadWrite};

impl Core {
    /// One more thread may have it: at that moment it is surely held, and for long enough to be renewed.
    pub(crate) fn is_fresh(&self, now: Tick) -> bool {
        self.is_held_for(self.options.lease / RENEW_DIVISOR, now)
    }

    /// As `check`, for a thread that began to leave then, while others may stay. One without handlers calls none: those of the others are left to the
    /// renewal thread.
    pub(crate) fn check_at_leave(&self, began: Tick, has_handlers: bool) -> Result<(), Error> {
        match self.is_held_for(Duration::ZERO, began) {
            true => Ok(()),
            false if has_handlers => self.check(),
            false => self.still_ours(),
        }
    }

    fn is_held_for(&self, left: Duration, now: Tick) -> bool {
        let state = *self.state.lock();
        state.now == LeaseState::Held && now.after(left) < state.until
    }

    /// Asks the servers whether the lock is held and keeps no wait out that wants it alone; lengthens it in the same round. False without a majority.
    /// The renewal thread calls the handlers of a loss.
    pub(crate) fn keeps_none_out(&self) -> bool {
        self.check_waits().unwrap_or(false)
    }

    fn check_waits(&self) -> Option<bool> {
        let mut io = self.io.try_lock_for(self.quorum.limits.node_timeout)?;
        self.still_ours().ok()?;
        let lease = self.next_lease(self.quorum.now());
        let call = self.protocol().read_write()?.extend_and_check_writers(&self.id, lease);
        let ballot = self.lengthening_round(&mut io, &call, lease, self.quorum.round_deadline());
        let keeps_out = |vote: &Vote<Extended>| matches!(vote, Vote::Yes(Extended { waits: Some(1..) }));
        Some(ballot.tally().won() && !ballot.votes.iter().any(keeps_out))
    }

    /// Shares the lock from now on, that was held alone. Waits up to half a node timeout for a round under way. What becomes of the call need not be known: a node has
    /// the token in one form or the other, both keep writers out, and the next renewal changes what is left.
    pub(crate) fn downgrade(&self) -> Result<(), Error> {
        self.and_tell_loss(self.step_down())
    }

    fn step_down(&self) -> Result<(), Error> {
        self.still_ours()?;
        let Some(shared) = self.protocol().read_write().map(ReadWrite::shared) else { return Ok(()) };
        let io = self.io.try_lock_for(self.quorum.limits.node_timeout / 2);
        // Before the call: rounds after it must not ask for the lock alone.
        let shared = self.downgraded.get_or_init(|| Arc::new(Protocol::ReadWrite(shared)));
        if let (Some(mut io), Some(reader)) = (io, shared.read_write()) {
            io.offered_fence = None;
            io.fence = None;
            let lease = self.next_lease(self.quorum.now());
            let call = reader.downgrade(&self.id, lease);
            self.lengthening_round(&mut io, &call, lease, self.quorum.round_deadline());
        }
        self.still_ours()
    }
}
