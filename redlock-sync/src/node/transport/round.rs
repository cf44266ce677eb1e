//! A round: the calls of one thread, to one server or several, and how the thread waits for their outcomes.
//!
//! The thread reads from the connections with its unanswered calls, one at a time. If other threads read from all of
//! them, it sleeps. A thread that stops reading wakes one of the sleeping threads, which reads next. So somebody reads
//! as long as somebody sleeps:
//!
//! 1. The thread goes to sleep only after it has seen, under the mutex of each of these connections, that the reading
//!    half is away. Under the same mutex it has marked its call. Who brings the half back finds the mark.
//! 2. A thread that was woken to read either takes the half, or wakes the next one ([`Round::pass_on`]), or finds
//!    that another thread has taken it. That thread will bring it back.
//! 3. The thread that was woken may get no processor time. So each sleeping thread looks again after an eighth of a node
//!    timeout, and takes a half that lies there.
//!
//! One mutex guards all outcomes of a round. The thread checks them and begins to sleep under this mutex, and each
//! outcome is set under it. So no outcome is missed. No other mutex is locked while this one is held.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::connection::Connection;
use super::framer::WireReply;
use super::halves::Broken;
use crate::clock::{Clock, Tick};
use crate::sync::{Condvar, Mutex};

/// With several servers, a thread reads from one connection for this long at first, and then twice as long each time.
const FIRST_SLICE: Duration = Duration::from_millis(1);

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

/// Receives the outcome of a call for which no thread waits, once. `None`: there was no reply within a node timeout, and
/// the call may still be executed. It is called without any mutex. It must not wait, run code of users, or lock a mutex
/// that is held while something is sent.
pub(crate) type Callback = Box<dyn FnOnce(Option<Outcome>) + Send>;

/// Where the outcome of a call goes.
#[derive(Default)]
pub(crate) enum Recipient {
    /// The thread of a round, and the index of the call there.
    Round(Arc<Round>, usize),
    Callback(Callback),
    /// The thread has given the call up.
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

/// A call of a round that is on its way.
pub(crate) struct SentCall {
    /// Its index in the round.
    pub(crate) index: usize,
    pub(crate) connection: Arc<Connection>,
    /// Its number on the connection.
    pub(crate) number: u64,
}

/// The outcomes of the calls of one thread.
pub(crate) struct Round {
    waiter: Mutex<Waiter>,
}

struct Waiter {
    slots: SmallVec<[Slot; 1]>,
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
    /// True while the thread has to go on waiting. If a connection broke, or a server returned an error such as
    /// `NOSCRIPT`, the thread does not wait for the other servers. It may send the call again.
    fn is_pending(&self) -> bool {
        let may_be_repeated = |slot: &Slot| match slot {
            Slot::Done(Outcome::Disconnected { .. }) => true,
            Slot::Done(Outcome::Replied(reply)) => reply.is_error(),
            _ => false,
        };
        !self.slots.iter().any(may_be_repeated) && self.slots.iter().any(|slot| matches!(slot, Slot::Awaited))
    }
}

impl Round {
    /// A round of this many calls.
    pub(crate) fn new(calls: usize) -> Arc<Round> {
        let slots = (0..calls).map(|_| Slot::Empty).collect();
        Arc::new(Round { waiter: Mutex::new(Waiter { slots, changed: None, is_asleep: false, reads_next: false }) })
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
        let is_over = waiter.is_asleep && !waiter.is_pending();
        let changed = waiter.changed.clone().filter(|_| is_over);
        drop(waiter);
        // Unlocked before the notification. The thread checks the slots under the mutex before it sleeps.
        if let Some(changed) = changed {
            changed.notify_one();
        }
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

    fn is_awaited(&self, index: usize) -> bool {
        self.waiter.lock().slots.get(index).is_some_and(|slot| matches!(slot, Slot::Awaited))
    }

    /// True while the thread has to go on waiting for this call.
    pub(super) fn awaits(&self, index: usize) -> bool {
        let waiter = self.waiter.lock();
        matches!(waiter.slots.get(index), Some(Slot::Awaited)) && waiter.is_pending()
    }

    /// Has the thread of this round read next, if it sleeps. Returns what to notify, without the mutex of a connection.
    pub(super) fn reads_next(&self) -> Option<Arc<Condvar>> {
        let mut waiter = self.waiter.lock();
        if !std::mem::take(&mut waiter.is_asleep) {
            return None;
        }
        waiter.reads_next = true;
        waiter.changed.clone()
    }

    /// Waits until each call has an outcome, or a connection broke, or until the deadline. Replies that have arrived by
    /// then are read. Returns false if the deadline ended the wait.
    pub(crate) fn wait(&self, sent: &[SentCall], by: Tick, clock: &dyn Clock) -> bool {
        let node_timeout = sent.iter().map(|call| call.connection.node_timeout).max().unwrap_or_default();
        let longest_slice = node_timeout / 8;
        let mut slice = FIRST_SLICE;
        let is_over = loop {
            let has_read = self.read_in_turn(sent, by, slice, clock);
            slice = longest_slice.min(slice * 2);
            if !self.waiter.lock().is_pending() {
                break true;
            }
            let now = clock.now();
            if now >= by {
                // What has arrived by now is read.
                self.read_in_turn(sent, now, Duration::ZERO, clock);
                break !self.waiter.lock().is_pending();
            }
            if !has_read {
                self.sleep(sent, by.min(now.after(longest_slice)), clock);
            }
        };
        self.pass_on(sent, |_| true);
        is_over
    }

    /// Reads from one connection after the other, where no other thread reads. Never has two reading halves, because
    /// the other threads of the second connection would wait for the first one. Returns whether it has read.
    fn read_in_turn(&self, sent: &[SentCall], by: Tick, slice: Duration, clock: &dyn Clock) -> bool {
        let mut has_read = false;
        for SentCall { index, connection, .. } in sent {
            if self.awaits(*index) {
                let until = if sent.len() > 1 { by.min(clock.now().after(slice)) } else { by };
                self.pass_on(sent, |other| !Arc::ptr_eq(other, connection));
                has_read |= connection.read_for(self, *index, until);
            }
        }
        has_read
    }

    /// Wakes other threads to read from these connections, if this thread was woken to do so.
    fn pass_on(&self, sent: &[SentCall], from: impl Fn(&Arc<Connection>) -> bool) {
        let reads_next = std::mem::take(&mut self.waiter.lock().reads_next);
        if reads_next {
            let others = sent.iter().filter(|call| from(&call.connection));
            others.for_each(|call| call.connection.wake_a_reader());
        }
    }

    /// Sleeps until an outcome ends the wait, or the thread shall read, or until then. Returns at once if the thread can
    /// read.
    fn sleep(&self, sent: &[SentCall], until: Tick, clock: &dyn Clock) {
        // Before the marks. Who finds a mark looks at this.
        let changed = {
            let mut waiter = self.waiter.lock();
            waiter.is_asleep = true;
            Arc::clone(waiter.changed.get_or_insert_with(|| Arc::new(Condvar::new())))
        };
        let can_sleep = sent.iter().all(|call| !self.is_awaited(call.index) || call.connection.may_sleep(call.number));
        let mut waiter = self.waiter.lock();
        if can_sleep && waiter.is_asleep && waiter.is_pending() {
            clock.wait_until(&changed, &mut waiter, until);
        }
        waiter.is_asleep = false;
    }
}

/// Waits until the callbacks of these connections have been called, until the deadline at most. Then they are told that
/// no reply came in time. A callback can send its call again.
pub(crate) fn finish(all: &dyn Fn() -> Vec<Arc<Connection>>, until: Tick, clock: &dyn Clock) {
    loop {
        let busy: Vec<_> = all().into_iter().filter(|connection| connection.has_callbacks()).collect();
        if busy.is_empty() {
            return;
        }
        if clock.now() >= until {
            return busy.iter().for_each(|connection| connection.give_up_callbacks());
        }
        let round = Round::new(busy.len());
        let ping = |(index, connection): (usize, Arc<Connection>)| {
            let number = connection.ping(round.recipient(index));
            SentCall { index, connection, number }
        };
        let pings: Vec<SentCall> = busy.into_iter().enumerate().map(ping).collect();
        // The reply to a `PING` comes behind all others. If a connection breaks, its callbacks are called at once.
        round.wait(&pings, until, clock);
        for SentCall { index, connection, number } in &pings {
            if round.give_up(*index) {
                connection.abandon(*number);
            }
        }
    }
}
