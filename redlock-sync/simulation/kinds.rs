//! The kinds of locks that schedules use: how a thread asks for a lock, and how many holders a lock may have at a time.

use std::sync::Arc;
use std::time::Duration;

use super::units::chance;
use crate::key::Key;
use crate::options::Mode;
use crate::protocol::permits::Permits;
use crate::protocol::{Exclusive, Protocol, ReadWrite};

/// The shortest time for which a slot is reserved, as in `lock/semaphore.rs`.
const RESERVATION: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrawnKind {
    Mutex,
    ReadWrite,
    Semaphore {
        permits: u32,
    },
    /// A latch that opens after this many workers have arrived.
    Latch {
        count: usize,
    },
    /// A queue of tasks.
    Queue,
}

/// The kind of access that a holder has to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Alone,
    /// The holder may share the lock with other readers.
    Reads,
    /// The holder has `many` of the `of` permits.
    Shares {
        many: usize,
        of: usize,
    },
}

impl DrawnKind {
    pub(super) fn draw(nodes: usize) -> DrawnKind {
        match fastrand::u32(0..20) {
            0..9 => DrawnKind::Mutex,
            9..14 => DrawnKind::ReadWrite,
            14..17 => DrawnKind::Semaphore { permits: fastrand::u32(1..=3) },
            17..19 if nodes == 1 => DrawnKind::Queue,
            _ => DrawnKind::Latch { count: fastrand::usize(1..=4) },
        }
    }

    /// Draws the request of a thread for this lock. Latches and queues are called in another way, so the result is
    /// unused for them.
    pub(super) fn draw_side(self, key: Key, nodes: usize, node_timeout: Duration) -> (Arc<Protocol>, Access) {
        let several = nodes > 1;
        let (protocol, access) = match self {
            DrawnKind::Mutex | DrawnKind::Latch { .. } | DrawnKind::Queue => {
                (Protocol::Mutex(Exclusive { key }), Access::Alone)
            }
            DrawnKind::ReadWrite if fastrand::u32(0..10) < 4 => {
                (Protocol::ReadWrite(ReadWrite::new(key, Mode::Exclusive, several)), Access::Alone)
            }
            DrawnKind::ReadWrite => {
                let mode = if fastrand::bool() { Mode::Shared } else { Mode::Joint };
                (Protocol::ReadWrite(ReadWrite::new(key, mode, several)), Access::Reads)
            }
            DrawnKind::Semaphore { permits } => {
                let reservation = RESERVATION.max(node_timeout * 2);
                let many = if !several && chance(300) { fastrand::u32(1..=permits) } else { 1 };
                let access = Access::Shares { many: many as usize, of: permits as usize };
                let lock = Permits { key, total: permits, many, several, reservation, first: None, slots: Vec::new() };
                (Protocol::Semaphore(lock), access)
            }
        };
        (Arc::new(protocol), access)
    }
}

/// The token of a holder, taken from a member of the sorted set of holders. In such a member, the token follows the
/// letter of its side or the number of its slot.
pub(super) fn token_of(member: &str) -> &str {
    match member.split_once(' ') {
        Some((_, token)) => token,
        None => member.strip_prefix(['r', 'w']).unwrap_or(member),
    }
}

/// The id of a wait: its entry in a queue without the random part.
pub(super) fn id_of(wait: &str) -> &str {
    wait.split(' ').next().unwrap_or_default()
}

/// The random part of a wait for a mutex.
pub(super) fn random_of(wait: &str) -> &str {
    wait.split(' ').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_known_by_its_token() {
        assert_eq!(["rab:c", "wab:c", "12 ab:c", "ab:c"].map(token_of), ["ab:c"; 4]);
    }
}
