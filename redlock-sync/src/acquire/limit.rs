//! When a call that waits gives up. Locks, latches and claims of tasks share this rule.

use std::time::Duration;

use super::MaxWait;
use crate::clock::Tick;
use crate::error::Error;
use crate::inner::ClientInner;

/// How long one call waits, and since when it has found no majority of the nodes.
pub(crate) struct WaitLimit<'a> {
    client: &'a ClientInner,
    key: &'a str,
    unavailable_after: Duration,
    /// An attempt that begins at this time or later is the last one.
    pub(crate) until: Tick,
    unavailable_since: Option<Tick>,
}

impl<'a> WaitLimit<'a> {
    pub(crate) fn new(
        client: &'a ClientInner,
        key: &'a str,
        wait: MaxWait,
        unavailable_after: Duration,
    ) -> WaitLimit<'a> {
        WaitLimit { client, key, unavailable_after, until: wait.until(), unavailable_since: None }
    }

    /// True if the deadline has passed. The call then makes no further attempt, which could take another node timeout.
    pub(crate) fn is_over(&self) -> bool {
        self.client.quorum.now() >= self.until
    }

    /// Records that a majority has answered.
    pub(crate) fn answered(&mut self) {
        self.unavailable_since = None;
        self.client.outages.end(self.key);
    }

    /// Records that no majority has answered an attempt that began at `tried_at`. Returns true if the call gives up: at
    /// its deadline, or when the outage has lasted for `unavailable_after`.
    pub(crate) fn unanswered(&mut self, error: &Error, tried_at: Tick) -> bool {
        let quorum = &self.client.quorum;
        // Called for each failed attempt, so that the outage counts as ongoing.
        let since = self.client.unavailable_since(self.key, tried_at, error);
        let since = *self.unavailable_since.get_or_insert(since);
        self.is_over() || quorum.now().since(since) >= self.unavailable_after
    }
}
