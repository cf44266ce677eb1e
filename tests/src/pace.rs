//! Bounds on durations that hold on a busy machine too.

use std::cmp::Ordering;
use std::sync::Once;
use std::sync::atomic::{self, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

/// How long the pacing thread sleeps at a time.
const PAUSE: Duration = Duration::from_millis(5);
/// How often that thread has slept.
static PAUSES: AtomicU64 = AtomicU64::new(0);

/// Measures time by the clock, and by the pauses of another thread of this process. If the machine is too busy to run
/// what is measured, it does not run that thread either.
///
/// ```
/// use std::{thread, time::Duration};
///
/// let start = redlock_tests::Stopwatch::start();
/// thread::sleep(Duration::from_millis(20));
/// assert!(start.elapsed() >= Duration::from_millis(20));
/// assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    start: Instant,
    pauses: u64,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        static PACEMAKER: Once = Once::new();
        PACEMAKER.call_once(|| {
            thread::spawn(|| {
                loop {
                    thread::sleep(PAUSE);
                    PAUSES.fetch_add(1, atomic::Ordering::Relaxed);
                }
            });
        });
        Self { start: Instant::now(), pauses: PAUSES.load(atomic::Ordering::Relaxed) }
    }

    /// The time until now.
    pub fn elapsed(&self) -> Took {
        let pauses = PAUSES.load(atomic::Ordering::Relaxed) - self.pauses;
        let by_clock = self.start.elapsed();
        let by_pauses = PAUSE.saturating_mul(u32::try_from(pauses).unwrap_or(u32::MAX));
        Took { by_clock, by_pauses: by_pauses.min(by_clock) }
    }
}

/// How long something took. `took < limit` and `took <= limit` compare the pauses, `took > limit` and `took >= limit`
/// the clock: load makes neither untrue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    by_clock: Duration,
    by_pauses: Duration,
}

impl Took {
    /// The longer one.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { by_clock: self.by_clock.max(other.by_clock), by_pauses: self.by_pauses.max(other.by_pauses) }
    }

    /// By the clock.
    pub fn by_clock(&self) -> Duration {
        self.by_clock
    }
}

impl PartialEq<Duration> for Took {
    fn eq(&self, limit: &Duration) -> bool {
        self.by_clock == *limit
    }
}

impl PartialOrd<Duration> for Took {
    fn partial_cmp(&self, limit: &Duration) -> Option<Ordering> {
        self.by_clock.partial_cmp(limit)
    }

    fn lt(&self, limit: &Duration) -> bool {
        self.by_pauses < *limit
    }

    fn le(&self, limit: &Duration) -> bool {
        self.by_pauses <= *limit
    }
}

/// Settings of a client for tests that are not about timeouts: they allow for slow servers on a busy machine.
pub fn patient() -> redlock_sync::Builder {
    redlock_sync::Redlock::builder().node_timeout(Duration::from_secs(5))
}

/// A client of that server with these settings.
pub fn open(url: impl AsRef<str>) -> redlock_sync::Redlock {
    patient().node(url.as_ref()).build().expect("the URL of a server")
}

/// `n`, or a fifth of it in a debug build, where the same work needs several times the processor time. The step
/// `release` of CI runs all of it.
pub const fn rounds(n: u64) -> u64 {
    if cfg!(debug_assertions) { n / 5 } else { n }
}
