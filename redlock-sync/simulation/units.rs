//! Units of time, and probabilities.

use std::time::Duration;

/// Nanoseconds of true time.
pub(super) type Time = u64;

pub(super) const US: Time = 1_000;
pub(super) const MS: Time = 1_000_000;

pub(super) fn nanos(d: Duration) -> Time {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// Returns true with the given probability, in thousandths.
pub(super) fn chance(per_mille: u32) -> bool {
    per_mille > 0 && fastrand::u32(0..1000) < per_mille
}
