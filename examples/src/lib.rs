//! Code that the examples share, so that each example shows mainly locks: a Redis, further processes, and a clock.
//!
//! Programs do not need this code to use `redlock-sync`. Your own program begins with `Redlock::open("redis://…")`.

mod redis;
mod temp;
mod worker;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use redis::Redis;
pub use temp::TempDir;
pub use worker::{Worker, work};

/// The time on a clock that all processes of this host share and that is never set. So times of different processes can
/// be compared. A `SystemTime` may jump, and an `Instant` cannot be sent to another process.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0); // The value is always below a thousand million.
    Duration::new(now.tv_sec.unsigned_abs(), nanos)
}
