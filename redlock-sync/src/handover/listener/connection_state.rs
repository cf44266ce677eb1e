//! The state of the notification connection, and whether it is still alive.
//!
//! A reset is noticed at once. The **heartbeat** detects a silent break. The client publishes a message on its own
//! channel each second, or every two seconds while all its waits are for tasks. The connection has failed if no
//! connection receives the message. It has also failed if the message does not arrive within a node timeout after the
//! server has sent it. If the call itself gets no answer, something else is wrong, which a new notification connection
//! would not repair. The next heartbeat is then a second later.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::node::Subscriber;

/// A heartbeat is requested this long after the last one. No read takes longer either, since a wait can begin during
/// it.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval while all waits are for tasks.
pub(super) const RARE_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// A heartbeat without any outcome is forgotten after this time.
const LOST_HEARTBEAT: Duration = Duration::from_secs(5);
/// The pause before the next attempt to connect: the first, and the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time for which a read waits.
const SHORTEST: Duration = Duration::from_millis(1);

/// Where a client listens: a subscription that the server has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) node: usize,
    pub(crate) channel: Arc<str>,
    /// A number that is larger than those of the client's earlier subscriptions.
    pub(crate) generation: u64,
}

impl Subscription {
    /// The id of a wait that is notified here.
    pub(super) fn wait_id(&self, number: u64) -> Arc<str> {
        format!("{}/{number}", self.channel).into()
    }
}

#[derive(Default)]
pub(super) enum ConnectionState {
    /// There is no connection, and none is made: no thread waits.
    #[default]
    Down,
    /// An attempt to connect is under way or planned.
    Coming,
    Up(Up),
}

impl ConnectionState {
    pub(super) fn subscription(&self) -> Option<&Subscription> {
        if let ConnectionState::Up(up) = self { Some(&up.subscription) } else { None }
    }
}

/// The state of the heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// No heartbeat is under way.
    Idle,
    Requested,
    /// The server has sent it, so it has to arrive.
    Sent(Tick),
    /// Nothing arrives on this connection, or another node is the notification server.
    Failed,
}

/// An open connection with a confirmed subscription.
pub(super) struct Up {
    pub(super) subscription: Subscription,
    /// `None` while a thread reads.
    pub(super) conn: Option<Box<dyn Subscriber>>,
    /// When it was made.
    pub(super) since: Tick,
    /// When the current read, or the last one, began.
    pub(super) reads_since: Tick,
    /// When the last heartbeat was requested.
    requested_at: Tick,
    heartbeat: Heartbeat,
}

impl Up {
    pub(super) fn new(subscription: Subscription, conn: Box<dyn Subscriber>, now: Tick) -> Up {
        Up {
            subscription,
            conn: Some(conn),
            since: now,
            reads_since: now,
            requested_at: now,
            heartbeat: Heartbeat::Idle,
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.heartbeat == Heartbeat::Failed
    }

    /// Called when a read begins. Returns whether a heartbeat must be sent, and how long the read may take.
    pub(super) fn before_read(&mut self, now: Tick, timeout: Duration, every: Duration) -> (bool, Duration) {
        self.reads_since = now;
        let (since_request, longest) = (now.since(self.requested_at), timeout.min(HEARTBEAT_INTERVAL));
        match self.heartbeat {
            Heartbeat::Sent(at) => (false, at.after(timeout).since(now).clamp(SHORTEST, HEARTBEAT_INTERVAL)),
            Heartbeat::Requested if since_request < LOST_HEARTBEAT => (false, longest),
            _ if since_request < every => (false, every.saturating_sub(since_request).min(HEARTBEAT_INTERVAL)),
            Heartbeat::Idle | Heartbeat::Requested | Heartbeat::Failed => {
                (self.heartbeat, self.requested_at) = (Heartbeat::Requested, now);
                (true, longest)
            }
        }
    }

    /// A read brought a message.
    pub(super) fn message_arrived(&mut self) {
        if !self.has_failed() {
            self.heartbeat = Heartbeat::Idle;
        }
    }

    /// A read ended without a message. True if the read began when a heartbeat was overdue: a message in time would
    /// have been there by then.
    pub(super) fn missed_heartbeat(&self, timeout: Duration) -> bool {
        matches!(self.heartbeat, Heartbeat::Sent(at) if self.reads_since >= at.after(timeout))
    }

    /// Records the outcome of a heartbeat.
    pub(super) fn heartbeat_ended(&mut self, heartbeat: Heartbeat) {
        if self.heartbeat == Heartbeat::Requested || heartbeat == Heartbeat::Failed {
            self.heartbeat = heartbeat;
        }
    }
}

/// The pause before the next attempt to connect, after this many failures in a row.
pub(super) fn pause(bad: u32) -> Duration {
    match bad.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE),
    }
}
