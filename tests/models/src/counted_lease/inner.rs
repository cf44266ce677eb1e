//! Replaces the library's `lease/inner.rs` by a lease that counts its rounds. Like the real lease, it holds a lock
//! during a round, and makes no further round once it has ended.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use crate::clock::Tick;
use crate::sync::{Condvar, Mutex};
use crate::world;

#[derive(Debug)]
pub(crate) struct LeaseInner {
    /// The time from one round to the next.
    interval: Duration,
    /// The lock that is held during a round. The value is true until the lease ends.
    rounds: Mutex<bool>,
    seen: Mutex<Seen>,
    changed: Condvar,
    /// The server that a round asks. It can be made silent.
    pub(crate) server: Server,
}

#[derive(Debug)]
struct Seen {
    is_ticking: bool,
    ticks: u32,
    /// The largest permitted number of ticks.
    most_ticks: u32,
    rounds: u32,
    due: Tick,
    /// The earliest permitted time of the next tick.
    earliest: Tick,
}

impl LeaseInner {
    pub(crate) fn new(due: Tick, interval: Duration) -> Arc<LeaseInner> {
        let seen = Seen { is_ticking: false, ticks: 0, most_ticks: u32::MAX, rounds: 0, due, earliest: due };
        Arc::new(LeaseInner {
            interval,
            rounds: Mutex::new(true),
            seen: Mutex::new(seen),
            changed: Condvar::new(),
            server: Server::new(),
        })
    }

    /// Creates a lease that is due after one interval.
    pub(crate) fn every(interval: Duration) -> Arc<LeaseInner> {
        LeaseInner::new(world::now().after(interval), interval)
    }

    pub(crate) fn first_due(&self) -> Tick {
        self.due()
    }

    /// Always false, because these leases have no handlers.
    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn has_unreported_loss(&self) -> bool {
        false
    }

    /// Always false, because these leases are not in a Sentinel group.
    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn has_new_master(&self) -> bool {
        false
    }

    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn longest_sleep(&self) -> Duration {
        Duration::MAX
    }

    /// Asks nothing. No renewal of the lease is under way.
    pub(crate) fn check_on_servers(&self, _by: Tick) {
        assert!(!self.seen.lock().is_ticking, "two threads have the same lease");
    }

    pub(crate) fn tick(&self) -> Tick {
        let mut seen = self.seen.lock();
        assert!(!seen.is_ticking, "two threads have the same lease");
        assert!(world::now() >= seen.earliest, "before it was due");
        seen.is_ticking = true;
        seen.ticks += 1;
        assert!(seen.ticks <= seen.most_ticks, "a tick after the lease was taken from its thread");
        drop(seen);
        let next = self.round();
        self.seen.lock().is_ticking = false;
        next
    }

    fn round(&self) -> Tick {
        let is_live = self.rounds.lock();
        if !*is_live {
            return Tick::NEVER;
        }
        self.server.answer();
        let mut seen = self.seen.lock();
        seen.rounds += 1;
        seen.due = world::now().after(self.interval);
        seen.earliest = seen.due;
        self.changed.notify_all();
        seen.due
    }

    pub(crate) fn due(&self) -> Tick {
        self.seen.lock().due
    }

    /// Waits until this many rounds have been made. Lets no time pass.
    pub(crate) fn until_rounds(&self, rounds: u32) {
        let mut seen = self.seen.lock();
        while seen.rounds < rounds {
            self.changed.wait(&mut seen);
        }
    }

    /// Records that the renewal thread no longer has the lease. One more tick may follow, because the thread may have
    /// picked it up just before.
    pub(crate) fn retired(&self) {
        let mut seen = self.seen.lock();
        let picked_up = u32::from(!seen.is_ticking);
        seen.most_ticks = seen.ticks + picked_up;
    }

    /// Ends the lease, as a release does. It waits for a round under way, and no other round follows.
    pub(crate) fn end(&self) {
        let was_live = std::mem::replace(&mut *self.rounds.lock(), false);
        assert!(was_live, "it ends once");
    }

    /// Ends the lease in favour of another lease, if no round is under way and `take` finds a thread.
    /// `LeaseInner::pass_on` of the library does the same.
    pub(crate) fn pass_on<S>(&self, take: impl FnOnce() -> Option<S>) -> Option<(Arc<LeaseInner>, S)> {
        let mut is_live = self.rounds.try_lock()?;
        let successor = take()?;
        *is_live = false;
        let inner = LeaseInner::new(self.due(), self.interval);
        // The renewal thread may have been about to look at the former lease.
        inner.seen.lock().earliest = Tick::ZERO;
        Some((inner, successor))
    }
}

/// Suspects any of the leases.
pub(crate) fn suspects(leases: &[Arc<LeaseInner>], _by: Tick) -> Vec<usize> {
    (0..leases.len()).filter(|_| thread_rng().r#gen()).collect()
}

/// A server that answers at once, until it is told to be silent.
#[derive(Debug)]
pub(crate) struct Server {
    is_silent: Mutex<bool>,
    changed: Condvar,
}

impl Server {
    fn new() -> Server {
        Server { is_silent: Mutex::new(false), changed: Condvar::new() }
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        *self.is_silent.lock() = silent;
        self.changed.notify_all();
    }

    fn answer(&self) {
        let mut is_silent = self.is_silent.lock();
        while *is_silent {
            self.changed.wait(&mut is_silent);
        }
    }
}
