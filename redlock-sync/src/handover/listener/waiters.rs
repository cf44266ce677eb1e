//! The lock around the [`WaiterTable`], and the loop in which waiting threads read the notification connection in turn.

use std::sync::Arc;
use std::time::Duration;

use super::waiter_table::{BackgroundTask, FollowUp, NextStep, WaiterTable, Woken};
use crate::cancel::Cancel;
use crate::clock::{Clock, Tick};
use crate::node::{Heard, Subscriber};
use crate::sync::Mutex;

/// Runs a task elsewhere. It must neither block nor call back on the same thread.
pub(crate) type RunInBackground = Box<dyn Fn(BackgroundTask) + Send + Sync>;

/// The shortest limit for the reads of a wait that can be cancelled.
const SHORTEST_LIMIT: Duration = Duration::from_millis(10);

pub(crate) struct Waiters {
    clock: Arc<dyn Clock>,
    /// How long a heartbeat may be under way.
    timeout: Duration,
    tasks: RunInBackground,
    table: Mutex<WaiterTable>,
}

impl Waiters {
    pub(crate) fn new(clock: Arc<dyn Clock>, timeout: Duration, tasks: RunInBackground) -> Arc<Waiters> {
        Arc::new(Waiters { clock, timeout, tasks, table: Mutex::default() })
    }

    /// Runs one step under the lock, and then what follows from it without the lock.
    pub(crate) fn with<R>(&self, step: impl FnOnce(&mut WaiterTable, Tick) -> R) -> R {
        let mut table = self.table.lock();
        let result = step(&mut table, self.clock.now());
        debug_assert!(table.is_sound());
        let follow_up = std::mem::take(&mut table.follow_up);
        drop(table);
        self.carry_out(follow_up);
        result
    }

    fn carry_out(&self, mut follow_up: FollowUp) {
        follow_up.tasks.drain(..).for_each(|task| (self.tasks)(task));
    }

    /// Sleeps until then, or until something is there for this wait. Meanwhile it reads the connection, if no other
    /// thread does. A cancelled wait ends like the timer: it is woken to check.
    pub(crate) fn sleep(self: &Arc<Self>, number: u64, until: Tick, cancel: Option<&Cancel>) -> Woken {
        let _registered = cancel.map(|cancel| {
            let this = Arc::clone(self);
            cancel.wakes(move || this.with(|table, _| table.wake_to_check([number])))
        });
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Woken::Timer;
        }
        // If the server hangs, it sends no message that ends the read of a cancelled wait.
        let longest_read = cancel.map_or(Duration::MAX, |_| self.timeout.max(SHORTEST_LIMIT));
        let mut brought: Option<(Box<dyn Subscriber>, Heard)> = None;
        loop {
            let mut table = self.table.lock();
            let now = self.clock.now();
            if let Some((conn, heard)) = brought.take() {
                table.read_ended(conn, heard, now, self.timeout);
            }
            let step = table.step(number, until, now, self.timeout);
            debug_assert!(table.is_sound());
            match step {
                NextStep::Sleep(wakeup, time) if table.follow_up.is_empty() => {
                    self.clock.wait_until(&wakeup, &mut table, now.after(time));
                }
                step => {
                    let follow_up = std::mem::take(&mut table.follow_up);
                    drop(table);
                    match step {
                        NextStep::Read(conn, read_for) => {
                            let guard = ReaderGuard { waiters: self, conn: Some(conn) };
                            self.carry_out(follow_up);
                            brought = guard.read(read_for.min(longest_read));
                        }
                        NextStep::Sleep(..) => self.carry_out(follow_up),
                        NextStep::Woken(woken) => {
                            self.carry_out(follow_up);
                            return woken;
                        }
                    }
                }
            }
        }
    }
}

/// The connection while a thread reads it. If that thread panics, the connection is dropped and another one is made.
struct ReaderGuard<'a> {
    waiters: &'a Waiters,
    conn: Option<Box<dyn Subscriber>>,
}

impl ReaderGuard<'_> {
    fn read(mut self, time: Duration) -> Option<(Box<dyn Subscriber>, Heard)> {
        let heard = self.conn.as_mut()?.receive(time);
        Some((self.conn.take()?, heard))
    }
}

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.waiters.with(|table, now| table.broke(Some(conn), now));
        }
    }
}
