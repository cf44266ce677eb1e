//! The order for a connection to one server, and the rounds that wait for it.

use std::sync::Arc;
use std::time::Duration;

use super::Failure;
use super::transport::round::Round;
use crate::clock::Tick;
use crate::sync::Mutex;

/// After a connection was announced, the pool needs at most about this long to hand it out.
const HAND_OUT: Duration = Duration::from_micros(100);

/// What became of the order. The supply, its pool and the events of the pool share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Order(Arc<Mutex<OrderState>>);

#[derive(Debug, Default)]
struct OrderState {
    is_ordered: bool,
    /// A connection has come and was not taken yet.
    is_here: bool,
    last_failure: Option<Failure>,
    /// The rounds that wait. Each change wakes and forgets them, so a round that has ended stays here until the next
    /// change: an attempt to connect ends within a node timeout.
    waiting: Vec<Arc<Round>>,
}

impl Order {
    /// Begins an order. Returns false if one is under way. Only one attempt at a time is made, so that a dead server
    /// does not block all threads that connect.
    pub(super) fn begin(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_ordered, true)
    }

    /// A connection is available, now or in a moment.
    pub(super) fn came(&self) {
        self.update(|state| (state.is_here, state.last_failure) = (true, None));
    }

    /// An attempt failed. The pool tries again, so the order goes on.
    pub(super) fn failed(&self, failure: Failure) {
        self.update(|state| state.last_failure = Some(failure));
    }

    /// An attempt failed, and no other follows until the next order.
    pub(super) fn gave_up(&self, failure: Failure) {
        self.update(|state| (state.is_ordered, state.last_failure) = (false, Some(failure)));
    }

    /// A connection was taken into use. All rounds are woken, because they share it.
    pub(super) fn taken(&self) {
        self.update(|state| (state.is_ordered, state.is_here, state.last_failure) = (false, false, None));
    }

    /// Changes the state. A round that goes on waiting registers again.
    fn update(&self, change: impl FnOnce(&mut OrderState)) {
        let mut state = self.0.lock();
        change(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for round in waiting {
            round.wake();
        }
    }

    /// Has the round woken at the next change.
    pub(super) fn register(&self, round: &Arc<Round>) {
        let waiting = &mut self.0.lock().waiting;
        if !waiting.iter().any(|other| Arc::ptr_eq(other, round)) {
            waiting.push(Arc::clone(round));
        }
    }

    /// True if a connection may be available.
    pub(super) fn is_here(&self) -> bool {
        self.0.lock().is_here
    }

    /// When a thread that waits looks again, unless its round is woken before.
    pub(super) fn next_look(&self, now: Tick) -> Tick {
        if self.is_here() { now.after(HAND_OUT) } else { Tick::NEVER }
    }

    /// Why the last attempt failed, if no connection has come since.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.0.lock().last_failure.clone()
    }
}
