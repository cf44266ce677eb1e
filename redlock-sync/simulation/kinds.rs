//! The kinds of locks that schedules use: how a thread asks for one, and how many may hold it at a time.

use std::sync::Arc;
use std::time::Duration;

use super::invariants::Holder;
use super::plan::Plan;
use crate::key::Key;
use crate::options::Mode;
use crate::protocol::semaphore::Semaphore;
use crate::protocol::{Exclusive, Protocol, ReadWrite};

/// For how long a slot is reserved at least, as `lock/semaphore.rs` has it.
const RESERVATION: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockKind {
    Mutex,
    ReadWrite,
    Semaphore { permits: u32 },
}

/// How a holder has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Alone,
    /// Beside other readers.
    Reads,
    /// As one of so many.
    Shares(usize),
}

impl LockKind {
    pub(super) fn draw() -> LockKind {
        match fastrand::u32(0..10) {
            0..5 => LockKind::Mutex,
            5..8 => LockKind::ReadWrite,
            _ => LockKind::Semaphore { permits: fastrand::u32(1..=3) },
        }
    }

    /// What a thread asks for.
    pub(super) fn draw_side(self, key: Key, plan: &Plan) -> (Arc<dyn Protocol>, Access) {
        let several = plan.nodes > 1;
        match self {
            LockKind::Mutex => (Arc::new(Exclusive { key }), Access::Alone),
            LockKind::ReadWrite if fastrand::u32(0..10) < 4 => {
                (Arc::new(ReadWrite::new(key, Mode::Exclusive, several)), Access::Alone)
            }
            LockKind::ReadWrite => (Arc::new(ReadWrite::new(key, Mode::Shared, several)), Access::Reads),
            LockKind::Semaphore { permits } => {
                let reservation = RESERVATION.max(plan.limits.node_timeout * 2);
                let access = Access::Shares(permits as usize);
                (Arc::new(Semaphore { key, permits, many: 1, several, reservation, slots: Vec::new() }), access)
            }
        }
    }
}

impl Access {
    /// One of those that hold the lock, beside which there must be no further holder.
    pub(super) fn too_many(self, acting: &[Holder]) -> Option<&Holder> {
        match self {
            Access::Alone => acting.first(),
            Access::Reads => acting.iter().find(|holder| holder.access != Access::Reads),
            Access::Shares(permits) => acting.get(permits - 1),
        }
    }
}

/// The token of a holder as a sorted set of holders has it: behind the letter of its side, or behind the number of its slot.
pub(super) fn token_of(member: &str) -> &str {
    match member.split_once(' ') {
        Some((_, token)) => token,
        None => member.strip_prefix(['r', 'w']).unwrap_or(member),
    }
}

#[cfg(test)]
mod tests {
    use super::super::invariants::Claim;
    use super::*;
    use crate::clock::Tick;

    fn holders(all: &[Access]) -> Vec<Holder> {
        all.iter().map(|access| Holder::new(0, 0, "t", Claim::Until(Tick::NEVER), *access)).collect()
    }

    #[test]
    fn readers_are_beside_readers_only_and_permits_are_counted() {
        let too_many = |new: Access, acting: &[Access]| new.too_many(&holders(acting)).is_some();
        let (alone, reads, shares) = (Access::Alone, Access::Reads, Access::Shares(2));
        assert!(!too_many(alone, &[]) && too_many(alone, &[alone]) && too_many(alone, &[reads]));
        assert!(!too_many(reads, &[reads, reads]) && too_many(reads, &[reads, alone]));
        assert!(!too_many(shares, &[shares]) && too_many(shares, &[shares, shares]));
    }

    #[test]
    fn a_holder_is_known_by_its_token() {
        assert_eq!(["rab:c", "wab:c", "12 ab:c", "ab:c"].map(token_of), ["ab:c"; 4]);
    }
}
