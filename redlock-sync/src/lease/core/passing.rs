//! Handing a lock that is held to the next thread of this process.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::{Core, Io, Streak};
use crate::clock::Tick;
use crate::config::{BREATHER, LONGEST_CHAIN, LONGEST_STREAK, MOST_IN_STREAK, RENEW_DIVISOR};
use crate::lease::Lease;
use crate::lease::state::{LeaseState, State};
use crate::node::Lane;
use crate::wait::Spot;

impl Core {
    /// Takes the lease over for the next thread in line, if there is one that wants it on the same terms: same token, same deadline, no
    /// round trip. Its fence is new: a holder's fence must exceed what the ones before him saw. Not for ever while other
    /// processes wait.
    pub(crate) fn pass_on(&self) -> Option<(Core, Arc<Spot<Lease>>)> {
        if !self.terms.is_plain() || !self.has_successor() {
            return None;
        }
        let streak = self.next_streak()?;
        // A round under way would report to the wrong lease; then it is released for real.
        let io = self.io.try_lock()?;
        let mut state = self.state.lock();
        let (lease, left) = (self.terms.lease, state.until.since(self.quorum.now()));
        // One that was extended is longer than the next thread has asked for.
        if state.now != LeaseState::Held || left < lease / RENEW_DIVISOR || left > lease {
            return None;
        }
        let mut turn = self.turn.lock();
        let spot = turn.as_ref()?.successor(&self.terms)?;
        state.release();
        let successor = Core {
            quorum: Arc::clone(&self.quorum),
            primitive: Arc::clone(&self.primitive),
            key: self.key.clone(),
            id: self.id.clone(),
            terms: self.terms.clone(),
            home: self.home.clone(),
            born: self.quorum.now(),
            hold_end: Tick::NEVER,
            origin: self.origin.clone(),
            streak,
            renewals: AtomicU32::new(0),
            backlog: Arc::clone(&self.backlog),
            state: Mutex::new(State { latest: state.latest, ..State::held(state.until) }),
            io: Mutex::new(Io { holding: io.holding.without_fence(), fence: None, haunted: io.haunted }),
            on_lost: Mutex::new(Vec::new()),
            turn: Mutex::new(turn.take()),
        };
        Some((successor, spot))
    }

    fn has_successor(&self) -> bool {
        self.turn.lock().as_ref().is_some_and(|turn| turn.has_successor(&self.terms))
    }

    /// Has the next of this process leave the key alone for a moment.
    pub(super) fn rest(&self) {
        if let Some(turn) = &*self.turn.lock() {
            turn.rests_for(BREATHER);
        }
    }

    /// The streak with one holder more; none if it is long enough and others wait. Who polls the key leaves no mark: for him it ends after
    /// a time, and the key is left alone for a moment.
    pub(super) fn next_streak(&self) -> Option<Streak> {
        let Streak { began, since, count } = self.streak;
        let now = self.quorum.now();
        if now.since(began) > LONGEST_CHAIN {
            self.rest();
            return None;
        }
        if now.since(since) < LONGEST_STREAK && count < MOST_IN_STREAK {
            return Some(Streak { count: count + 1, ..self.streak });
        }
        let call = self.primitive.waiters(&self.id, self.origin.waiter.as_deref());
        // Who does not know in a moment gives the lock up: a drop has no more than one node timeout in all.
        let by = self.quorum.now().after(self.quorum.limits.node_timeout / 4);
        let ballot = self.quorum.round(&call, Lane::Reserved, by, &|_| true);
        // The number of waiters stands where other calls have a fence.
        (ballot.tally().won() && ballot.largest_fence() == 0).then_some(Streak {
            began,
            since: self.quorum.now(),
            count: 0,
        })
    }
}
