//! What a lock kind tells the layers below: the calls that make it up, on one node.
//!
//! Quorum, lease and waiting know no kind; they send these calls and count the votes. Replies have one shape for all kinds:
//! see [`Vote`](crate::quorum::Vote).

use std::fmt;
use std::time::Duration;

use crate::script::Call;
use crate::token::LockId;

/// The parameters of one attempt to take a lock.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) id: &'a LockId,
    pub(crate) lease: Duration,
    /// The fence counter must not end below this: a refill carries the fence of its lease.
    pub(crate) least_fence: u64,
    /// Tokens of this process that nobody holds but that a node may still have.
    pub(crate) tickets: &'a [LockId],
}

/// The operations of one lock on one node. Every call is safe to execute twice.
pub(crate) trait Primitive: Send + Sync + fmt::Debug {
    /// Takes the lock if it is free.
    fn acquire(&self, attempt: &Attempt<'_>) -> Call;
    /// Lengthens the lease, strictly compared.
    fn extend(&self, id: &LockId, lease: Duration) -> Call;
    /// Gives the lock up, strictly compared; or lets it run out after `keep`.
    fn release(&self, id: &LockId, keep: Duration) -> Call;
    /// Raises the fence counter while the lock is held.
    fn fence(&self, id: &LockId, fence: u64) -> Call;
}

/// Whole milliseconds for the server, rounded up: never a zero for a time that is not.
pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_up() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_secs(30)), 30_000);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
