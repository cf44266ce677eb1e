//! Replaces the library's `sync` by one on the scheduler. It has the same names as the real one, and the calls of
//! `parking_lot` that the library makes.
//!
//! A wait with a time limit ends only if a thread notifies it, or if the clock of the model ([`world`]) reaches the
//! limit. So a lost wake-up is a deadlock, which the scheduler reports, unless the model lets time pass.

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::Ordering;

use crate::world::{self, Sleeper};

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// A guard. Its `held` is empty only while a condition variable waits.
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.hold()) }
    }

    /// Locks the mutex and ignores poisoning, so that destructors still run after a failure.
    fn hold(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: self, held: Some(held) })
    }

    /// Waits for the mutex, or finds that the time is up: the scheduler decides which of the two comes first.
    pub(crate) fn try_lock_for(&self, _time: Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock().or_else(|| thread_rng().r#gen::<bool>().then(|| self.lock()))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().unwrap()
    }
}

/// Shows the value, so that a model can look at private state of the library.
impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().deref().fmt(f)
    }
}

/// A condition variable without spurious wake-ups. They would hide a lost notification, because the library's loops
/// check their condition again.
#[derive(Default)]
pub(crate) struct Condvar {
    waiting: std::sync::Mutex<VecDeque<Arc<Sleeper>>>,
    /// An atomic that is read before each notification. The scheduler can switch threads there.
    point: AtomicBool,
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        if time.is_zero() {
            // The limit has passed since the thread read the clock.
            guard.held = None;
            guard.held = Some(guard.mutex.hold());
            return;
        }
        let sleeper = world::fall_asleep(time);
        self.waiting.lock().unwrap().push_back(Arc::clone(&sleeper));
        // From here on, a notification reaches this thread. The thread releases the lock and sleeps as if in one step.
        guard.held = None;
        sleeper.sleep();
        self.waiting.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &sleeper));
        guard.held = Some(guard.mutex.hold());
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_for(guard, Duration::MAX);
    }

    pub(crate) fn notify_one(&self) {
        self.point.load(Ordering::SeqCst);
        let woken = self.waiting.lock().unwrap().iter().find(|sleeper| sleeper.wakes_up()).cloned();
        if let Some(sleeper) = woken {
            sleeper.go_on();
        }
    }

    pub(crate) fn notify_all(&self) {
        self.point.load(Ordering::SeqCst);
        let waiting = self.waiting.lock().unwrap().clone();
        for sleeper in waiting.iter().filter(|sleeper| sleeper.wakes_up()) {
            sleeper.go_on();
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// The scheduler chooses the next thread at each step anyway.
pub(crate) const YIELDS: usize = 1;

/// Replaces `std::thread`. It counts the threads that the library has started.
pub(crate) mod thread {
    use std::io;

    use shuttle::thread::JoinHandle;
    pub(crate) use shuttle::thread::yield_now;

    use crate::world;

    pub(crate) struct Builder(shuttle::thread::Builder);

    impl Builder {
        pub(crate) fn new() -> Builder {
            Builder(shuttle::thread::Builder::new())
        }

        pub(crate) fn name(self, name: String) -> Builder {
            Builder(self.0.name(name))
        }

        pub(crate) fn spawn(self, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
            let alive = world::alive();
            *alive.count.lock() += 1;
            self.0.spawn(move || {
                run();
                *alive.count.lock() -= 1;
                alive.changed.notify_all();
            })
        }
    }
}
