//! A clock in nanoseconds that all processes of a run share. It goes on while a process is stopped.

use rustix::time::{ClockId, clock_gettime};

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// A second in nanoseconds.
pub(crate) const SEC: u64 = 1000 * MS;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

pub(crate) fn now() -> u64 {
    let time = clock_gettime(CLOCK);
    let part = |part: i64| u64::try_from(part).expect("the clock is positive");
    part(time.tv_sec) * SEC + part(time.tv_nsec)
}
