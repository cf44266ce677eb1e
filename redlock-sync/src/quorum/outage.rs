//! Since when a client has found no majority.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;
use crate::error::Error;
use crate::names::key_in_message;

/// If no attempt failed within this time before a failed attempt, that attempt begins a new outage.
pub(super) const SAME_OUTAGE: Duration = Duration::from_secs(1);
/// The largest number of outages.
const MOST: usize = 1000;
/// While there are so many outages, a further one of a single key is not logged.
const MOST_LOGGED: usize = 10;
/// The name of the outage that concerns all keys. No key has it.
const OF_ALL: &str = "";

/// The outages that this client sees now. All threads of a client share them: otherwise each thread of a queue would
/// wait for `unavailable_after` anew.
///
/// If the servers cannot be reached, that is one outage for all keys. If a key is refused, or its server in a cluster
/// is away, that is an outage of the key. Calls for other keys are not affected, and their success does not end it.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// By key.
    current: Mutex<BTreeMap<String, Outage>>,
    has_one: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Outage {
    /// When the first failed attempt began.
    since: Tick,
    /// When the last failed attempt ended.
    last: Tick,
    is_logged: bool,
}

impl Outages {
    /// Records that a majority answered a call for this key.
    pub(crate) fn end(&self, key: &str) {
        // Every acquire calls this, and usually there is no outage. A stale value does no harm: `since` does not
        // continue an outage without recent failures.
        if !self.has_one.load(Ordering::Relaxed) {
            return;
        }
        let mut outages = self.current.lock();
        let [all, one] = [OF_ALL, key].map(|of| outages.remove(of).is_some_and(|outage| outage.is_logged));
        self.has_one.store(!outages.is_empty(), Ordering::Relaxed);
        // Without the lock: the logger of a program may use this client.
        drop(outages);
        if all {
            log::info!("a majority of the nodes can be asked again");
        }
        if one {
            log::info!("{} can be asked for again", key_in_message(key, "lock ", "a task in queue "));
        }
    }

    /// Records that an attempt found no majority. Returns when the outage began. `key`: the only key that the failure
    /// concerns, if calls for other keys can succeed at the same time.
    pub(crate) fn since(&self, key: Option<&str>, tried_at: Tick, now: Tick, error: &Error) -> Tick {
        let of = key.unwrap_or(OF_ALL);
        let is_recent = |outage: &Outage| tried_at.since(outage.last) < SAME_OUTAGE;
        let mut outages = self.current.lock();
        let known = outages.get(of).copied();
        // Nobody asks for some of the keys again.
        if known.is_none() && outages.len() >= MOST_LOGGED {
            outages.retain(|_, outage| is_recent(outage));
        }
        let since = known.filter(is_recent).map_or(tried_at, |outage| outage.since);
        let is_logged = known.map_or(key.is_none() || outages.len() < MOST_LOGGED, |outage| outage.is_logged);
        if outages.len() < MOST || known.is_some() || key.is_none() {
            outages.insert(of.to_owned(), Outage { since, last: now, is_logged });
        }
        self.has_one.store(true, Ordering::Relaxed);
        // Without the lock, as in `end`.
        drop(outages);
        if known.is_none() && is_logged {
            log::warn!("{error}; waiting calls try again");
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::ZERO.after(Duration::from_millis(ms))
    }

    /// An attempt that takes 10 ms.
    fn fails(outages: &Outages, key: Option<&str>, tried_at: Tick) -> Tick {
        outages.since(key, tried_at, tried_at.after(Duration::from_millis(10)), &Error::Closed)
    }

    #[test]
    fn an_outage_goes_on_from_attempt_to_attempt_until_it_is_over() {
        let outages = Outages::default();
        assert_eq!(fails(&outages, None, at(10)), at(10));
        assert_eq!(fails(&outages, None, at(30)), at(10));
        let much_later = at(40).after(SAME_OUTAGE);
        assert_eq!(fails(&outages, None, much_later), much_later, "no attempt failed in between");
        outages.end("any");
        let next = much_later.after(Duration::from_millis(1));
        assert_eq!(fails(&outages, None, next), next);
    }

    #[test]
    fn the_outage_of_one_key_is_not_that_of_another() {
        let outages = Outages::default();
        assert_eq!(fails(&outages, Some("a"), at(10)), at(10));
        assert_eq!(fails(&outages, Some("b"), at(30)), at(30));
        outages.end("b");
        assert_eq!(fails(&outages, Some("a"), at(50)), at(10), "the success was that of another key");
        assert_eq!(fails(&outages, None, at(70)), at(70));
        outages.end("a");
        assert_eq!(fails(&outages, Some("a"), at(90)), at(90));
    }

    #[test]
    fn few_outages_are_remembered() {
        let outages = Outages::default();
        for n in 0..2 * MOST {
            fails(&outages, Some(&n.to_string()), at(10));
        }
        let logged = || outages.current.lock().values().filter(|outage| outage.is_logged).count();
        let all = || outages.current.lock().len();
        assert_eq!((all(), logged()), (MOST, MOST_LOGGED));
        assert_eq!((fails(&outages, None, at(30)), fails(&outages, None, at(50))), (at(30), at(30)));
        assert_eq!(logged(), MOST_LOGGED + 1, "the outage of all keys is logged");
        fails(&outages, Some("a"), at(90).after(SAME_OUTAGE));
        assert_eq!((all(), logged()), (1, 1));
    }
}
