//! A clock that tests advance.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock, Tick, Waiting};
use crate::sync::{Condvar, Mutex};

/// How long `advance` waits at most for the threads whose time has come: for ever, but for a handler that waits for
/// what its test does next.
const SETTLING: Duration = Duration::from_secs(30);
/// As far as the time is advanced, in nanoseconds: 292 years.
const MOST_AHEAD: u64 = u64::MAX / 2;
/// So often `advance` notifies threads whose time has come and that are asleep. One that was about to wait has not
/// heard the first time.
const REPEAT: Duration = Duration::from_millis(1);
/// A thread looks at the clock this often even if nothing notifies it: where a handler of a loss advances the time,
/// that does not wait for others.
const SLICE: Duration = Duration::from_millis(20);

/// The machine's clock, ahead by what was added.
#[derive(Debug, Clone, Default)]
pub(super) struct TestClock(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// In nanoseconds.
    ahead: AtomicU64,
    threads: Mutex<Threads>,
    /// A thread has fallen asleep, woken or ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    asleep: HashMap<u64, Sleep>,
    /// Names for these.
    next: u64,
    /// How many of the threads that this clock has started have something to do. One that waits for another thread is
    /// among them: what ended its wait may have been sent already.
    busy: usize,
    /// How often the time was advanced.
    advances: u64,
}

/// Until when a thread sleeps, and what it waits for meanwhile.
#[derive(Debug)]
struct Sleep {
    until: Tick,
    condvar: Arc<Condvar>,
    /// Of a thread that looks whether something is due, when it has last looked: after so many advances.
    looked: Option<u64>,
}

thread_local! {
    /// The clock that has started this thread, by its address.
    static STARTED_BY: Cell<usize> = const { Cell::new(0) };
}

impl TestClock {
    /// Lets this time pass at once. Returns when the threads that slept until a moment in it have woken, and those that
    /// this clock has started have all looked at the clock and done what was due.
    ///
    /// A thread that read the clock before and has not gone to sleep yet is among them: it sleeps until a moment and
    /// not for a time, so that it wakes at once.
    pub(super) fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // There is time left behind it: at the end of all time each sleep would be over as it begins.
        let ahead = |ahead: u64| Some(ahead.saturating_add(nanos).min(MOST_AHEAD));
        _ = self.0.ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ahead);
        let by = SystemClock.now().after(SETTLING);
        let mut threads = self.0.threads.lock();
        threads.advances += 1;
        loop {
            let now = self.now();
            let is_settled = threads.wake(now) == 0 && threads.busy == 0;
            // One that such a thread itself calls, in a handler of a loss, would wait for that thread.
            if is_settled || self.is_own_thread() || SystemClock.now() >= by {
                break;
            }
            self.0.changed.wait_for(&mut threads, REPEAT);
        }
    }

    fn is_own_thread(&self) -> bool {
        STARTED_BY.get() == Arc::as_ptr(&self.0).addr()
    }

    fn doze(&self, condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick, is_idle: bool) {
        let asleep = Asleep::new(self, until, condvar, is_idle && self.is_own_thread());
        loop {
            let left = until.since(self.now());
            if left.is_zero() || waiting.wait_for(left.min(SLICE)) {
                break;
            }
        }
        drop(asleep);
    }
}

impl Threads {
    /// Notifies those whose time has come, and counts them.
    fn wake(&self, now: Tick) -> usize {
        let is_due = |sleep: &&Sleep| sleep.until <= now || sleep.looked.is_some_and(|looked| looked < self.advances);
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
            // No other thread ends it.
            clock.idle_until(&condvar, &mut guard, until);
        }
    }

    fn wait(&self, condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick) {
        self.doze(condvar, waiting, until, false);
    }

    fn idle(&self, condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick) {
        self.doze(condvar, waiting, until, true);
    }

    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let busy = Busy::new(self.clone());
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

/// A thread that sleeps, as the clock knows it.
struct Asleep<'a> {
    clock: &'a TestClock,
    name: u64,
    /// It is one of the clock's own, and has nothing to do.
    is_idle: bool,
}

impl<'a> Asleep<'a> {
    fn new(clock: &'a TestClock, until: Tick, condvar: &Arc<Condvar>, is_idle: bool) -> Asleep<'a> {
        let mut threads = clock.0.threads.lock();
        threads.next += 1;
        let name = threads.next;
        let looked = is_idle.then_some(threads.advances);
        threads.asleep.insert(name, Sleep { until, condvar: Arc::clone(condvar), looked });
        threads.busy -= usize::from(is_idle);
        clock.0.changed.notify_all();
        Asleep { clock, name, is_idle }
    }
}

impl Drop for Asleep<'_> {
    /// In one step: there is no moment at which the thread is neither asleep nor busy.
    fn drop(&mut self) {
        let mut threads = self.clock.0.threads.lock();
        threads.asleep.remove(&self.name);
        threads.busy += usize::from(self.is_idle);
        self.clock.0.changed.notify_all();
    }
}

/// A thread that the clock has started, from before its start to its end.
struct Busy(TestClock);

impl Busy {
    fn new(clock: TestClock) -> Busy {
        clock.0.threads.lock().busy += 1;
        Busy(clock)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
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
        // Until it sleeps.
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

    /// The thread has looked at the clock, and falls asleep after the time was advanced: it has to see what is due by
    /// now.
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
                SystemClock.sleep(REPEAT);
            }
            go.send(()).unwrap();
        });
        assert_eq!(told.try_recv(), Ok(true), "`advance` has returned and the thread still sleeps");
    }

    /// One thread of the clock has told another one to go on, and is done already.
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
            SystemClock.sleep(REPEAT);
        }
        clock.advance(LONG + REPEAT);
        assert_eq!(told.try_recv(), Ok(()));
    }
}
