//! Time. No other file of the crate reads a clock or sleeps.
//!
//! Leases are measured on a clock that goes on while the machine sleeps, so that a laptop that slept past its lease
//! notices the loss. It is `CLOCK_BOOTTIME` on Linux and `CLOCK_MONOTONIC` on macOS. Elsewhere it is
//! [`std::time::Instant`], which may stop in suspend.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::sync::{Condvar, MutexGuard, thread};

/// A point in time on the lease clock, in nanoseconds since some fixed start. Arithmetic saturates, so `NEVER` stays
/// `NEVER`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Tick(u64);

impl Tick {
    /// Earlier than every other point in time.
    pub(crate) const ZERO: Tick = Tick(0);
    /// Later than every other point in time. As a deadline it means none.
    pub(crate) const NEVER: Tick = Tick(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Tick {
        Tick(nanos)
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn after(self, d: Duration) -> Tick {
        Tick(self.0.saturating_add(saturating_nanos(d)))
    }

    pub(crate) fn before(self, d: Duration) -> Tick {
        Tick(self.0.saturating_sub(saturating_nanos(d)))
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub(crate) fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn saturating_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The source of time: the machine, or a test. Every wait for time to pass goes through this trait, so that a test
/// clock can end it.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Tick;
    fn sleep(&self, d: Duration);

    /// Waits for a notification of the condition variable, until `until` at most. Spurious wake-ups are possible.
    ///
    /// The limit is a point in time. So it does not shift by the time between the read of the clock and the begin of
    /// the wait.
    ///
    /// `is_idle`: a test clock may advance while the thread sleeps here. It does not advance during other waits.
    fn wait(&self, _condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick, _is_idle: bool) {
        waiting.wait_for(until.since(self.now()));
    }

    /// Wakes a thread that waits on this condition variable.
    fn notify(&self, condvar: &Arc<Condvar>) {
        condvar.notify_one();
    }

    /// Starts a thread that sleeps by this clock.
    ///
    /// # Errors
    /// The system cannot start another thread.
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }
}

impl dyn Clock + '_ {
    /// Waits on a condition variable.
    pub(crate) fn wait_until<T>(&self, condvar: &Arc<Condvar>, guard: &mut MutexGuard<'_, T>, until: Tick) {
        self.wait(condvar, &mut OnCondvar { condvar, guard }, until, false);
    }

    /// Waits on a condition variable for something to do.
    pub(crate) fn idle_until<T>(&self, condvar: &Arc<Condvar>, guard: &mut MutexGuard<'_, T>, until: Tick) {
        self.wait(condvar, &mut OnCondvar { condvar, guard }, until, true);
    }
}

/// A wait on a condition variable, as a clock carries it out.
pub(crate) trait Waiting {
    /// Waits for this long by the machine's clock.
    fn wait_for(&mut self, time: Duration);

    /// Runs `f` with the mutex unlocked.
    #[cfg(test)]
    fn unlocked(&mut self, f: &mut dyn FnMut());
}

struct OnCondvar<'a, 'b, T> {
    condvar: &'a Condvar,
    guard: &'a mut MutexGuard<'b, T>,
}

impl<T> Waiting for OnCondvar<'_, '_, T> {
    fn wait_for(&mut self, time: Duration) {
        self.condvar.wait_for(self.guard, time);
    }

    #[cfg(test)]
    fn unlocked(&mut self, f: &mut dyn FnMut()) {
        MutexGuard::unlocked(self.guard, f);
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    fn now(&self) -> Tick {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(target_vendor = "apple")]
        const ID: ClockId = ClockId::Monotonic;
        #[cfg(not(target_vendor = "apple"))]
        const ID: ClockId = ClockId::Boottime;
        let t = clock_gettime(ID);
        let secs = u64::try_from(t.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
        Tick(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// On Windows, `Instant` goes on while the machine sleeps.
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn now(&self) -> Tick {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        Tick(saturating_nanos(START.elapsed()).saturating_add(1))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the one place that sleeps")]
    fn sleep(&self, d: Duration) {
        std::thread::sleep(d);
    }
}

/// The lease clock's reading at a caller's `Instant`, converted once on entry.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
pub(crate) fn tick_at(clock: &dyn Clock, instant: Instant) -> Tick {
    let (now, here) = (clock.now(), Instant::now());
    match instant.checked_duration_since(here) {
        Some(ahead) => now.after(ahead),
        None => now.before(here.saturating_duration_since(instant)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate_at_both_ends() {
        assert_eq!(Tick::ZERO.before(Duration::from_secs(1)), Tick::ZERO);
        assert_eq!(Tick::from_nanos(5).after(Duration::MAX), Tick::NEVER);
        assert_eq!(Tick::from_nanos(5).since(Tick::from_nanos(9)), Duration::ZERO);
    }

    #[test]
    fn the_system_clock_advances_with_sleep() {
        let before = SystemClock.now();
        SystemClock.sleep(Duration::from_millis(2));
        assert!(SystemClock.now().since(before) >= Duration::from_millis(2));
    }

    /// The reading lies between two readings of the clock that continues in suspend. It is decades away from the time
    /// of day, which can be set.
    #[cfg(target_os = "linux")]
    #[test]
    fn fault_14_the_lease_clock_is_not_the_wall_clock() {
        let boot = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Boottime)).unwrap();
        let (before, read, after) = (boot(), SystemClock.now(), boot());
        assert!(Tick::ZERO.after(before) <= read && read <= Tick::ZERO.after(after));
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        let uptime = read.since(Tick::ZERO).as_secs();
        assert!(u64::try_from(wall).unwrap() > uptime + 20 * 365 * 86_400, "{wall} s, {uptime} s");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "converts a real Instant")]
    fn an_instant_becomes_the_same_moment() {
        let ahead = tick_at(&SystemClock, Instant::now() + Duration::from_secs(10)).since(SystemClock.now());
        assert!(ahead > Duration::from_secs(9) && ahead <= Duration::from_secs(10));
        let past = tick_at(&SystemClock, Instant::now());
        assert!(past <= SystemClock.now());
    }
}
