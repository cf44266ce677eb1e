//! Hands a held lock to the next thread of this process.

use std::sync::Arc;

use super::{LeaseInner, LeaseStart, LocalHandover, RoundState};
use crate::handover::rules::{LONGEST_LOCAL_HANDOVER, MOST_LOCAL_HANDOVERS};
use crate::handover::thread_queue::{QueueHead, QueuedThread};
use crate::lease::Lease;
use crate::lease::state::LeaseState;
use crate::options::RENEW_DIVISOR;
use crate::protocol::reply::{Extended, Vote};

impl LeaseInner {
    /// The lease for the next thread in the queue, if that thread wants the lock with the same settings. It has the
    /// same token and deadline, and needs no round trip. Its fence is new, since a holder's fence must exceed those of
    /// earlier holders. `None` from time to time while other processes wait.
    pub(crate) fn pass_on(&self) -> Option<(LeaseInner, Arc<QueuedThread<Lease>>)> {
        let may_pass = self.options.can_change_hands() && self.keep().is_zero();
        if !may_pass || !self.has_successor() {
            return None;
        }
        // A round under way would report to the wrong lease. Most rounds end soon, such as the check of a suspect, and
        // a release would wait for it too. If a round takes longer, the lock is released instead.
        let mut rounds = self.rounds.try_lock_for(self.quorum.settings.handover_wait())?;
        let local = self.next_local_handover(&mut rounds)?;
        let mut state = self.state.lock();
        let (lease, left) = (self.options.lease, state.until.since(self.quorum.now()));
        // A lease that was extended is longer than the next thread has asked for.
        if state.now != LeaseState::Held || left < lease / RENEW_DIVISOR || left > lease {
            return None;
        }
        let thread = state.head.as_ref()?.successor(self.protocol().kind(), &self.options)?;
        let now = self.quorum.now();
        let successor = state.pass_on(&self.options, now);
        let start = LeaseStart {
            quorum: Arc::clone(&self.quorum),
            protocol: Arc::clone(self.protocol()),
            key: self.key.clone(),
            id: self.id.clone(),
            options: Arc::clone(&self.options),
            process: self.process.clone(),
            wait: self.wait.clone(),
        };
        let rounds = RoundState {
            expiry: rounds.expiry.clone(),
            offered_fence: None,
            fence: None,
            acquire_may_run: rounds.acquire_may_run,
            may_have: rounds.may_have.clone(),
        };
        Some((LeaseInner { local, ..LeaseInner::new(start, rounds, successor, now) }, thread))
    }

    /// True if threads of this process wait for the lock.
    pub(super) fn threads_wait(&self) -> bool {
        self.state.lock().head.as_ref().is_some_and(QueueHead::threads_wait)
    }

    fn has_successor(&self) -> bool {
        self.state.lock().head.as_ref().is_some_and(|head| head.has_successor(self.protocol().kind(), &self.options))
    }

    /// The run of hand-overs with one more. `None` if it is long enough, and other processes wait or a pause is due.
    pub(super) fn next_local_handover(&self, rounds: &mut RoundState) -> Option<LocalHandover> {
        let LocalHandover { since, count } = self.local;
        let now = self.quorum.now();
        if now.since(since) < LONGEST_LOCAL_HANDOVER && count < MOST_LOCAL_HANDOVERS {
            return Some(LocalHandover { count: count + 1, ..self.local });
        }
        let lease = self.next_lease();
        let call = self.protocol().lock()?.extend_and_count(&self.id, lease)?;
        // If the answer does not come soon, the lock is released: a drop has one node timeout in all.
        let ballot =
            self.extending_round(rounds, &call, lease, now.after(self.quorum.settings.handover_round()), false).ok()?;
        // While a cluster moves the slot, `waits` is `None`. That counts as no waits: no other client can acquire then.
        let has_waits = |vote: &Vote<Extended>| matches!(vote, Vote::Yes(Extended { waits: Some(1..) }));
        let is_uncontended = ballot.won() && !ballot.votes.iter().any(has_waits);
        is_uncontended.then(|| LocalHandover { since: self.quorum.now(), count: 0 })
    }
}
