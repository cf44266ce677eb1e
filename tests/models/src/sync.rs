//! The library's `sync`, on the scheduler: the same names as its real one, with the calls of `parking_lot` that the library makes.
//!
//! A wait with a bound ends when a thread notifies, or when the model's clock ([`world`]) reaches its bound; never otherwise. So a
//! wake-up that was lost is a deadlock, which the scheduler reports, unless the model lets the time pass.

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use shuttle::sync::atomic::Ordering;

use crate::world::{self, Sleeper};

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Empty only while a condition variable waits.
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

    /// Without poisoning: after a failure the destructors still run.
    fn hold(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: self, held: Some(held) })
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

/// Shows what is inside, so that a model can look at what the library keeps to itself.
impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().deref().fmt(f)
    }
}

/// Nothing wakes without a reason here. What loops around a wait must cope with that; the library's loops would hide a lost wake-up otherwise.
pub(crate) struct Condvar {
    waiting: std::sync::Mutex<VecDeque<Arc<Sleeper>>>,
    /// Touched before each notification: there another thread may run.
    point: AtomicBool,
}

pub(crate) struct WaitResult {
    timed_out: bool,
}

impl WaitResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out
    }
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar { waiting: std::sync::Mutex::default(), point: AtomicBool::new(false) }
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitResult {
        let until = world::now().after(time);
        let sleeper = world::fall_asleep(time);
        self.waiting.lock().unwrap().push_back(Arc::clone(&sleeper));
        // From here on a notification is for this thread, as if it gave up the lock and slept in one step.
        guard.held = None;
        sleeper.sleep();
        self.waiting.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &sleeper));
        guard.held = Some(guard.mutex.hold());
        WaitResult { timed_out: world::now() >= until }
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

/// As `std::thread`, with a count of the threads that the library started.
pub(crate) mod thread {
    use std::io;

    use shuttle::thread::JoinHandle;

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
