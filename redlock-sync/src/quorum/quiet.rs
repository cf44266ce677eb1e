//! Which locks nothing waited for, as far as this client knows.
//!
//! A first attempt without a script takes a free lock whether or not others wait for it. So it is made only for a lock whose last release, by this client
//! and not long ago, found no wait. A client that goes before a queue learns of it by its own release.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Tick;

/// For so long a release counts.
const REMEMBERED: Duration = Duration::from_secs(60);
const PLACES: usize = 1024;
/// A place has a part of the key's hash above, and a second of the clock below.
const SECOND: u32 = 32;

/// A table with a place for each of many keys. Two keys at one place forget each other. Two are taken for each other only if their hashes are equal.
#[derive(Debug)]
pub(crate) struct QuietKeys(Box<[AtomicU64]>);

impl QuietKeys {
    pub(super) fn new() -> QuietKeys {
        QuietKeys((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    /// The last release of this key found that nothing waits, or that something does.
    pub(crate) fn note(&self, key: &str, is_quiet: bool, now: Tick) {
        let Some((place, hash)) = self.place(key) else { return };
        let known = place.load(Ordering::Relaxed);
        if is_quiet {
            place.store(hash << SECOND | seconds(now), Ordering::Relaxed);
        } else if known >> SECOND == hash {
            place.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_quiet(&self, key: &str, now: Tick) -> bool {
        let Some((place, hash)) = self.place(key) else { return false };
        let known = place.load(Ordering::Relaxed);
        let since = known & ((1 << SECOND) - 1);
        known != 0 && known >> SECOND == hash && seconds(now).saturating_sub(since) <= REMEMBERED.as_secs()
    }

    /// FNV-1a: the lowest bits choose the place.
    fn place(&self, key: &str) -> Option<(&AtomicU64, u64)> {
        let hash = key
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let place = usize::try_from(hash % 1024).unwrap_or(0);
        Some((self.0.get(place)?, hash >> SECOND))
    }
}

/// From one on, so that a place that was never used is none.
fn seconds(now: Tick) -> u64 {
    (now.as_nanos() / 1_000_000_000 + 1) & ((1 << SECOND) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_quiet_for_a_minute_after_a_release_that_found_no_wait() {
        let (keys, now) = (QuietKeys::new(), Tick::ZERO);
        assert!(!keys.is_quiet("a", now));
        keys.note("a", true, now);
        assert!(keys.is_quiet("a", now) && !keys.is_quiet("b", now));
        assert!(keys.is_quiet("a", now.after(REMEMBERED)));
        assert!(!keys.is_quiet("a", now.after(REMEMBERED + Duration::from_secs(1))));
        keys.note("a", true, now.after(REMEMBERED));
        assert!(keys.is_quiet("a", now.after(REMEMBERED * 2)));
        keys.note("a", false, now);
        assert!(!keys.is_quiet("a", now));
    }

    #[test]
    fn keys_that_meet_are_not_taken_for_each_other() {
        let (keys, now) = (QuietKeys::new(), Tick::ZERO);
        (0..5000).step_by(2).for_each(|n| keys.note(&format!("lock:{n}"), true, now));
        let quiet = (0..5000).filter(|n| keys.is_quiet(&format!("lock:{n}"), now)).collect::<Vec<_>>();
        assert!(quiet.len() > 500 && quiet.iter().all(|n| n % 2 == 0), "{quiet:?}");
    }
}
