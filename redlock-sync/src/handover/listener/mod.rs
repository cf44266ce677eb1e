//! How a client learns that a lock was granted to one of its waits: by one notification connection to its [notification
//! server](Quorum::notification_server). The waiting threads read that connection in turn.
//!
//! If only one thread waits, it reads by itself. If several wait, the thread that reads wakes those for which a
//! notification arrived. There is one connection, however many threads wait, and no thread wakes without a reason.
//!
//! 1. `notification.rs`: parses a notification.
//! 2. `connection_state.rs`: the state of the connection, and the heartbeat that shows whether it is alive.
//! 3. `waiter_table.rs`: which threads wait and which one reads. All of it is under one lock; the file states its
//!    invariant.
//! 4. `watching.rs`: how the other events that end a sleep are detected.
//! 5. `waiters.rs`: that lock, and the loop of a thread that waits.
//! 6. `connect.rs`: work in the background, such as subscribing.
//!
//! `tests/models` runs the first five under a scheduler that tries many orders of threads.

mod connect;
mod connection_state;
mod notification;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
mod waiter_table;
mod waiters;
mod watching;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use self::connect::WAKE_READER;
pub(crate) use self::connection_state::Subscription;
pub(crate) use self::notification::Notification;
pub(crate) use self::waiter_table::{Awaits, Woken};
use self::waiters::Waiters;
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::error::Error;
use crate::protocol::millis;
use crate::quorum::Quorum;
use crate::token::{random_part, wait_id};

/// What to do with a grant to a wait that this client no longer has. The text is the wait, as the servers know it.
/// Called in the background.
pub(crate) type OnLateGrant = Box<dyn Fn(&str, &Notification) + Send + Sync>;

/// The notification connection of a client, and the waits that it serves.
pub(crate) struct Listener {
    quorum: Arc<Quorum>,
    waiters: Arc<Waiters>,
    /// The steps of subscribing whose failure was logged.
    warned: Mutex<HashSet<&'static str>>,
    on_late_grant: OnLateGrant,
}

impl Listener {
    pub(crate) fn new(quorum: Arc<Quorum>, on_late_grant: OnLateGrant) -> Arc<Listener> {
        let listener = Arc::new_cyclic(|this: &Weak<Listener>| {
            let tasks = Box::new({
                let this = this.clone();
                move |task| {
                    if let Some(listener) = this.upgrade() {
                        listener.run(task);
                    }
                }
            });
            let waiters = Waiters::new(Arc::clone(&quorum.clock), quorum.settings.node_timeout, tasks);
            Listener { quorum, waiters, warned: Mutex::default(), on_late_grant }
        });
        let this = Arc::downgrade(&listener);
        listener.quorum.nodes.on_return(Box::new(move || {
            if let Some(listener) = this.upgrade() {
                listener.waiters.with(|table, _| table.servers_are_back());
            }
        }));
        listener
    }

    /// Registers a wait under a number that this client has never used before. If there is no connection, connects in
    /// the background.
    pub(crate) fn begin(self: &Arc<Listener>) -> ListenerWait {
        let number = self.waiters.with(|table, _| table.begin());
        ListenerWait { listener: Arc::clone(self), number, id: None, known: 0 }
    }

    /// True while a subscription is confirmed: notifications to waits that enter a server queue now will arrive.
    pub(crate) fn listens(&self) -> bool {
        self.waiters.with(|table, _| table.connection.subscription().is_some())
    }

    /// Ends all waits, for good. A message on the client's own channel wakes the thread that reads, since the crate
    /// `redis` gives no access to the socket. If the message does not arrive, the thread wakes within a second.
    pub(crate) fn close(&self) {
        if let Some(subscription) = self.waiters.with(|table, _| table.close()) {
            drop(self.publish(&subscription, WAKE_READER));
        }
    }
}

/// A registered wait, of a lock, a latch or a queue of tasks. It is over when it is dropped.
pub(crate) struct ListenerWait {
    listener: Arc<Listener>,
    number: u64,
    /// The id under which a lock's wait enters the server queues. `None` until its client listens, or knows that it
    /// cannot listen.
    pub(crate) id: Option<Arc<str>>,
    /// The generation of the subscription when the last attempt was made.
    known: u64,
}

impl ListenerWait {
    /// Where this client listens now; `None` while no subscription is confirmed.
    pub(crate) fn subscription(&self) -> Option<Subscription> {
        self.listener.waiters.with(|table, _| table.subscription(self.number))
    }

    /// Sleeps until then, or until a notification arrives, or until the client has subscribed again or was refused.
    /// That is reported once: [`subscription`](ListenerWait::subscription) marks it as seen. Notifications that arrived
    /// since the last sleep are returned first. A cancelled wait ends like the timer.
    pub(crate) fn sleep(&self, until: Tick, cancel: &Cancelling) -> Woken {
        self.listener.waiters.sleep(self.number, until, cancel.get())
    }

    /// Says that this wait may be in a server queue after its end. While other threads wait, later grants to it go to
    /// [`OnLateGrant`]. When no thread waits any more, the connection is closed, and the next one has a new channel.
    /// The servers then find that no connection receives messages on the old channel, and skip such waits.
    pub(crate) fn outlive(&self) {
        self.listener.waiters.with(|table, _| table.outlive(self.number));
    }

    /// Sets what else ends the sleeps of this wait from now on.
    pub(crate) fn await_also(&self, awaits: Awaits) {
        self.listener.waiters.with(|table, _| table.await_also(self.number, awaits));
    }

    /// True if the server refuses to subscribe, or to publish the message that confirms it. Then this wait has to poll.
    pub(crate) fn must_poll(&self) -> bool {
        self.listener.waiters.with(|table, _| table.polls())
    }

    /// True if the wait has an id with which it polls. Such ids begin with `-`; the servers cannot notify them.
    pub(crate) fn polls(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.starts_with('-'))
    }

    /// The id under which the servers can notify the wait; `None` while no subscription is confirmed.
    pub(crate) fn notified_id(&self) -> Option<Arc<str>> {
        self.subscription().map(|subscription| subscription.wait_id(self.number))
    }

    /// The id for the next attempt; `None` if the wait cannot enter a queue yet. The id changes if the client now
    /// listens on another channel. If the wait polls, its attempts are at most `pause` apart (`lua/push.lua`).
    /// `can_be_granted`: the lock can be granted to it. Then the random part of the token of the grant follows, which
    /// each id has for itself.
    pub(crate) fn next_id(&mut self, pause: Duration, can_be_granted: bool) -> Result<Option<Arc<str>>, Error> {
        let id = if let Some(subscription) = self.subscription() {
            self.known = subscription.generation;
            subscription.wait_id(self.number)
        } else if self.must_poll() && !self.polls() {
            format!("-{}:{}", millis(pause), random_part()?).into()
        } else {
            return Ok(self.id.clone());
        };
        if self.id.as_deref().is_some_and(|known| wait_id(known) == &*id) {
            return Ok(self.id.clone());
        }
        Ok(Some(if can_be_granted { format!("{id} {}", random_part()?).into() } else { id }))
    }

    /// The node on which the client listens.
    pub(crate) fn node(&self) -> Option<usize> {
        self.subscription().map(|subscription| subscription.node)
    }

    /// True if the client has subscribed again since the last attempt. Pushes from the time in between are lost.
    pub(crate) fn is_outdated(&self) -> bool {
        self.subscription().is_some_and(|subscription| subscription.generation != self.known)
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
