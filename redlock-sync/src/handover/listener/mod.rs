//! How a client learns that a lock was granted to one of its waits: by one push connection, to its [wake node](Quorum::notification_server), which the waiting
//! threads read in turn.
//!
//! A lone waiting thread reads by itself, without a thread in between; with more of them the one that reads wakes those for which something came.
//! However many wait, there is one connection, and none of them wakes without a reason.
//!
//! 1. `pushed.rs`: what a push says.
//! 2. `push_connection.rs`: how the connection is, and the beat that tells whether it is alive.
//! 3. `ended.rs`: waits that are over, and may still have an entry in a queue.
//! 4. `table.rs`: which threads wait and which one reads: all that is under one lock, with what holds there.
//! 5. `awaits.rs`: what else ends a sleep; `watching.rs`: how that is noticed.
//! 6. `turns.rs`: that lock, and the loop of a thread that waits.
//! 7. `connect.rs`: subscribing, in the background.
//!
//! `tests/models` runs the first six under a scheduler that tries many orders of threads.

mod awaits;
mod connect;
mod ended;
mod push_connection;
mod pushed;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
mod waiter_table;
mod waiters;
mod watching;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

pub(crate) use self::awaits::Awaits;
use self::connect::{Cause, WAKE_READER};
pub(crate) use self::ended::OnLatePush;
pub(crate) use self::push_connection::Subscription;
pub(crate) use self::pushed::{Pushed, UnclaimedGrant};
use self::waiter_table::BackgroundTask;
pub(crate) use self::waiter_table::Woken;
use self::waiters::Waiters;
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::quorum::Quorum;

/// What becomes of a grant to a wait that this client does not have any more. Called in the background.
pub(crate) type OnUnclaimedGrant = Box<dyn Fn(&UnclaimedGrant) + Send + Sync>;

/// The push connection of a client, and the waits for which it is there.
pub(crate) struct Listener {
    quorum: Arc<Quorum>,
    waiters: Waiters,
    /// What was said once in the log.
    warned: Mutex<HashSet<Cause>>,
    on_unclaimed: OnceLock<OnUnclaimedGrant>,
    this: Weak<Listener>,
}

impl Listener {
    pub(crate) fn new(quorum: Arc<Quorum>) -> Arc<Listener> {
        let nodes = Arc::clone(&quorum);
        let listener = Arc::new_cyclic(|this: &Weak<Listener>| {
            let tasks = Box::new({
                let this = this.clone();
                move |task| {
                    if let Some(listener) = this.upgrade() {
                        listener.run(task);
                    }
                }
            });
            let waiters = Waiters::new(Arc::clone(&quorum.clock), quorum.limits.node_timeout, tasks);
            Listener { quorum, waiters, warned: Mutex::default(), on_unclaimed: OnceLock::new(), this: this.clone() }
        });
        let this = Arc::downgrade(&listener);
        nodes.nodes.on_return(Box::new(move || {
            if let Some(listener) = this.upgrade()
                && let Some(subscription) = listener.waiters.with(|table, _| table.servers_are_back())
            {
                listener.run(BackgroundTask::WakeReader(subscription));
            }
        }));
        listener
    }

    /// Set once, by the client.
    pub(crate) fn on_unclaimed_grant(&self, give_back: OnUnclaimedGrant) {
        _ = self.on_unclaimed.set(give_back);
    }

    /// Enters a wait: gives it a number that this client never used before. Starts to connect in the background if there is no connection.
    pub(crate) fn begin(self: &Arc<Listener>) -> ListenerWait {
        ListenerWait { number: self.waiters.with(|table, _| table.begin()), listener: Arc::clone(self) }
    }

    /// True while a subscription is confirmed: what this client marks can be pushed to it.
    pub(crate) fn listens(&self) -> bool {
        self.waiters.with(|table, _| table.connection.subscription().is_some())
    }

    /// Ends all waits, for good. The thread that reads is woken by a message on its own channel, since the crate `redis` gives no access to the
    /// socket; if the message does not get through, the thread wakes within a second.
    pub(crate) fn close(&self) {
        if let Some(subscription) = self.waiters.with(|table, _| table.close()) {
            drop(self.publish(&subscription, WAKE_READER, &[]));
        }
    }

    /// A wait that is over may still have an entry in a queue: what is pushed to it later goes to the ended wait, on the thread that reads. At most 1024
    /// ended waits; the oldest goes. When no thread waits any more the connection is closed, and the next one has a new channel: the servers
    /// find that no connection receives what they publish on the old one, and skip the entries of the ended waits.
    pub(crate) fn watch_ended(&self, wait_number: u64, ended: OnLatePush) {
        self.waiters.with(|table, now| table.watch_ended(wait_number, ended, now));
    }
}

/// A wait that has been entered; over when it is dropped.
pub(crate) struct ListenerWait {
    listener: Arc<Listener>,
    number: u64,
}

impl ListenerWait {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where this client listens now; `None` while no subscription is confirmed.
    pub(crate) fn subscription(&self) -> Option<Subscription> {
        self.listener.waiters.with(|table, _| table.subscription(self.number))
    }

    /// Waits until then, or for a push, or until a subscription is confirmed or refused of which this wait has not seen the
    /// [`subscription`](ListenerWait::subscription) yet. Pushes that came since the last sleep are returned first. The timer also ends when the wait is cancelled.
    pub(crate) fn sleep(&self, until: Tick, cancel: &Cancelling) -> Woken {
        let clock = &self.listener.quorum.clock;
        loop {
            let slice = cancel.slice(clock.now(), until);
            let woken = self.listener.waiters.sleep(self.number, slice);
            // Before the end of its slice something else has ended it.
            if woken != Woken::Timer || slice == until || clock.now() < slice || cancel.is_cancelled() {
                return woken;
            }
        }
    }

    /// What else ends the sleeps of this wait from now on.
    pub(crate) fn await_also(&self, awaits: Awaits) {
        self.listener.waiters.with(|table, _| table.await_also(self.number, awaits));
    }

    /// Subscribing was refused, or the publication that confirms it: this wait has to poll.
    pub(crate) fn polls(&self) -> bool {
        self.listener.waiters.with(|table, _| table.polls())
    }
}

impl Drop for ListenerWait {
    fn drop(&mut self) {
        self.listener.waiters.with(|table, now| table.end(self.number, now));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl fmt::Debug for ListenerWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListenerWait({})", self.number)
    }
}
