//! One clock for all processes of a run.

use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time of `CLOCK_MONOTONIC` in nanoseconds. All processes have the same clock.
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// The processor time that this process has used, in nanoseconds.
pub fn process_cpu() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// The processor time that this thread has used, in nanoseconds.
pub fn thread_cpu() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks begin at zero");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect("a part of a second")
}

/// Converts `duration` to nanoseconds.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a run is shorter than 500 years")
}

/// Sleeps until [`now`] reaches this time.
pub fn sleep_until(moment: u64) {
    let now = now();
    if moment > now {
        thread::sleep(Duration::from_nanos(moment - now));
    }
}
