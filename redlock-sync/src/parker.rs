//! Threads that sleep until something changes.
//!
//! No wake-up is lost:
//!
//! - Before a thread sleeps, it locks the cell, and looks at it and at each [`Cancel`]. The condition variable unlocks
//!   the cell in the same step in which the sleep begins.
//! - A thread that changes the cell has it locked, and notifies afterwards. A thread that cancels marks the `Cancel`,
//!   locks the cell once, and notifies afterwards.
//! - So the change comes before the look, which sees it, or within the sleep, which the notification ends.
//! - A sleep is registered with its `Cancel` before the look. A `Cancel` that misses the sleep was marked by then.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::clock::{Clock, Tick};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The longest sleep until a thread looks at the clock again. Condition variables do not count the time for which the
/// machine is suspended. The clock of leases does.
const SLICE: Duration = Duration::from_secs(1);

/// A cell, for whose changes threads sleep.
#[derive(Debug, Default)]
pub(crate) struct Parker<T> {
    cell: Mutex<T>,
    changed: Arc<Condvar>,
}

impl<T> Parker<T> {
    pub(crate) fn new(cell: T) -> Arc<Parker<T>> {
        Arc::new(Parker { cell: Mutex::new(cell), changed: Arc::new(Condvar::new()) })
    }

    /// The cell, for a look at it, or for a change that has to wake no thread.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.cell.lock()
    }

    /// Like [`lock`](Parker::lock), for a forked child: there a thread that does not exist can have the mutex.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.cell.try_lock()
    }

    /// Changes the cell, and wakes the threads that sleep. The cell is unlocked by then, so they do not wait for it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.cell.lock());
        self.notify();
        result
    }

    /// The second half of a change that was made by [`lock`](Parker::lock).
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Wakes a thread that [idles](Parker::idle). A test clock stands still until it has woken.
    pub(crate) fn wake_idle(&self, clock: &dyn Clock) {
        clock.notify(&self.changed);
    }

    /// One sleep of a thread that has nothing to do, and decides at each look how long the next sleep is.
    pub(crate) fn idle(&self, clock: &dyn Clock, cell: &mut MutexGuard<'_, T>, until: Tick) {
        clock.idle_until(&self.changed, cell, until);
    }

    /// Sleeps until `ready` finds in the cell what it wants. `None` if one of these is cancelled before that, or if the
    /// time has come.
    pub(crate) fn wait<R>(
        self: &Arc<Self>,
        clock: &dyn Clock,
        until: Tick,
        cancels: &[Option<&Cancel>],
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R>
    where
        T: Send + 'static,
    {
        let register = |cancel: &&Cancel| {
            let this = Arc::clone(self);
            cancel.wakes(move || this.change(|_| {}))
        };
        let _registered: Vec<_> = cancels.iter().flatten().map(register).collect();
        let mut cell = self.cell.lock();
        loop {
            if let Some(result) = ready(&mut cell) {
                return Some(result);
            }
            let now = clock.now();
            if now >= until || cancels.iter().flatten().any(|cancel| cancel.is_cancelled()) {
                return None;
            }
            clock.wait_until(&self.changed, &mut cell, until.min(now.after(SLICE)));
        }
    }
}

/// Sleeps until then, or until one of these is cancelled.
pub(crate) fn pause(clock: &dyn Clock, until: Tick, cancels: &[Option<&Cancel>]) {
    Parker::new(()).wait(clock, until, cancels, |()| None::<()>);
}
