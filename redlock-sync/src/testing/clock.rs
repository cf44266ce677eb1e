//! A clock that tests advance.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock, Tick, Waiting};
use crate::sync::Mutex;

/// A thread that sleeps sees within this time that the clock was advanced.
const SLICE: Duration = Duration::from_millis(5);
/// How long `advance` waits at most for the threads whose time has come.
const SETTLING: Duration = Duration::from_secs(10);

/// The machine's clock, ahead by what was added.
#[derive(Debug, Clone, Default)]
pub(super) struct TestClock(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// In nanoseconds.
    ahead: AtomicU64,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    /// Until when each thread sleeps that does.
    asleep: HashMap<u64, Tick>,
    /// Names for these.
    next: u64,
    /// How many of the threads that this clock has started are awake.
    awake: usize,
}

thread_local! {
    /// The clock that has started this thread, by its address.
    static STARTED_BY: Cell<usize> = const { Cell::new(0) };
}

impl TestClock {
    /// Lets this time pass at once. Returns when the threads that slept until a moment in it have woken, and those that this clock has started
    /// have done what was due.
    pub(super) fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let ahead = |ahead: u64| Some(ahead.saturating_add(nanos));
        _ = self.0.ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ahead);
        // One that such a thread itself calls, in a handler of a loss, would wait for that thread.
        if !self.is_own_thread() {
            let by = SystemClock.now().after(SETTLING);
            while !self.is_settled() && SystemClock.now() < by {
                SystemClock.sleep(SLICE / 25);
            }
        }
    }

    fn is_settled(&self) -> bool {
        let now = self.now();
        let threads = self.0.threads.lock();
        threads.awake == 0 && threads.asleep.values().all(|until| *until > now)
    }

    fn is_own_thread(&self) -> bool {
        STARTED_BY.get() == Arc::as_ptr(&self.0).addr()
    }

    /// Sleeps in slices until that time has passed, or `nap` says that it was woken.
    fn doze(&self, time: Duration, mut nap: impl FnMut(Duration) -> bool) {
        let until = self.now().after(time);
        let asleep = Asleep::new(self, until);
        loop {
            let left = until.since(self.now());
            if left.is_zero() || nap(left.min(SLICE)) {
                break;
            }
        }
        drop(asleep);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Tick {
        SystemClock.now().after(Duration::from_nanos(self.0.ahead.load(Ordering::SeqCst)))
    }

    fn sleep(&self, time: Duration) {
        self.doze(time, |slice| {
            SystemClock.sleep(slice);
            false
        });
    }

    fn wait(&self, waiting: &mut dyn Waiting, time: Duration) {
        self.doze(time, |slice| waiting.wait_for(slice));
    }

    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let awake = Awake::new(self.clone());
        SystemClock.start(
            name,
            Box::new(move || {
                STARTED_BY.set(Arc::as_ptr(&awake.0.0).addr());
                run();
                drop(awake);
            }),
        )
    }
}

/// A thread that sleeps, as the clock knows it.
struct Asleep<'a> {
    clock: &'a TestClock,
    name: u64,
}

impl<'a> Asleep<'a> {
    fn new(clock: &'a TestClock, until: Tick) -> Asleep<'a> {
        let mut threads = clock.0.threads.lock();
        threads.next += 1;
        let name = threads.next;
        threads.asleep.insert(name, until);
        threads.awake -= usize::from(clock.is_own_thread());
        Asleep { clock, name }
    }
}

impl Drop for Asleep<'_> {
    /// In one step: there is no moment at which the thread is neither asleep nor awake.
    fn drop(&mut self) {
        let mut threads = self.clock.0.threads.lock();
        threads.asleep.remove(&self.name);
        threads.awake += usize::from(self.clock.is_own_thread());
    }
}

/// A thread that the clock has started, from before its start to its end.
struct Awake(TestClock);

impl Awake {
    fn new(clock: TestClock) -> Awake {
        clock.0.threads.lock().awake += 1;
        Awake(clock)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.0.threads.lock().awake -= 1;
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
        let pair = (Mutex::new(false), crate::sync::Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut told = pair.0.lock();
                while !*told {
                    clock.wait_for(&pair.1, &mut told, LONG);
                }
            });
            *pair.0.lock() = true;
            pair.1.notify_one();
        });
    }
}
