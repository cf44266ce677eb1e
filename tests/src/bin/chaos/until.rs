//! The end of a run. A run ends at its time, or earlier, as soon as a named checker has found a violation.

use std::sync::{Condvar, Mutex};

use crate::checkers;
use crate::clock::{SEC, now};
use crate::history::History;

/// The pause in ns between two checks of the history so far.
const PAUSE: u64 = SEC / 2;

/// The flag that a run is over. Threads can wait for it.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl Ending {
    pub(crate) fn end(&self) {
        *self.is_over.lock().unwrap() = true;
        self.ended.notify_all();
    }

    /// Sleeps until that time, or until the run is over. Returns true if the run is over.
    pub(crate) fn sleep_until(&self, at: u64) -> bool {
        let mut is_over = self.is_over.lock().unwrap();
        loop {
            let left = at.saturating_sub(now());
            if *is_over || left == 0 {
                return *is_over;
            }
            is_over = self.ended.wait_timeout(is_over, std::time::Duration::from_nanos(left)).unwrap().0;
        }
    }
}

/// Ends the run when one of the named checkers finds a violation in the history so far. The finding is only a hint,
/// because a call under way can look wrong. The verdicts are about the whole run.
pub(crate) fn look(named: &[&str], ending: &Ending, so_far: impl Fn() -> History) {
    while !named.is_empty() && !ending.sleep_until(now() + PAUSE) {
        if checkers::find_any(&so_far(), named) {
            ending.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_with_the_run() {
        let ending = Ending::default();
        assert!(!ending.sleep_until(now() + SEC / 1000));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| ending.sleep_until(u64::MAX));
            ending.end();
            assert!(sleeper.join().unwrap());
        });
        assert!(ending.sleep_until(u64::MAX));
    }
}
