//! The early renewal after a change of the master. A renewal that went to the former master may not have reached the
//! new one, where the lock would end with its former lease.

use std::time::Duration;

use super::LeaseInner;
use crate::options::RENEW_DIVISOR;

impl LeaseInner {
    /// True if a Sentinel group has got a new master, or may have, since the last round began.
    pub(crate) fn has_new_master(&self) -> bool {
        self.quorum.nodes.master_changes().is_some_and(|now| now != self.state.lock().master_changes)
    }

    /// How often the master has changed until now.
    pub(super) fn master_changes(&self) -> u64 {
        self.quorum.nodes.master_changes().unwrap_or_default()
    }

    /// How long the renewal thread may sleep until it looks whether there is a new master.
    pub(crate) fn longest_sleep(&self) -> Duration {
        let may_change = self.quorum.nodes.master_changes().is_some();
        if may_change { self.options.lease / (4 * RENEW_DIVISOR) } else { Duration::MAX }
    }
}
