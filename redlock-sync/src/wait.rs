//! How a thread waits for a lock that somebody else has.
//!
//! Threads of one process that want the same key stand in one line, first come first served; only the one at its head talks to the
//! servers, so that a hundred waiting threads are one waiter to Redis. The head waits between its attempts by [`pause`]: jittered polling
//! under the lock's [`Retry`]. A push from the releaser, when there is one, takes the place of that sleep; nothing else changes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::{Clock, Tick};
use crate::config::Retry;
use crate::token::LockId;

/// Longest sleep in line before the lease clock is looked at again.
const SLICE: Duration = Duration::from_secs(1);
/// Tokens of unknown fate that are remembered for one key.
const MAX_TICKETS: usize = 8;

/// The lines of one client, one for each key that somebody waits for or that has tickets.
#[derive(Debug)]
pub(crate) struct Lines {
    clock: Arc<dyn Clock>,
    by_key: Mutex<HashMap<Arc<str>, Line>>,
}

#[derive(Debug, Default)]
struct Line {
    /// Somebody is at the head.
    is_taken: bool,
    waiting: VecDeque<Arc<Spot>>,
    tickets: Vec<(LockId, Tick)>,
}

impl Line {
    fn is_idle(&self) -> bool {
        !self.is_taken && self.waiting.is_empty() && self.tickets.is_empty()
    }
}

/// A thread's place in line: true once it is at the head. Changed under the lock of `by_key` only, so that a thread which gives up
/// either leaves the line or finds itself at the head and passes it on.
#[derive(Debug, Default)]
struct Spot {
    at_head: Mutex<bool>,
    moved: Condvar,
}

/// Being at the head of a line; dropping it lets the next thread move up.
#[derive(Debug)]
pub(crate) struct Turn {
    lines: Arc<Lines>,
    key: Arc<str>,
}

impl Lines {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Lines> {
        Arc::new(Lines { clock, by_key: Mutex::new(HashMap::new()) })
    }

    /// Waits for the head of the key's line; `None` when `until` came first.
    pub(crate) fn enter(self: &Arc<Self>, key: &Arc<str>, until: Tick) -> Option<Turn> {
        let turn = || Some(Turn { lines: Arc::clone(self), key: Arc::clone(key) });
        let spot = {
            let mut by_key = self.by_key.lock();
            let line = by_key.entry(Arc::clone(key)).or_default();
            if !line.is_taken {
                line.is_taken = true;
                return turn();
            }
            let spot = Arc::new(Spot::default());
            line.waiting.push_back(Arc::clone(&spot));
            spot
        };
        if self.stand(&spot, until) || !self.leave(key, &spot) { turn() } else { None }
    }

    /// True once the spot is at the head, false when time is up.
    fn stand(&self, spot: &Spot, until: Tick) -> bool {
        let mut at_head = spot.at_head.lock();
        while !*at_head {
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return false;
            }
            spot.moved.wait_for(&mut at_head, left.min(SLICE));
        }
        true
    }

    /// Gives up a spot; false if it had got to the head in the meantime.
    fn leave(&self, key: &Arc<str>, spot: &Arc<Spot>) -> bool {
        let mut by_key = self.by_key.lock();
        if let Some(line) = by_key.get_mut(key) {
            line.waiting.retain(|other| !Arc::ptr_eq(other, spot));
        }
        !*spot.at_head.lock()
    }

    fn pass_on(&self, key: &Arc<str>) {
        let mut by_key = self.by_key.lock();
        let Some(line) = by_key.get_mut(key) else { return };
        if let Some(next) = line.waiting.pop_front() {
            *next.at_head.lock() = true;
            next.moved.notify_one();
            return;
        }
        line.is_taken = false;
        if line.is_idle() {
            by_key.remove(key);
        }
    }

    /// Remembers a token that nobody holds but that a node may have until then: the next attempt may take the lock from it, so that
    /// nobody is locked out by his own ghost.
    pub(crate) fn add_ticket(&self, key: &Arc<str>, id: LockId, until: Tick) {
        let now = self.clock.now();
        let mut by_key = self.by_key.lock();
        // Keys whose tickets have run out go with the next one that comes; a healthy system has none.
        by_key.retain(|_, line| {
            line.tickets.retain(|(_, until)| *until > now);
            !line.is_idle()
        });
        let tickets = &mut by_key.entry(Arc::clone(key)).or_default().tickets;
        if tickets.len() >= MAX_TICKETS {
            tickets.remove(0);
        }
        tickets.push((id, until));
    }

    /// The tickets for an attempt on this key.
    pub(crate) fn tickets(&self, key: &Arc<str>) -> Vec<LockId> {
        let by_key = self.by_key.lock();
        let Some(line) = by_key.get(key) else { return Vec::new() };
        if line.tickets.is_empty() {
            return Vec::new();
        }
        let now = self.clock.now();
        line.tickets.iter().filter(|(_, until)| *until > now).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets tickets that every node has seen used or knows nothing of.
    pub(crate) fn drop_tickets(&self, key: &Arc<str>) {
        let mut by_key = self.by_key.lock();
        if let Some(line) = by_key.get_mut(key) {
            line.tickets.clear();
            if line.is_idle() {
                by_key.remove(key);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.lines.pass_on(&self.key);
    }
}

/// The wait between attempt number `made` and the next: never past `until`, and no longer than the holder's lease can last.
pub(crate) fn pause(clock: &dyn Clock, retry: &Retry, made: u32, retry_after: Option<Duration>, until: Tick) {
    let planned = retry.pause(made, fastrand::f64());
    let lease_end = retry_after.map_or(Duration::MAX, |left| left + Duration::from_millis(1));
    clock.sleep(planned.min(lease_end).min(until.since(clock.now())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use std::sync::mpsc;
    use std::thread;

    fn lines() -> Arc<Lines> {
        Lines::new(Arc::new(SystemClock))
    }

    fn waiting(lines: &Lines, key: &Arc<str>) -> usize {
        lines.by_key.lock().get(key).map_or(0, |line| line.waiting.len())
    }

    fn until_waiting(lines: &Lines, key: &Arc<str>, n: usize) {
        while waiting(lines, key) != n {
            SystemClock.sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn first_come_first_served() {
        let (lines, key): (_, Arc<str>) = (lines(), "k".into());
        let head = lines.enter(&key, Tick::NEVER).unwrap();
        let (tell, told) = mpsc::channel();
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (lines, key, tell) = (Arc::clone(&lines), Arc::clone(&key), tell.clone());
                let thread = thread::spawn({
                    let lines = Arc::clone(&lines);
                    let key = Arc::clone(&key);
                    move || {
                        let _turn = lines.enter(&key, Tick::NEVER).unwrap();
                        tell.send(i).unwrap();
                    }
                });
                until_waiting(&lines, &key, i + 1);
                thread
            })
            .collect();
        drop(head);
        assert_eq!(told.iter().take(8).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(lines.by_key.lock().is_empty(), "nothing is left of an idle line");
    }

    #[test]
    fn who_gives_up_leaves_no_gap() {
        let (lines, key): (_, Arc<str>) = (lines(), "k".into());
        let head = lines.enter(&key, Tick::NEVER).unwrap();
        let soon = SystemClock.now().after(Duration::from_millis(5));
        assert!(lines.enter(&key, soon).is_none());
        assert_eq!(waiting(&lines, &key), 0);
        drop(head);
        assert!(lines.enter(&key, Tick::ZERO).is_some());
    }

    #[test]
    fn giving_up_while_moving_up_passes_the_turn_on() {
        let (lines, key): (_, Arc<str>) = (lines(), "k".into());
        for _ in 0..200 {
            let head = lines.enter(&key, Tick::NEVER).unwrap();
            let racer = {
                let (lines, key) = (Arc::clone(&lines), Arc::clone(&key));
                let until = SystemClock.now().after(Duration::from_micros(fastrand::u64(50..400)));
                thread::spawn(move || drop(lines.enter(&key, until)))
            };
            SystemClock.sleep(Duration::from_micros(fastrand::u64(50..400)));
            drop(head);
            racer.join().unwrap();
            assert!(lines.by_key.lock().is_empty());
        }
    }

    #[test]
    fn tickets_are_bounded_and_end() {
        let (lines, key): (_, Arc<str>) = (lines(), "k".into());
        for i in 0..20 {
            lines.add_ticket(&key, LockId::from_server(&format!("t{i}")), Tick::NEVER);
        }
        let ids = lines.tickets(&key);
        assert_eq!(ids.len(), MAX_TICKETS);
        assert_eq!(ids.last().map(LockId::as_str), Some("t19"));
        lines.drop_tickets(&key);
        lines.add_ticket(&key, LockId::from_server("old"), Tick::ZERO);
        assert!(lines.tickets(&key).is_empty());
        lines.add_ticket(&"other".into(), LockId::from_server("new"), Tick::NEVER);
        assert!(!lines.by_key.lock().contains_key(&key));
    }
}
