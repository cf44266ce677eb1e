//! Since when a client has found no majority.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;
use crate::error::Error;

/// If no attempt failed within this time before a failed attempt, that attempt begins a new outage.
pub(super) const SAME_OUTAGE: Duration = Duration::from_secs(1);

/// The outage that this client sees now, if there is one. All threads of a client share it: otherwise each thread of a
/// queue would wait for `unavailable_after` anew.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// When the first failed attempt began, and when the last one ended.
    current: Mutex<Option<(Tick, Tick)>>,
    has_one: AtomicBool,
}

impl Outages {
    /// Records that a majority answered.
    pub(crate) fn end(&self) {
        // Every acquire calls this, and there is hardly ever an outage. A stale value does no harm: `since` does not
        // continue an outage without recent failures.
        if !self.has_one.load(Ordering::Relaxed) {
            return;
        }
        self.has_one.store(false, Ordering::Relaxed);
        let outage = self.current.lock().take();
        if outage.is_some() {
            log::info!("a majority of the nodes can be asked again");
        }
    }

    /// Records that an attempt found no majority. Returns when the outage began.
    pub(crate) fn since(&self, tried_at: Tick, now: Tick, error: &Error) -> Tick {
        let mut outage = self.current.lock();
        let is_first = outage.is_none();
        let since = outage.filter(|(_, last)| tried_at.since(*last) < SAME_OUTAGE).map_or(tried_at, |(since, _)| since);
        *outage = Some((since, now));
        self.has_one.store(true, Ordering::Relaxed);
        drop(outage);
        // Without the lock: the logger of a program may use this client.
        if is_first {
            log::warn!("{error}; waiting calls try again");
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_goes_on_from_attempt_to_attempt_until_it_is_over() {
        let (outages, error) = (Outages::default(), Error::Closed);
        let at = |ms| Tick::ZERO.after(Duration::from_millis(ms));
        assert_eq!(outages.since(at(10), at(20), &error), at(10));
        assert_eq!(outages.since(at(30), at(40), &error), at(10));
        let much_later = at(40).after(SAME_OUTAGE);
        assert_eq!(outages.since(much_later, much_later, &error), much_later, "no attempt failed in between");
        outages.end();
        let next = much_later.after(Duration::from_millis(1));
        assert_eq!(outages.since(next, next, &error), next);
    }
}
