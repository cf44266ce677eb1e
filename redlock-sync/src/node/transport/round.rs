//! A round: the outcomes of the calls of one thread, to one server or several. One mutex guards them. The thread checks
//! them and begins to sleep under this mutex, and each outcome is set under it. So no outcome is missed. No other mutex
//! is locked while this one is held. A thread that waits for a connection sleeps here too ([`Round::wake`]).

use std::sync::Arc;

use smallvec::SmallVec;

use super::framer::WireReply;
use super::halves::Broken;
use crate::clock::{Clock, Tick};
use crate::sync::{Condvar, Mutex, MutexGuard, YIELDS, thread};

/// What became of a call.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Replied(WireReply),
    /// The reply to the call, and the reply to the `WAIT` after it.
    Acknowledged {
        reply: WireReply,
        replicas: WireReply,
    },
    /// The connection broke or was closed.
    Disconnected {
        /// True if the server may have received the call.
        was_written: bool,
        why: Arc<Broken>,
    },
}

/// Receives the outcome of a call for which no thread waits, once. `None`: there was no reply within a node timeout,
/// and the call may still be executed. It is called without any mutex. It must not wait, run code of users, or lock a
/// mutex that is held while something is sent.
pub(crate) type Callback = Box<dyn FnOnce(Option<Outcome>) + Send>;

/// Where the outcome of a call goes.
#[derive(Default)]
pub(crate) enum Recipient {
    /// The thread of a round, and the index of the call there.
    Round(Arc<Round>, usize),
    Callback(Callback),
    /// No thread waits for it.
    #[default]
    Nobody,
}

impl Recipient {
    /// Must be called without any mutex.
    pub(super) fn deliver(self, outcome: Outcome) {
        match self {
            Recipient::Round(round, index) => round.deliver(index, outcome),
            Recipient::Callback(callback) => callback(Some(outcome)),
            Recipient::Nobody => {}
        }
    }
}

/// The outcomes of the calls of one thread.
#[derive(Debug)]
pub(crate) struct Round {
    waiter: Mutex<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    slots: SmallVec<[Slot; 1]>,
    /// The number of outcomes that came.
    came: usize,
    /// The number of outcomes after which the thread looks at them. 0 after [`Round::wake`].
    enough: usize,
    /// Made at the first sleep. Mostly the thread reads, and does not sleep.
    changed: Option<Arc<Condvar>>,
    is_asleep: bool,
    /// It was woken to read.
    reads_next: bool,
}

/// The state of one call.
#[derive(Debug, Default)]
enum Slot {
    /// Not sent, or the outcome was taken.
    #[default]
    Empty,
    Awaited,
    Done(Outcome),
    /// The thread has given it up.
    Abandoned,
}

impl Waiter {
    fn is_awaited(&self, index: usize) -> bool {
        matches!(self.slots.get(index), Some(Slot::Awaited))
    }

    /// True while the thread has to go on waiting. If a connection broke, or a server returned an error such as
    /// `NOSCRIPT`, the thread does not wait for the other servers. It may send the call again. If no call is on its
    /// way, the thread waits for a connection.
    fn is_pending(&self) -> bool {
        let may_be_repeated = |slot: &Slot| match slot {
            Slot::Done(Outcome::Disconnected { .. }) => true,
            Slot::Done(Outcome::Replied(reply)) => reply.is_error(),
            _ => false,
        };
        self.came < self.enough
            && !self.slots.iter().any(may_be_repeated)
            && (self.slots.iter().any(|slot| matches!(slot, Slot::Awaited))
                || !self.slots.iter().any(|slot| matches!(slot, Slot::Done(_))))
    }

    /// True while the thread has nothing to do.
    fn sleeps(&self) -> bool {
        self.is_asleep && self.is_pending()
    }
}

fn notify_if_over(waiter: MutexGuard<'_, Waiter>) {
    let is_over = waiter.is_asleep && !waiter.is_pending();
    let changed = waiter.changed.clone().filter(|_| is_over);
    drop(waiter);
    // Unlocked before the notification. The thread checks under the mutex before it sleeps.
    if let Some(changed) = changed {
        changed.notify_one();
    }
}

impl Round {
    /// A round of this many calls.
    pub(crate) fn new(calls: usize) -> Arc<Round> {
        let slots = (0..calls).map(|_| Slot::Empty).collect();
        let waiter = Waiter { slots, came: 0, enough: usize::MAX, changed: None, is_asleep: false, reads_next: false };
        Arc::new(Round { waiter: Mutex::new(waiter) })
    }

    /// Where the outcome of the call with this index goes. An index has one call on its way at a time.
    pub(crate) fn recipient(self: &Arc<Self>, index: usize) -> Recipient {
        if let Some(slot) = self.waiter.lock().slots.get_mut(index) {
            *slot = Slot::Awaited;
        }
        Recipient::Round(Arc::clone(self), index)
    }

    fn deliver(&self, index: usize, outcome: Outcome) {
        let mut waiter = self.waiter.lock();
        let Some(slot) = waiter.slots.get_mut(index).filter(|slot| matches!(slot, Slot::Awaited)) else { return };
        *slot = Slot::Done(outcome);
        waiter.came += 1;
        notify_if_over(waiter);
    }

    /// Ends the wait: a connection that the thread waits for may be there, or may have failed.
    pub(crate) fn wake(&self) {
        let mut waiter = self.waiter.lock();
        waiter.enough = 0;
        notify_if_over(waiter);
    }

    /// The thread looks at the outcomes and for connections now. What comes after this call ends the next wait at once.
    /// Returns the number of outcomes that came before.
    pub(crate) fn look(&self) -> usize {
        let mut waiter = self.waiter.lock();
        waiter.enough = usize::MAX;
        waiter.came
    }

    /// Ends the next wait once this many outcomes have come. Each one counts at most once, also if it was taken.
    pub(crate) fn ends_after(&self, enough: usize) {
        let mut waiter = self.waiter.lock();
        waiter.enough = waiter.enough.min(enough);
    }

    /// Takes the outcome, if there is one.
    pub(crate) fn take(&self, index: usize) -> Option<Outcome> {
        let mut waiter = self.waiter.lock();
        let slot = waiter.slots.get_mut(index).filter(|slot| matches!(slot, Slot::Done(_)))?;
        match std::mem::take(slot) {
            Slot::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Gives up a call. Returns false if it has an outcome.
    pub(crate) fn give_up(&self, index: usize) -> bool {
        let mut waiter = self.waiter.lock();
        let slot = waiter.slots.get_mut(index).filter(|slot| matches!(slot, Slot::Awaited));
        slot.map(|slot| *slot = Slot::Abandoned).is_some()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.waiter.lock().is_pending()
    }

    pub(super) fn is_awaited(&self, index: usize) -> bool {
        self.waiter.lock().is_awaited(index)
    }

    /// True while the thread has to go on waiting for this call.
    pub(super) fn awaits(&self, index: usize) -> bool {
        let waiter = self.waiter.lock();
        waiter.is_awaited(index) && waiter.is_pending()
    }

    // --- sleeping ----------------------------------------------------------------------------------------------------

    /// Has the thread of this round read next, if it sleeps. Returns what to notify, without the mutex of a connection.
    pub(super) fn reads_next(&self) -> Option<Arc<Condvar>> {
        let mut waiter = self.waiter.lock();
        if !std::mem::take(&mut waiter.is_asleep) {
            return None;
        }
        waiter.reads_next = true;
        waiter.changed.clone()
    }

    /// True if the thread was woken to read.
    pub(super) fn is_to_read(&self) -> bool {
        self.waiter.lock().reads_next
    }

    /// Returns whether the thread was woken to read, and forgets it.
    pub(super) fn take_reads_next(&self) -> bool {
        std::mem::take(&mut self.waiter.lock().reads_next)
    }

    /// The thread is about to sleep. From now on it can be woken.
    pub(super) fn begin_sleep(&self) -> Arc<Condvar> {
        let mut waiter = self.waiter.lock();
        waiter.is_asleep = true;
        Arc::clone(waiter.changed.get_or_insert_with(|| Arc::new(Condvar::new())))
    }

    /// Sleeps until an outcome ends the wait, or the thread shall read, or until then. Without `until` it does not
    /// sleep. Mostly the outcome comes in a moment: a thread that lets others run first rarely has to be woken.
    pub(super) fn sleep(&self, changed: &Arc<Condvar>, until: Option<Tick>, clock: &dyn Clock) {
        for _ in 0..YIELDS {
            if until.is_none() || !self.waiter.lock().sleeps() {
                break;
            }
            thread::yield_now();
        }
        let mut waiter = self.waiter.lock();
        if let Some(until) = until
            && waiter.sleeps()
        {
            clock.wait_until(changed, &mut waiter, until);
        }
        waiter.is_asleep = false;
    }
}
