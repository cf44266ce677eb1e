//! How a client learns that a lock was granted to one of its waits: by one push connection, to its [wake node](Quorum::wake_node), which the waiting
//! threads read in turn.
//!
//! A lone waiting thread reads by itself, without a thread in between; with more of them the one that reads wakes those for which something came.
//! However many wait, there is one connection, and none of them wakes without a reason.
//!
//! 1. `pushed.rs`: what a push says.
//! 2. `connection.rs`: how the connection is, and the beat that tells whether it is alive.
//! 3. `ended.rs`: waits that are over, and may still have an entry in a queue.
//! 4. `desk.rs`: which threads wait and which one reads: all that is under one lock, with what holds there.
//! 5. `awaits.rs`: what else ends a sleep; `watching.rs`: how that is noticed.
//! 6. `turns.rs`: that lock, and the loop of a thread that waits.
//! 7. `connect.rs`: subscribing, in the background.
//!
//! `tests/models` runs the first six under a scheduler that tries many orders of threads.

mod awaits;
mod connect;
mod connection;
mod desk;
mod ended;
mod pushed;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
mod turns;
mod watching;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

pub(crate) use self::awaits::Awaits;
use self::connect::{Cause, LOOK};
pub(crate) use self::connection::Subscription;
use self::desk::Errand;
pub(crate) use self::desk::Woken;
pub(crate) use self::ended::OnLatePush;
pub(crate) use self::pushed::{Pushed, Stray};
use self::turns::Turns;
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::quorum::Quorum;

/// What becomes of a grant to a wait that this client does not have any more. Called in the background.
pub(crate) type OnStray = Box<dyn Fn(&Stray) + Send + Sync>;

/// The push connection of a client, and the waits for which it is there.
pub(crate) struct Listener {
    quorum: Arc<Quorum>,
    turns: Turns,
    /// What was said once in the log.
    warned: Mutex<HashSet<Cause>>,
    strays: OnceLock<OnStray>,
    this: Weak<Listener>,
}

impl Listener {
    pub(crate) fn new(quorum: Arc<Quorum>) -> Arc<Listener> {
        let nodes = Arc::clone(&quorum);
        let listener = Arc::new_cyclic(|this: &Weak<Listener>| {
            let errands = Box::new({
                let this = this.clone();
                move |errand| {
                    if let Some(listener) = this.upgrade() {
                        listener.run(errand);
                    }
                }
            });
            let turns = Turns::new(Arc::clone(&quorum.clock), quorum.limits.node_timeout, errands);
            Listener { quorum, turns, warned: Mutex::default(), strays: OnceLock::new(), this: this.clone() }
        });
        let this = Arc::downgrade(&listener);
        nodes.nodes.on_return(Box::new(move || {
            if let Some(listener) = this.upgrade()
                && let Some(subscription) = listener.turns.with(|desk, _| desk.servers_are_back())
            {
                listener.run(Errand::Wake(subscription));
            }
        }));
        listener
    }

    /// Set once, by the client.
    pub(crate) fn on_stray(&self, give_back: OnStray) {
        _ = self.strays.set(give_back);
    }

    /// Enters a wait: gives it a number that this client never used before. Starts to connect in the background if there is no connection.
    pub(crate) fn begin(self: &Arc<Listener>) -> Wait {
        Wait { number: self.turns.with(|desk, _| desk.begin()), listener: Arc::clone(self) }
    }

    /// True while a subscription is confirmed: what this client marks can be pushed to it.
    pub(crate) fn listens(&self) -> bool {
        self.turns.with(|desk, _| desk.connection.subscription().is_some())
    }

    /// Ends all waits, for good. The thread that reads is woken by a message on its own channel, since the crate `redis` gives no access to the
    /// socket; if the message does not get through, the thread wakes within a second.
    pub(crate) fn close(&self) {
        if let Some(subscription) = self.turns.with(|desk, _| desk.close()) {
            drop(self.publish(&subscription, LOOK, &[]));
        }
    }

    /// A wait that is over may still have an entry in a queue: what is pushed to it later goes to the ended wait, on the thread that reads. At most 1024
    /// ended waits; the oldest goes. When no thread waits any more the connection is closed, and the next one has a new channel: the servers
    /// find that no connection receives what they publish on the old one, and skip the entries of the ended waits.
    pub(crate) fn watch_ended(&self, wait_number: u64, ended: OnLatePush) {
        self.turns.with(|desk, now| desk.watch_ended(wait_number, ended, now));
    }
}

/// A wait that has been entered; over when it is dropped.
pub(crate) struct Wait {
    listener: Arc<Listener>,
    number: u64,
}

impl Wait {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where this client listens now; `None` while no subscription is confirmed.
    pub(crate) fn subscription(&self) -> Option<Subscription> {
        self.listener.turns.with(|desk, _| desk.subscription(self.number))
    }

    /// Waits until then, or for a push, or until a subscription is confirmed or refused of which this wait has not seen the
    /// [`subscription`](Wait::subscription) yet. Pushes that came since the last sleep are returned first. The timer also ends when the wait is cancelled.
    pub(crate) fn sleep(&self, until: Tick, cancel: &Cancelling) -> Woken {
        let clock = &self.listener.quorum.clock;
        loop {
            let slice = cancel.slice(clock.now(), until);
            let woken = self.listener.turns.sleep(self.number, slice);
            // Before the end of its slice something else has ended it.
            if woken != Woken::Timer || slice == until || clock.now() < slice || cancel.is_cancelled() {
                return woken;
            }
        }
    }

    /// What else ends the sleeps of this wait from now on.
    pub(crate) fn await_also(&self, awaits: Awaits) {
        self.listener.turns.with(|desk, _| desk.await_also(self.number, awaits));
    }

    /// Subscribing was refused, or the publication that confirms it: this wait has to poll.
    pub(crate) fn polls(&self) -> bool {
        self.listener.turns.with(|desk, _| desk.polls())
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.listener.turns.with(|desk, now| desk.end(self.number, now));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait({})", self.number)
    }
}
