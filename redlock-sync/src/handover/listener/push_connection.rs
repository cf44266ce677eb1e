//! How the push connection is, and whether it is still alive.
//!
//! A reset is noticed at once. A silent break is noticed by the **beat**, a message that the client publishes on its own channel each second, or every two
//! seconds while all its waits are for tasks. If no
//! connection receives it, or it does not arrive within a node timeout after the server has sent it, the connection is of no more use. If the call
//! itself gets no answer, something else is wrong, which a new push connection would not mend: the next beat is a second later.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::node::Push;

/// So long after the last beat another one is requested_at for. A read is no longer either, since a wait can begin during it.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The same while all waits are for tasks.
pub(super) const RARE_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// A beat of which nothing was heard is forgotten.
const LOST_HEARTBEAT: Duration = Duration::from_secs(5);
/// Before the next attempt to connect: at first, and at most.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A read waits at least this long.
const SHORTEST: Duration = Duration::from_millis(1);

/// Where a client listens: a subscription that the server has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) node: usize,
    pub(crate) channel: Arc<str>,
    /// Counts the subscriptions of this client.
    pub(crate) generation: u64,
}

#[derive(Default)]
pub(super) enum Connection {
    /// None, and none is made: no thread waits.
    #[default]
    Down,
    /// An attempt to connect is under way or planned.
    Coming,
    Up(Up),
}

impl Connection {
    pub(super) fn subscription(&self) -> Option<&Subscription> {
        if let Connection::Up(up) = self { Some(&up.subscription) } else { None }
    }
}

/// What was learnt from a beat, or from none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// None is on its way.
    Idle,
    Requested,
    /// The server has sent it: it has to arrive.
    Sent(Tick),
    /// Nothing arrives there, or another node is the better one.
    Failed,
}

/// A confirmed subscription.
pub(super) struct Up {
    pub(super) subscription: Subscription,
    /// None while a thread reads.
    pub(super) conn: Option<Box<dyn Push>>,
    /// When it was made.
    pub(super) since: Tick,
    /// When the read under way, or the last one, began.
    pub(super) reads_since: Tick,
    /// When the last beat was requested_at for.
    requested_at: Tick,
    heartbeat: Heartbeat,
}

impl Up {
    pub(super) fn new(subscription: Subscription, conn: Box<dyn Push>, now: Tick) -> Up {
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

    /// A read begins now: whether a beat has to be requested_at for, so long after the last one, and after what time to look again.
    pub(super) fn before_read(&mut self, now: Tick, timeout: Duration, every: Duration) -> (bool, Duration) {
        self.reads_since = now;
        match self.heartbeat {
            Heartbeat::Sent(at) => (false, at.after(timeout).since(now).clamp(SHORTEST, HEARTBEAT_INTERVAL)),
            Heartbeat::Requested if now.since(self.requested_at) < LOST_HEARTBEAT => {
                (false, timeout.min(HEARTBEAT_INTERVAL))
            }
            Heartbeat::Idle | Heartbeat::Requested | Heartbeat::Failed => self.request_heartbeat(now, timeout, every),
        }
    }

    fn request_heartbeat(&mut self, now: Tick, timeout: Duration, every: Duration) -> (bool, Duration) {
        let left = every.saturating_sub(now.since(self.requested_at));
        if !left.is_zero() {
            return (false, left.min(HEARTBEAT_INTERVAL));
        }
        (self.heartbeat, self.requested_at) = (Heartbeat::Requested, now);
        (true, timeout.min(HEARTBEAT_INTERVAL))
    }

    /// A read brought a message.
    pub(super) fn message_arrived(&mut self) {
        if !self.has_failed() {
            self.heartbeat = Heartbeat::Idle;
        }
    }

    /// A read ended without a message. True if it began when a beat was overdue: a message that came in time was there by then.
    pub(super) fn missed_heartbeat(&self, timeout: Duration) -> bool {
        matches!(self.heartbeat, Heartbeat::Sent(at) if self.reads_since >= at.after(timeout))
    }

    /// The end of a beat that was requested_at for.
    pub(super) fn heartbeat_ended(&mut self, heartbeat: Heartbeat) {
        if self.heartbeat == Heartbeat::Requested || heartbeat == Heartbeat::Failed {
            self.heartbeat = heartbeat;
        }
    }
}

/// Before an attempt that follows on so many bad ones.
pub(super) fn pause(bad: u32) -> Duration {
    match bad.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE),
    }
}
