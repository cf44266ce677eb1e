//! When a call that waits gives up: the same rule for locks, latches and claims of tasks.

use super::MaxWait;
use crate::clock::Tick;
use crate::error::Error;
use crate::inner::ClientInner;

/// How long one call waits, and since when it finds no majority of the servers.
pub(crate) struct WaitLimit<'a> {
    client: &'a ClientInner,
    wait: MaxWait,
    /// An attempt that begins later than this is the last one.
    pub(crate) until: Tick,
    unavailable_since: Option<Tick>,
}

impl<'a> WaitLimit<'a> {
    pub(crate) fn new(client: &'a ClientInner, wait: MaxWait) -> WaitLimit<'a> {
        WaitLimit { client, wait, until: wait.until(), unavailable_since: None }
    }

    /// True if the time is up. An attempt that outlasts the deadline is the last one: another would take a node timeout more.
    pub(crate) fn is_over(&self) -> bool {
        self.client.quorum.now() >= self.until
    }

    /// A majority has answered.
    pub(crate) fn answered(&mut self) {
        self.unavailable_since = None;
        self.client.outages.end();
    }

    /// No majority has answered an attempt that began at `tried_at`. True if the call gives up. A call without a deadline gives up after `unavailable_after`.
    pub(crate) fn unanswered(&mut self, error: &Error, tried_at: Tick) -> bool {
        let quorum = &self.client.quorum;
        // Asked each time, so that the outage is known to go on.
        let since = self.client.outages.since(tried_at, quorum.now(), error);
        let since = *self.unavailable_since.get_or_insert(since);
        match self.wait {
            MaxWait::Forever => quorum.now().since(since) >= quorum.limits.unavailable_after,
            MaxWait::No | MaxWait::Until(_) => self.is_over(),
        }
    }
}
