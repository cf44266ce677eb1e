//! Leases that must outlive a load.

use std::time::Duration;

use redlock_sync::{MutexGuard, Redlock};
use redlock_tests::bench::Outcome;

const WITNESSES: usize = 10;

/// Locks that are held during a load. Its client renews them.
pub(crate) struct Witnesses(Vec<MutexGuard>);

impl Witnesses {
    /// Acquires the locks. Two thirds of the lease remain when a renewal is due, which is enough time for each renewal.
    pub(crate) fn take(locks: &Redlock, lease: Duration) -> Outcome<Self> {
        let take = |i| locks.mutex(format!("witness:{i}")).lease(lease).lock();
        Ok(Self((0..WITNESSES).map(take).collect::<Result<_, _>>()?))
    }

    /// The number of locks that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.0.iter().filter(|guard| guard.check().is_err()).count() as u64
    }
}
