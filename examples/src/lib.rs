//! What the examples share, so that each shows locks and little else: a Redis, processes to contend with, one clock.
//!
//! None of it is needed to use `redlock-sync`; a program of your own begins with `Redlock::open("redis://…")`.

mod redis;
mod temp;
mod worker;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use redis::Redis;
pub use temp::TempDir;
pub use worker::{Worker, work};

/// The time on a clock that all processes of this host share and that is never set: comparable between them, unlike a
/// `SystemTime`, which may jump, and an `Instant`, which cannot be sent.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0); // always below a thousand million
    Duration::new(now.tv_sec.unsigned_abs(), nanos)
}
