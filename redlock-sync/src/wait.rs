//! How a thread waits for a lock that another thread or process has.
//!
//! Threads of one process that want the same key stand in one line, first come first served. Only the thread at its head talks to the servers, and it
//! stays the head while it holds the lock. So a hundred waiting threads are one waiter to Redis, and a holder can hand the lock itself to the next in
//! line without a call. The head waits for other processes on a push or, where there is none, by [`pause`](Lines::pause): jittered polling under the
//! lock's [`Retry`].

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::{Clock, Tick};
use crate::config::{Pauses, Retry, STRANGERS_REMEMBERED, Terms};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex};
use crate::token::LockId;

/// Longest sleep before the lease clock, and the end of the client, are looked at again.
const SLICE: Duration = Duration::from_secs(1);
/// As that, for a sleep that nothing can interrupt.
const SHORT_SLICE: Duration = Duration::from_millis(50);
/// Tokens of unknown fate that are remembered for one key.
const MAX_TICKETS: usize = 8;

/// The lines of one client, one for each key that a thread wants or that has tickets. `T` is what is handed over: a held lease.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    clock: Arc<dyn Clock>,
    by_key: Mutex<HashMap<Arc<str>, Line<T>>>,
    is_closed: AtomicBool,
    /// How many threads stand in line and how many tickets there are, of all keys: usually none, and then the table is not locked to look.
    standing: AtomicUsize,
    tickets: AtomicUsize,
    /// A program of another library has been seen on some key.
    strangers: AtomicBool,
}

#[derive(Debug)]
struct Line<T> {
    /// A thread is at the head: trying, or holding.
    is_taken: bool,
    waiting: VecDeque<Arc<Spot<T>>>,
    rest: Rest,
    /// Until then it is remembered that a program of another library had the lock.
    strangers_until: Tick,
    tickets: Vec<(LockId, Tick)>,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line {
            is_taken: false,
            waiting: VecDeque::new(),
            rest: Rest::default(),
            strangers_until: Tick::ZERO,
            tickets: Vec::new(),
        }
    }
}

impl<T> Line<T> {
    /// Nothing has to be remembered of it.
    fn is_idle(&self, clock: &dyn Clock) -> bool {
        let is_empty = !self.is_taken && self.waiting.is_empty() && self.tickets.is_empty();
        let until = self.rest.until.max(self.strangers_until);
        is_empty && (until == Tick::ZERO || until <= clock.now())
    }
}

/// A pause in which the head of a line leaves the key to other programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rest {
    pub(crate) until: Tick,
    pub(crate) pauses: Pauses,
}

impl Default for Rest {
    fn default() -> Rest {
        Rest { until: Tick::ZERO, pauses: Pauses::default() }
    }
}

/// A thread's place in line.
///
/// | place | set by | leaves to |
/// |---|---|---|
/// | Waiting | the thread itself | Head, Promised, Closed; or the thread leaves when its time is up |
/// | Head | the thread that leaves the head | the thread goes on |
/// | Promised | a holder that is about to hand over | Handed |
/// | Handed | that holder | the thread goes on |
/// | Closed | the end of the client | the thread goes on |
///
/// It leaves Waiting under the lock of `by_key` only, together with its removal from the line: so a thread whose time is up either takes
/// itself out of the line or finds that it got something.
#[derive(Debug)]
pub(crate) struct Spot<T> {
    terms: Terms,
    place: Mutex<Place<T>>,
    moved: Condvar,
}

#[derive(Debug)]
enum Place<T> {
    Waiting,
    Head(Rest),
    Promised,
    Handed(T),
    Closed,
}

impl<T> Spot<T> {
    fn put(&self, place: Place<T>) {
        *self.place.lock() = place;
        self.moved.notify_one();
    }

    /// Keeps the promise that [`Turn::successor`] made.
    pub(crate) fn hand(&self, gift: T) {
        self.put(Place::Handed(gift));
    }
}

/// How a wait in line ended.
#[derive(Debug)]
pub(crate) enum Entered<T> {
    Head(Turn<T>),
    Handed(T),
    /// Time was up.
    Late,
    Closed,
}

/// Being at the head of a line; dropping it lets the next thread move up.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    lines: Arc<Lines<T>>,
    key: Arc<str>,
    rest: Rest,
}

impl<T> Lines<T> {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Lines<T>> {
        Arc::new(Lines {
            clock,
            by_key: Mutex::new(HashMap::new()),
            is_closed: AtomicBool::new(false),
            standing: AtomicUsize::new(0),
            tickets: AtomicUsize::new(0),
            strangers: AtomicBool::new(false),
        })
    }

    fn turn(self: &Arc<Self>, key: &Arc<str>, rest: Rest) -> Turn<T> {
        Turn { lines: Arc::clone(self), key: Arc::clone(key), rest }
    }

    /// The head of the key's line, if no thread is there.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &Arc<str>) -> Option<Turn<T>> {
        let mut by_key = self.by_key.lock();
        let line = by_key.entry(Arc::clone(key)).or_default();
        let was_taken = std::mem::replace(&mut line.is_taken, true);
        (!was_taken).then(|| self.turn(key, line.rest))
    }

    /// Waits in line until `until` at most, to get the head or, on the same terms, the lock itself.
    pub(crate) fn enter(self: &Arc<Self>, key: &Arc<str>, until: Tick, terms: &Terms) -> Entered<T> {
        let spot = {
            let mut by_key = self.by_key.lock();
            // Under the lock: `close` sends away the threads that are in line by then, and this one would come after that.
            if self.is_closed() {
                return Entered::Closed;
            }
            let line = by_key.entry(Arc::clone(key)).or_default();
            if !line.is_taken {
                line.is_taken = true;
                return Entered::Head(self.turn(key, line.rest));
            }
            let place = Mutex::new(Place::Waiting);
            let spot = Arc::new(Spot { terms: terms.clone(), place, moved: Condvar::new() });
            line.waiting.push_back(Arc::clone(&spot));
            self.standing.fetch_add(1, Ordering::SeqCst);
            spot
        };
        self.stand(key, &spot, until)
    }

    fn stand(self: &Arc<Self>, key: &Arc<str>, spot: &Arc<Spot<T>>, until: Tick) -> Entered<T> {
        let mut place = spot.place.lock();
        loop {
            match std::mem::replace(&mut *place, Place::Waiting) {
                Place::Head(rest) => return Entered::Head(self.turn(key, rest)),
                Place::Handed(gift) => return Entered::Handed(gift),
                Place::Closed => return Entered::Closed,
                same @ (Place::Waiting | Place::Promised) => *place = same,
            }
            let left = until.since(self.clock.now());
            if left.is_zero() && matches!(*place, Place::Waiting) {
                drop(place);
                if self.leave(key, spot) {
                    return Entered::Late;
                }
                // Another thread took the spot out of the line first: what it gives is here or about to come.
                place = spot.place.lock();
                continue;
            }
            let nap = if left.is_zero() { SLICE } else { left.min(SLICE) };
            self.clock.wait_for(&spot.moved, &mut place, nap);
        }
    }

    /// Gives up a spot; false if it is not in the line any more.
    fn leave(&self, key: &Arc<str>, spot: &Arc<Spot<T>>) -> bool {
        let mut by_key = self.by_key.lock();
        let Some(line) = by_key.get_mut(key) else { return false };
        let place = line.waiting.iter().position(|other| Arc::ptr_eq(other, spot));
        let was_there = place.and_then(|i| line.waiting.remove(i)).is_some();
        self.standing.fetch_sub(usize::from(was_there), Ordering::SeqCst);
        was_there
    }

    fn pass_on(&self, key: &Arc<str>) {
        let mut by_key = self.by_key.lock();
        let Entry::Occupied(mut entry) = by_key.entry(Arc::clone(key)) else { return };
        let line = entry.get_mut();
        if let Some(next) = line.waiting.pop_front() {
            self.standing.fetch_sub(1, Ordering::SeqCst);
            next.put(Place::Head(line.rest));
            return;
        }
        line.is_taken = false;
        if line.is_idle(&*self.clock) {
            entry.remove();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Sends all threads away that stand in a line, for good.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let mut by_key = self.by_key.lock();
        for spot in by_key.values_mut().flat_map(|line| line.waiting.drain(..)) {
            self.standing.fetch_sub(1, Ordering::SeqCst);
            spot.put(Place::Closed);
        }
    }

    /// Remembers a token that no lease has, but that a node may have until then: a ticket. The next attempt may take the lock from it, so that this
    /// process is not locked out by a late copy of its own call.
    pub(crate) fn add_ticket(&self, key: &Arc<str>, id: LockId, until: Tick) {
        let now = self.clock.now();
        let mut by_key = self.by_key.lock();
        // Keys whose tickets have run out go with the next one that comes; a healthy system has none.
        by_key.retain(|_, line| {
            line.tickets.retain(|(_, until)| *until > now);
            !line.is_idle(&*self.clock)
        });
        let tickets = &mut by_key.entry(Arc::clone(key)).or_default().tickets;
        if tickets.len() >= MAX_TICKETS {
            tickets.remove(0);
        }
        tickets.push((id, until));
        self.count_tickets(&by_key);
    }

    /// The tickets for an attempt on this key.
    pub(crate) fn tickets(&self, key: &Arc<str>) -> Vec<LockId> {
        if self.tickets.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let by_key = self.by_key.lock();
        let Some(line) = by_key.get(key) else { return Vec::new() };
        if line.tickets.is_empty() {
            return Vec::new();
        }
        let now = self.clock.now();
        line.tickets.iter().filter(|(_, until)| *until > now).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets tickets once every node has executed an attempt that named them.
    pub(crate) fn drop_tickets(&self, key: &Arc<str>) {
        let mut by_key = self.by_key.lock();
        if let Some(line) = by_key.get_mut(key) {
            line.tickets.clear();
            if line.is_idle(&*self.clock) {
                by_key.remove(key);
            }
        }
        self.count_tickets(&by_key);
    }

    fn count_tickets(&self, by_key: &HashMap<Arc<str>, Line<T>>) {
        self.tickets.store(by_key.values().map(|line| line.tickets.len()).sum(), Ordering::SeqCst);
    }

    /// Remembers that a program of another library has the lock.
    pub(crate) fn note_stranger(&self, key: &Arc<str>) {
        self.strangers.store(true, Ordering::Relaxed);
        let until = self.clock.now().after(STRANGERS_REMEMBERED);
        let mut by_key = self.by_key.lock();
        if let Some(line) = by_key.get_mut(key) {
            line.strangers_until = until;
            return;
        }
        // Keys that are remembered for nothing else go with the next one that comes.
        by_key.retain(|_, line| !line.is_idle(&*self.clock));
        by_key.insert(Arc::clone(key), Line { strangers_until: until, ..Line::default() });
    }

    /// The wait between attempt number `made` and the next: never past `until`, and no longer than the holder's lease can last.
    pub(crate) fn pause(&self, retry: &Retry, made: u32, expires_in: Option<Duration>, until: Tick) {
        let planned = retry.pause(made, fastrand::f64());
        let lease_end = expires_in.map_or(Duration::MAX, |left| left + Duration::from_millis(1));
        self.rest(self.clock.now().after(planned.min(lease_end)).min(until));
    }

    /// Sleeps until then, or until the client is closed.
    pub(crate) fn rest(&self, end: Tick) {
        while !self.is_closed() {
            let left = end.since(self.clock.now());
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left.min(SHORT_SLICE));
        }
    }
}

impl<T> Turn<T> {
    /// Has the next at the head leave the key to other programs for so long.
    pub(crate) fn rests_for(&self, pause: Duration, pauses: Pauses) {
        let until = self.lines.clock.now().after(pause);
        let mut by_key = self.lines.by_key.lock();
        by_key.retain(|_, line| !line.is_idle(&*self.lines.clock));
        if let Some(line) = by_key.get_mut(&self.key) {
            line.rest = Rest { until, pauses };
        }
    }

    /// The pause that this thread has to leave to other programs, and those before it.
    pub(crate) fn rest(&self) -> Rest {
        self.rest
    }

    /// True if a program of another library had the lock lately.
    pub(crate) fn has_strangers(&self) -> bool {
        self.lines.strangers.load(Ordering::Relaxed) && {
            let by_key = self.lines.by_key.lock();
            by_key.get(&self.key).is_some_and(|line| line.strangers_until > self.lines.clock.now())
        }
    }

    /// True if the next thread in line can be handed the lock.
    pub(crate) fn has_successor(&self, terms: &Terms) -> bool {
        if self.lines.standing.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let by_key = self.lines.by_key.lock();
        by_key.get(&self.key).and_then(|line| line.waiting.front()).is_some_and(|spot| spot.terms == *terms)
    }

    /// Takes the next thread out of the line, if it wants the lock on the same terms. The lock must be handed to it then.
    pub(crate) fn successor(&self, terms: &Terms) -> Option<Arc<Spot<T>>> {
        let mut by_key = self.lines.by_key.lock();
        let line = by_key.get_mut(&self.key)?;
        line.waiting.front().filter(|spot| spot.terms == *terms)?;
        let spot = line.waiting.pop_front()?;
        self.lines.standing.fetch_sub(1, Ordering::SeqCst);
        *spot.place.lock() = Place::Promised;
        Some(spot)
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        self.lines.pass_on(&self.key);
    }
}

#[cfg(test)]
#[path = "wait/tests.rs"]
mod tests;
