//! Measures durations, so that their bounds hold on a busy machine too.

use std::cmp::Ordering;
use std::sync::Once;
use std::sync::atomic::{self, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

/// The length of one sleep of the pacing thread.
const PAUSE: Duration = Duration::from_millis(5);
/// The number of sleeps that the pacing thread has finished.
static PAUSES: AtomicU64 = AtomicU64::new(0);

/// Measures time in two ways: by the clock, and by the number of sleeps of a pacing thread in this process. If the
/// machine is too busy to run the measured code, it does not run the pacing thread either.
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
    /// Starts the measurement.
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

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Took {
        let pauses = PAUSES.load(atomic::Ordering::Relaxed) - self.pauses;
        let by_clock = self.start.elapsed();
        let by_pauses = PAUSE.saturating_mul(u32::try_from(pauses).unwrap_or(u32::MAX));
        Took { by_clock, by_pauses: by_pauses.min(by_clock) }
    }
}

/// A measured duration. The operators `<` and `<=` compare the time by sleeps, and `>` and `>=` the time by the clock.
/// So load makes no comparison fail.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    by_clock: Duration,
    by_pauses: Duration,
}

impl Took {
    /// Returns the larger of the two durations, separately for each way to measure.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { by_clock: self.by_clock.max(other.by_clock), by_pauses: self.by_pauses.max(other.by_pauses) }
    }

    /// The duration by the clock.
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

/// The settings of a client for tests that are not about timeouts. They allow for slow servers on a busy machine.
pub fn patient() -> redlock_sync::Builder {
    redlock_sync::Redlock::builder().node_timeout(Duration::from_secs(5))
}

/// Builds a client of the server with this URL and with the settings of [`patient`].
pub fn open(url: impl AsRef<str>) -> redlock_sync::Redlock {
    patient().node(url.as_ref()).build().expect("the URL of a server")
}

/// Returns `n`, or a fifth of `n` in a debug build. The same work takes several times the processor time there. The CI
/// step `release` runs all rounds.
pub const fn rounds(n: u64) -> u64 {
    if cfg!(debug_assertions) { n / 5 } else { n }
}
