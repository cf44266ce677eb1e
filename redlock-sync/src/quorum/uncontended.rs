//! The locks for which no process waited at this client's last release.
//!
//! A first attempt by `SET NX` takes a free lock whether or not others wait for it. So this client uses it only for a
//! lock that it released recently, if that release found no wait. If the client still takes a lock ahead of a queue,
//! its own release finds the queue and is recorded here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Tick;
use crate::names;

/// How long the result of a release is remembered.
const REMEMBERED: Duration = Duration::from_secs(1);
const SLOTS: u64 = 1024;
/// The low bits of a slot are the ms of the release; the high bits are a part of the key's hash.
const TIME_BITS: u32 = 32;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// A table of slots, each for many keys. A key overwrites another key in the same slot. Two keys are confused only if
/// they share a slot and the high halves of their hashes are equal.
#[derive(Debug)]
pub(crate) struct UncontendedKeys(Box<[AtomicU64]>);

impl UncontendedKeys {
    pub(super) fn new() -> UncontendedKeys {
        UncontendedKeys((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Records whether the last release of this key found that nothing waits.
    pub(crate) fn record(&self, key: &str, is_uncontended: bool, now: Tick) {
        let Some((slot, hash)) = self.slot(key) else { return };
        let known = slot.load(Ordering::Relaxed);
        if is_uncontended {
            slot.store(hash << TIME_BITS | in_ms(now), Ordering::Relaxed);
        } else if known >> TIME_BITS == hash {
            slot.store(0, Ordering::Relaxed);
        }
    }

    /// True if the last release of this key is recent and found that nothing waits.
    pub(crate) fn is_uncontended(&self, key: &str, now: Tick) -> bool {
        let Some((slot, hash)) = self.slot(key) else { return false };
        let known = slot.load(Ordering::Relaxed);
        let since = known & TIME_MASK;
        known != 0
            && known >> TIME_BITS == hash
            && u128::from(in_ms(now).wrapping_sub(since) & TIME_MASK) <= REMEMBERED.as_millis()
    }

    /// The slot of this key, and the part of its hash that the slot stores.
    fn slot(&self, key: &str) -> Option<(&AtomicU64, u64)> {
        let hash = names::hash(key.as_bytes());
        let slot = usize::try_from(hash % SLOTS).unwrap_or(0);
        Some((self.0.get(slot)?, hash >> TIME_BITS))
    }
}

/// Counts from one: a slot of zero was never used. Within 49 days no time comes again.
fn in_ms(now: Tick) -> u64 {
    (now.as_nanos() / 1_000_000 + 1) & TIME_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_uncontended_for_a_second_after_a_release_that_found_no_wait() {
        let (keys, now) = (UncontendedKeys::new(), Tick::ZERO);
        assert!(!keys.is_uncontended("a", now));
        keys.record("a", true, now);
        assert!(keys.is_uncontended("a", now) && !keys.is_uncontended("b", now));
        assert!(keys.is_uncontended("a", now.after(REMEMBERED)));
        assert!(!keys.is_uncontended("a", now.after(REMEMBERED + Duration::from_millis(1))));
        keys.record("a", true, now.after(REMEMBERED));
        assert!(keys.is_uncontended("a", now.after(REMEMBERED * 2)));
        keys.record("a", false, now);
        assert!(!keys.is_uncontended("a", now));
    }

    #[test]
    fn keys_that_meet_are_not_taken_for_each_other() {
        let (keys, now) = (UncontendedKeys::new(), Tick::ZERO);
        (0..5000).step_by(2).for_each(|n| keys.record(&format!("lock:{n}"), true, now));
        let uncontended = (0..5000).filter(|n| keys.is_uncontended(&format!("lock:{n}"), now)).collect::<Vec<_>>();
        assert!(uncontended.len() > 500 && uncontended.iter().all(|n| n % 2 == 0), "{uncontended:?}");
    }
}
