//! A lease that several threads of this process hold together.

use std::sync::Arc;
use std::time::Duration;

use super::LeaseInner;
use crate::clock::Tick;
use crate::error::Error;
use crate::lease::state::LeaseState;
use crate::options::RENEW_DIVISOR;
use crate::protocol::reply::{Extended, Vote};
use crate::protocol::{Protocol, ReadWrite};

impl LeaseInner {
    /// True if one more thread may join at that moment: the lease is surely held, and for long enough to be renewed.
    pub(crate) fn is_fresh(&self, now: Tick) -> bool {
        self.is_held_for(self.options.lease / RENEW_DIVISOR, now)
    }

    /// Like `check`, for a thread that began to leave at `began` while others may stay. A thread without handlers calls
    /// none: the renewal thread calls those of the others.
    pub(crate) fn check_at_leave(&self, began: Tick, has_handlers: bool) -> Result<(), Error> {
        match self.is_held_for(Duration::ZERO, began) {
            true => Ok(()),
            false if has_handlers => self.check(),
            false => self.still_ours(),
        }
    }

    fn is_held_for(&self, left: Duration, now: Tick) -> bool {
        let state = self.state.lock();
        state.now == LeaseState::Held && now.after(left) < state.until
    }

    /// Asks the servers whether the lock is still held and no writer waits for it, and extends it in the same round.
    /// False without a majority. The renewal thread calls the loss handlers.
    pub(crate) fn no_writer_waits(&self) -> bool {
        let Some(mut rounds) = self.rounds.try_lock_for(self.quorum.settings.node_timeout) else { return false };
        let Some(lock) = self.protocol().lock().and_then(Protocol::read_write) else { return false };
        let lease = self.next_lease();
        let call = lock.extend_and_check_writers(&self.id, lease);
        let ballot = self.extending_round(&mut rounds, &call, lease, self.quorum.round_deadline(), false);
        let has_writer = |vote: &Vote<Extended>| matches!(vote, Vote::Yes(Extended { waits: Some(1..) }));
        ballot.is_ok_and(|ballot| ballot.won() && !ballot.votes.iter().any(has_writer))
    }

    /// Shares an exclusive lock. Waits up to half a node timeout for a round under way. The outcome of the call need
    /// not be known. A node has the token as a writer or as a reader, both keep writers out, and the next renewal
    /// changes the rest.
    pub(crate) fn downgrade(&self) -> Result<(), Error> {
        self.still_ours()?;
        let lock = self.protocol().lock().and_then(Protocol::read_write);
        let Some(reader) = lock.map(ReadWrite::shared) else { return Ok(()) };
        let rounds = self.rounds.try_lock_for(self.quorum.settings.half_round());
        // Set before the call: later rounds must not ask for an exclusive lock.
        self.downgraded.get_or_init(|| Arc::new(Protocol::ReadWrite(reader.clone())));
        if let Some(mut rounds) = rounds {
            rounds.offered_fence = None;
            rounds.fence = None;
            let lease = self.next_lease();
            let call = reader.downgrade(&self.id, lease);
            self.extending_round(&mut rounds, &call, lease, self.quorum.round_deadline(), false)?;
        }
        self.still_ours()
    }
}
