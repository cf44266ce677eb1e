//! Leases that must outlive a load.

use std::time::Duration;

use redlock_sync::{MutexGuard, Redlock};
use redlock_tests::bench::Outcome;

const WITNESSES: usize = 10;

/// Locks that are held while a load is on, and renewed by its client.
pub(crate) struct Witnesses(Vec<MutexGuard>);

impl Witnesses {
    /// A third of the lease is between two renewals, so two thirds are time enough for each.
    pub(crate) fn take(locks: &Redlock, lease: Duration) -> Outcome<Self> {
        let take = |i| locks.mutex(format!("witness:{i}")).lease(lease).lock();
        Ok(Self((0..WITNESSES).map(take).collect::<Result<_, _>>()?))
    }

    /// How many were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.0.iter().filter(|guard| guard.check().is_err()).count() as u64
    }
}
