//! The end of a run: at its time, or before, as soon as a checker that was named has found something.

use std::sync::{Condvar, Mutex};

use crate::checkers;
use crate::clock::{SEC, now};
use crate::history::History;

/// Between two looks at what has happened so far.
const PAUSE: u64 = SEC / 2;

/// Whether the run is over.
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

    /// Sleeps until that moment, or until the run is over if that is earlier. True if it is over.
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

/// Ends the run when one of the checkers finds something in what has happened so far. That is a hint only, since what
/// is under way can look wrong: the verdicts are on the whole run.
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
