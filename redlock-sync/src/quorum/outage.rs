//! Since when a client finds no majority.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;
use crate::error::Error;

/// An attempt that fails later than this after the last one that did is the first of a new outage.
pub(super) const SAME_OUTAGE: Duration = Duration::from_secs(1);

/// One for all threads of a client: otherwise each thread of a queue would wait for `unavailable_after` anew.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    current: Mutex<Option<Outage>>,
    has_one: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Tick,
    last: Tick,
}

impl Outages {
    /// Notes that a majority answered.
    pub(crate) fn end(&self) {
        // Asked by every acquire, and there is hardly ever one.
        if !self.has_one.load(Ordering::Relaxed) {
            return;
        }
        self.has_one.store(false, Ordering::Relaxed);
        let outage = self.current.lock().take();
        if outage.is_some() {
            log::info!("a majority of the nodes can be asked again");
        }
    }

    /// Notes that an attempt found no majority; since when that has been so for this client.
    pub(crate) fn since(&self, tried_at: Tick, now: Tick, error: &Error) -> Tick {
        let mut outage = self.current.lock();
        if outage.is_none() {
            log::warn!("{error}; calls that wait for a lock try again");
        }
        let since = outage.filter(|o| tried_at.since(o.last) < SAME_OUTAGE).map_or(tried_at, |o| o.since);
        *outage = Some(Outage { since, last: now });
        self.has_one.store(true, Ordering::Relaxed);
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
