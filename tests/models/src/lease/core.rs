//! In place of the library's `lease/core.rs`: a lease that counts its rounds. As the real one it has a lock that is held through a
//! round, and makes no further round once it has ended.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::sync::{Condvar, Mutex};
use crate::world;

#[derive(Debug)]
pub(crate) struct Core {
    /// From one round to the next.
    interval: Duration,
    /// Held through a round; true until the lease ends.
    io: Mutex<bool>,
    seen: Mutex<Seen>,
    changed: Condvar,
    /// What a round waits for, in place of a server that does not answer.
    pub(crate) server: Server,
}

#[derive(Debug)]
struct Seen {
    is_ticking: bool,
    ticks: u32,
    /// No more than this may begin.
    most_ticks: u32,
    rounds: u32,
    due: Tick,
    /// No tick may begin before.
    earliest: Tick,
}

impl Core {
    pub(crate) fn new(due: Tick, interval: Duration) -> Arc<Core> {
        let seen = Seen { is_ticking: false, ticks: 0, most_ticks: u32::MAX, rounds: 0, due, earliest: due };
        Arc::new(Core {
            interval,
            io: Mutex::new(true),
            seen: Mutex::new(seen),
            changed: Condvar::new(),
            server: Server::new(),
        })
    }

    /// Due after one interval.
    pub(crate) fn every(interval: Duration) -> Arc<Core> {
        Core::new(world::now().after(interval), interval)
    }

    pub(crate) fn first_due(&self) -> Tick {
        self.due()
    }

    /// None of these has handlers.
    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn has_unreported_loss(&self) -> bool {
        false
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
        let is_live = self.io.lock();
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

    /// Waits, without letting any time pass.
    pub(crate) fn until_rounds(&self, rounds: u32) {
        let mut seen = self.seen.lock();
        while seen.rounds < rounds {
            self.changed.wait(&mut seen);
        }
    }

    /// Its thread does not have it any more. One tick may have been picked up just before and not have begun.
    pub(crate) fn retired(&self) {
        let mut seen = self.seen.lock();
        let picked_up = u32::from(!seen.is_ticking);
        seen.most_ticks = seen.ticks + picked_up;
    }

    /// What a release does: waits for a round under way, and no other follows.
    pub(crate) fn end(&self) {
        let was_live = std::mem::replace(&mut *self.io.lock(), false);
        assert!(was_live, "it ends once");
    }

    /// Ends it in favour of another one, if no round is under way and `take` finds a thread; as `Core::pass_on` of the library.
    pub(crate) fn pass_on<S>(&self, take: impl FnOnce() -> Option<S>) -> Option<(Arc<Core>, S)> {
        let mut is_live = self.io.try_lock()?;
        let successor = take()?;
        *is_live = false;
        let core = Core::new(self.due(), self.interval);
        // The thread may have been about to look at the former lease.
        core.seen.lock().earliest = Tick::ZERO;
        Some((core, successor))
    }
}

/// Answers at once, until it is told to be silent.
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
