//! Waits for conditions.

use std::thread;
use std::time::{Duration, Instant};

/// The pause of [`poll`] between two calls.
const PAUSE: Duration = Duration::from_millis(1);

/// Calls `done` every millisecond until it returns true. Panics with `what` if it returns false until `deadline` has
/// passed.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// redlock_tests::eventually("five milliseconds pass", Duration::from_secs(5), || {
///     start.elapsed() > Duration::from_millis(5)
/// });
/// ```
pub fn eventually(what: &str, deadline: Duration, mut done: impl FnMut() -> bool) {
    let came = poll(deadline, || done().then_some(()));
    assert!(came.is_some(), "waited {deadline:?} in vain until: {what}");
}

/// Calls `probe` every millisecond until it returns a value or `deadline` has passed. Calls it at least once.
pub fn poll<T>(deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        let found = probe();
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        thread::sleep(PAUSE);
    }
}
