//! A clock that tests advance.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock, Tick, Waiting};
use crate::sync::{Condvar, Mutex};

/// The longest time for which `advance` waits for threads that are due. It is needed only for a handler that waits for
/// what its test does next.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest total advance, in nanoseconds: 292 years.
const MOST_AHEAD: u64 = u64::MAX / 2;
/// How often `advance` notifies sleeping threads that are due. A thread that was only about to wait misses the first
/// notification.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(1);
/// After this time a wait returns without a notification, and the caller reads the clock again. A call of `advance` in
/// a handler of a loss does not wait until the threads have woken.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// A clock that is ahead of the machine's clock by the time that was added.
#[derive(Debug, Clone, Default)]
pub(super) struct TestClock(Arc<TestClockInner>);

#[derive(Debug, Default)]
struct TestClockInner {
    /// How far it is ahead, in nanoseconds.
    ///
    /// `advance` raises it before it locks `threads`. Pairs with `TestClock::now`, which `wait` calls after it has
    /// registered its sleep there. So `wait` reads the new time, or `advance` finds the sleep. Otherwise `advance`
    /// could return before a thread has woken.
    ahead: AtomicU64,
    threads: Mutex<Threads>,
    /// Notified when a thread falls asleep, wakes or ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    asleep: HashMap<u64, Sleep>,
    /// The id of the last sleep.
    next: u64,
    /// How many of the threads that this clock has started have something to do. A thread that waits for another thread
    /// counts, since the notification for it may have been sent already.
    busy: usize,
    /// How often the time was advanced.
    advances: u64,
}

/// A sleep of a thread: its end, and the condition variable on which it waits.
#[derive(Debug)]
struct Sleep {
    until: Tick,
    condvar: Arc<Condvar>,
    /// The number of advances when an idle thread last checked whether something is due. `None` for other threads.
    checked_at: Option<u64>,
}

thread_local! {
    /// The address of the clock that has started this thread.
    static STARTED_BY: Cell<usize> = const { Cell::new(0) };
}

impl TestClock {
    /// Lets this time pass at once. Returns when all threads whose sleep ends in this time have woken. All idle threads
    /// of this clock have then read the clock and done what was due.
    ///
    /// This includes a thread that has read the clock before but has not gone to sleep yet. Its sleep has a point in
    /// time as its end, so it wakes at once.
    pub(super) fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // The sum is limited so that later sleeps still have an end in the future.
        let ahead = |ahead: u64| Some(ahead.saturating_add(nanos).min(MOST_AHEAD));
        _ = self.0.ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ahead);
        let by = SystemClock.now().after(SETTLE_TIMEOUT);
        let mut threads = self.0.threads.lock();
        threads.advances += 1;
        loop {
            let now = self.now();
            let is_settled = threads.wake(now) == 0 && threads.busy == 0;
            // If a thread of this clock calls `advance`, in a handler of a loss, it must not wait for itself.
            if is_settled || self.is_own_thread() || SystemClock.now() >= by {
                break;
            }
            self.0.changed.wait_for(&mut threads, NOTIFY_INTERVAL);
        }
    }

    fn is_own_thread(&self) -> bool {
        STARTED_BY.get() == Arc::as_ptr(&self.0).addr()
    }
}

impl Threads {
    /// Notifies the sleeping threads that are due, and returns their number.
    fn wake(&self, now: Tick) -> usize {
        let is_due = |sleep: &&Sleep| {
            sleep.until <= now || sleep.checked_at.is_some_and(|checked_at| checked_at < self.advances)
        };
        let due = self.asleep.values().filter(is_due);
        due.inspect(|sleep| _ = sleep.condvar.notify_all()).count()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Tick {
        SystemClock.now().after(Duration::from_nanos(self.0.ahead.load(Ordering::SeqCst)))
    }

    fn sleep(&self, time: Duration) {
        let until = self.now().after(time);
        let (mutex, condvar) = (Mutex::new(()), Arc::new(Condvar::new()));
        let mut guard = mutex.lock();
        let clock: &dyn Clock = self;
        while self.now() < until {
            // Nothing notifies this condition variable but the clock.
            clock.idle_until(&condvar, &mut guard, until);
        }
    }

    fn wait(&self, condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick, is_idle: bool) {
        let asleep = SleepGuard::new(self, until, condvar, is_idle && self.is_own_thread());
        let left = until.since(self.now());
        if !left.is_zero() {
            // Returns even if the time is not over. A notification may have been sent while the mutex was locked again,
            // so the caller must check its condition before it waits again.
            waiting.wait_for(left.min(LONGEST_WAIT));
        }
        drop(asleep);
    }

    /// The sleep of the thread ends now, so `advance` waits until the thread has woken.
    fn notify(&self, condvar: &Arc<Condvar>) {
        let mut threads = self.0.threads.lock();
        let woken = threads.asleep.values_mut().filter(|sleep| Arc::ptr_eq(&sleep.condvar, condvar));
        woken.for_each(|sleep| sleep.until = Tick::ZERO);
        condvar.notify_all();
    }

    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.0.threads.lock().busy += 1;
        let busy = BusyGuard(self.clone());
        SystemClock.start(
            name,
            Box::new(move || {
                STARTED_BY.set(Arc::as_ptr(&busy.0.0).addr());
                run();
                drop(busy);
            }),
        )
    }
}

/// Registers a sleep of a thread with the clock until it is dropped.
struct SleepGuard<'a> {
    clock: &'a TestClock,
    name: u64,
}

impl<'a> SleepGuard<'a> {
    /// `is_idle`: the thread was started by the clock and has nothing to do.
    fn new(clock: &'a TestClock, until: Tick, condvar: &Arc<Condvar>, is_idle: bool) -> SleepGuard<'a> {
        let mut threads = clock.0.threads.lock();
        threads.next += 1;
        let name = threads.next;
        let checked_at = is_idle.then_some(threads.advances);
        threads.asleep.insert(name, Sleep { until, condvar: Arc::clone(condvar), checked_at });
        threads.busy -= usize::from(is_idle);
        clock.0.changed.notify_all();
        SleepGuard { clock, name }
    }
}

impl Drop for SleepGuard<'_> {
    /// One step under the lock: at no time is the thread neither asleep nor busy.
    fn drop(&mut self) {
        let mut threads = self.clock.0.threads.lock();
        let sleep = threads.asleep.remove(&self.name);
        threads.busy += usize::from(sleep.is_some_and(|sleep| sleep.checked_at.is_some()));
        self.clock.0.changed.notify_all();
    }
}

/// A thread of the clock that is counted as busy until this is dropped, from before its start until its end.
struct BusyGuard(TestClock);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        // The threads are unlocked before the notification. Pairs with `TestClock::advance`, which reads `busy` under
        // the lock before it waits.
        self.0.0.threads.lock().busy -= 1;
        self.0.0.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn sleeps_end_when_their_time_was_advanced() {
        let clock = TestClock::default();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let before = clock.now();
                clock.sleep(LONG);
                assert!(clock.now().since(before) >= LONG);
            });
            while !sleeper.is_finished() {
                clock.advance(LONG);
            }
        });
    }

    #[test]
    fn what_a_thread_of_the_clock_does_then_is_done_when_advance_returns() {
        let clock = TestClock::default();
        let (tell, told) = mpsc::channel();
        let sleeper = clock.clone();
        let run = move || {
            for i in 0..3 {
                sleeper.sleep(LONG);
                SystemClock.sleep(Duration::from_millis(20));
                tell.send(i).unwrap();
            }
        };
        clock.start("sleeper", Box::new(run)).unwrap();
        // This waits until the thread sleeps.
        clock.advance(Duration::ZERO);
        for i in 0..3 {
            clock.advance(LONG);
            assert_eq!(told.try_recv(), Ok(i));
        }
    }

    #[test]
    fn a_thread_of_the_clock_may_advance_it() {
        let clock = TestClock::default();
        let (tell, told) = mpsc::channel();
        let own = clock.clone();
        let run = move || {
            own.advance(LONG);
            tell.send(()).unwrap();
        };
        clock.start("own", Box::new(run)).unwrap();
        told.recv().unwrap();
    }

    #[test]
    fn a_notification_ends_a_wait() {
        let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
        let pair = (Mutex::new(false), Arc::new(Condvar::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut told = pair.0.lock();
                while !*told {
                    clock.wait_until(&pair.1, &mut told, clock.now().after(LONG));
                }
            });
            *pair.0.lock() = true;
            pair.1.notify_one();
        });
    }

    /// Otherwise, a notification between two parts of a wait would be lost.
    #[test]
    fn a_wait_returns_so_that_its_condition_is_checked() {
        let clock: &dyn Clock = &TestClock::default();
        let (mutex, condvar) = (Mutex::new(()), Arc::new(Condvar::new()));
        clock.wait_until(&condvar, &mut mutex.lock(), Tick::NEVER);
        clock.idle_until(&condvar, &mut mutex.lock(), Tick::NEVER);
    }

    /// The thread has read the clock, and falls asleep only after the time was advanced. It must find what is due now.
    #[test]
    fn a_thread_that_was_about_to_sleep_wakes_too() {
        let clock = TestClock::default();
        let (ready, (go, gone), (tell, told)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let own = clock.clone();
        let run = move || {
            let until = own.now().after(LONG);
            ready.0.send(()).unwrap();
            gone.recv().unwrap();
            let (mutex, condvar) = (Mutex::new(()), Arc::new(Condvar::new()));
            (&own as &dyn Clock).idle_until(&condvar, &mut mutex.lock(), until);
            tell.send(own.now() >= until).unwrap();
        };
        clock.start("late", Box::new(run)).unwrap();
        ready.1.recv().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| clock.advance(LONG));
            while clock.0.ahead.load(Ordering::SeqCst) == 0 {
                SystemClock.sleep(NOTIFY_INTERVAL);
            }
            go.send(()).unwrap();
        });
        assert_eq!(told.try_recv(), Ok(true), "`advance` has returned and the thread still sleeps");
    }

    /// One thread of the clock has woken another one, and has already finished.
    #[test]
    fn a_thread_that_waits_for_another_one_is_not_done() {
        let clock = TestClock::default();
        let (pair, (tell, told)) = (Arc::new((Mutex::new(false), Arc::new(Condvar::new()))), mpsc::channel());
        let (own, theirs) = (clock.clone(), Arc::clone(&pair));
        let waits = move || {
            let clock: &dyn Clock = &own;
            let mut is_told = theirs.0.lock();
            while !*is_told {
                clock.wait_until(&theirs.1, &mut is_told, clock.now().after(2 * LONG));
            }
            tell.send(()).unwrap();
        };
        let own = clock.clone();
        let tells = move || {
            own.sleep(LONG);
            *pair.0.lock() = true;
            pair.1.notify_one();
        };
        clock.start("waits", Box::new(waits)).unwrap();
        clock.start("tells", Box::new(tells)).unwrap();
        while clock.0.threads.lock().asleep.len() < 2 {
            SystemClock.sleep(NOTIFY_INTERVAL);
        }
        clock.advance(LONG + NOTIFY_INTERVAL);
        assert_eq!(told.try_recv(), Ok(()));
    }
}
