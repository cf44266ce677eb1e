//! One wait in the queues on the servers, of a lock, a latch or a queue of tasks: its id, and whether it can be
//! notified.

use std::sync::Arc;
use std::time::Duration;

use super::listener::{self, Listener};
use crate::error::Error;
use crate::protocol::millis;
use crate::token::random_part;

/// A wait in the queues on the servers.
#[derive(Debug)]
pub(crate) struct QueuedWait {
    pub(crate) listener: listener::ListenerWait,
    /// Its id in the server queues. `None` until its client listens, or knows that it cannot listen.
    pub(crate) id: Option<Arc<str>>,
    /// The generation of the subscription when the last attempt was made.
    known: u64,
}

impl QueuedWait {
    pub(crate) fn begin(listener: &Arc<Listener>) -> QueuedWait {
        QueuedWait { listener: listener.begin(), id: None, known: 0 }
    }

    /// True if the client cannot receive notifications, so that the wait polls. Ids that begin with `-` belong to such
    /// waits; the servers cannot notify them.
    pub(crate) fn polls(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.starts_with('-'))
    }

    /// The id for the next attempt; `None` if the wait cannot enter a queue yet. The id changes if the client now
    /// listens on another channel. If the wait polls, its attempts are at most `pause` apart (`lua/push.lua`).
    pub(crate) fn next_id(&mut self, pause: Duration) -> Result<Option<Arc<str>>, Error> {
        if let Some(subscription) = self.listener.subscription() {
            self.known = subscription.generation;
            if let Some(id) = self.id.as_ref().filter(|id| id.split('/').next() == Some(&*subscription.channel)) {
                return Ok(Some(Arc::clone(id)));
            }
            return Ok(Some(format!("{}/{}", subscription.channel, self.listener.number()).into()));
        }
        if self.listener.polls() && !self.polls() {
            return Ok(Some(format!("-{}:{}", millis(pause), random_part()?).into()));
        }
        Ok(self.id.clone())
    }

    /// The node on which the client listens.
    pub(crate) fn node(&self) -> Option<usize> {
        self.listener.subscription().map(|subscription| subscription.node)
    }

    /// True if the client has subscribed again since the last attempt. Pushes from the time in between are lost.
    pub(crate) fn is_outdated(&self) -> bool {
        self.listener.subscription().is_some_and(|subscription| subscription.generation != self.known)
    }
}
