//! The reentrant mutex: a thread that holds it can lock it again, without I/O.

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::lock::handle::{Handle, derefs_to_lease, force_unlock, inspection};
use crate::lock::holder::Holder;
use crate::lock::mutex::GuardNoSend;
use crate::lock::nested_hold::{NestedHold, Unlocked};
use crate::lock::settings::settings;
use crate::lock::with::closures;
use crate::options::LockOptions;

/// A mutex that its holding thread may lock again. [`Redlock::reentrant_mutex`](crate::Redlock::reentrant_mutex) makes
/// it.
///
/// Picture the key of a [`Mutex`](crate::Mutex) in a thread's pocket: with it, the thread opens further doors of the
/// same lock. A reentrant mutex and the mutex of the same name are one lock, with one [order](crate::Mutex#order).
///
/// A thread owns the lock, for one client and one key, as with Java's locks. A nested `lock()` costs no I/O and shares
/// the outer guard's lease, with the same token, fencing token and renewal. The nested handle's own `lease` or
/// `max_hold` has no effect. The lock is released with the last guard, in whatever order the guards are dropped.
///
/// **While a task waits for its own parallel part, a work-stealing pool, such as rayon's, can run a second task on the
/// same thread. The second task then enters the lock that the first one holds, and both are in the critical section**.
/// In tasks of such a pool, use a [`Mutex`](crate::Mutex). With it, the second task gets
/// [`WouldDeadlock`](Error::WouldDeadlock), or [`Busy`](Error::Busy) from the calls that have a limit.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::Unlocked;
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let order = locks.reentrant_mutex("order:42");
/// let outer = order.lock()?;
/// let inner = order.lock()?; // no I/O
/// assert_eq!(inner.fencing_token()?, outer.fencing_token()?);
/// assert_eq!(inner.unlock()?, Unlocked::StillHeld);
/// assert_eq!(outer.unlock()?, Unlocked::Released);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Clone)]
pub struct ReentrantMutex {
    handle: Handle,
}

impl ReentrantMutex {
    pub(crate) fn new(handle: Handle) -> ReentrantMutex {
        ReentrantMutex { handle }
    }

    fn set(self, change: impl FnOnce(&mut LockOptions)) -> ReentrantMutex {
        ReentrantMutex { handle: self.handle.set(change) }
    }

    /// Blocks until this thread has the lock. If it holds the lock already, the call returns at once.
    ///
    /// # Errors
    /// - the errors of [`Mutex::lock`](crate::Mutex::lock)
    /// - [`Lost`](Error::Lost) if this thread's outer guards lost the lock. Until they are gone, the thread cannot lock
    ///   again, since the outer code still relies on the lock that it lost
    /// - [`WouldDeadlock`](Error::WouldDeadlock) if this thread holds the key by a [`Mutex`](crate::Mutex)
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let outer = locks.reentrant_mutex("order:42").lock()?;
    /// let inner = locks.reentrant_mutex("order:42").lock()?;
    /// # drop((outer, inner));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….lock()?;`"]
    pub fn lock(&self) -> Result<ReentrantMutexGuard, Error> {
        self.acquire(MaxWait::Forever)
    }

    /// Makes one attempt. If this thread holds the lock already, the call returns at once and without I/O.
    ///
    /// # Errors
    /// The errors of [`Mutex::try_lock`](crate::Mutex::try_lock), and [`Lost`](Error::Lost) as for
    /// [`lock`](ReentrantMutex::lock).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.reentrant_mutex("order:42").try_lock()?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock()?;`"]
    pub fn try_lock(&self) -> Result<ReentrantMutexGuard, Error> {
        self.acquire(MaxWait::No)
    }

    /// Blocks until this thread has the lock, for at most `wait`, and makes a last attempt at the end. The call takes
    /// at most one node timeout longer than `wait`. If it has to take back an attempt that came too late, it takes a
    /// quarter of a node timeout more.
    ///
    /// # Errors
    /// The errors of [`Mutex::try_lock_for`](crate::Mutex::try_lock_for), and [`Lost`](Error::Lost) as for
    /// [`lock`](ReentrantMutex::lock).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.reentrant_mutex("order:42").try_lock_for(Duration::from_secs(2))?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock_for(…)?;`"]
    pub fn try_lock_for(&self, wait: Duration) -> Result<ReentrantMutexGuard, Error> {
        self.acquire(self.handle.for_at_most(wait))
    }

    /// Like [`try_lock_for`](ReentrantMutex::try_lock_for), but with a deadline in place of a length of time. It is
    /// converted once, on entry, to the clock on which leases are measured, which goes on while the machine sleeps.
    ///
    /// # Errors
    /// The errors of [`try_lock_for`](ReentrantMutex::try_lock_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.reentrant_mutex("order:42").try_lock_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock_until(…)?;`"]
    pub fn try_lock_until(&self, deadline: Instant) -> Result<ReentrantMutexGuard, Error> {
        self.acquire(self.handle.until(deadline))
    }

    fn acquire(&self, wait: MaxWait) -> Result<ReentrantMutexGuard, Error> {
        let hold = NestedHold::acquire(&self.handle, wait)?;
        Ok(ReentrantMutexGuard { hold, bound: PhantomData })
    }
}

/// # With a closure
impl ReentrantMutex {
    closures!("locks.reentrant_mutex(\"order:42\")", ReentrantMutexGuard unlock, with lock);
}

/// # Settings
///
/// Each is a method that returns the handle with this setting.
impl ReentrantMutex {
    settings!("locks.reentrant_mutex(\"order:42\")": lease renew min_hold max_hold unavailable_after cancel label fenced);
}

/// # Settings that are rarely needed
impl ReentrantMutex {
    settings!("locks.reentrant_mutex(\"order:42\")": max_renewals retry holder_name take_over_keys_without_ttl);
}

/// # Inspection
impl ReentrantMutex {
    fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.handle.inspect()
    }

    inspection!("locks.reentrant_mutex(\"order:42\")", "lock");
    force_unlock!("locks.reentrant_mutex(\"order:42\")");
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantMutex")
            .field("key", &self.handle.key())
            .field("options", &self.handle.options)
            .finish()
    }
}

/// A guard of a reentrant mutex. The lock is released when the last guard of the thread is dropped or
/// [unlocked](ReentrantMutexGuard::unlock). As with a [`MutexGuard`](crate::MutexGuard), the drop does not wait for the
/// servers. The guard derefs to [`Lease`](crate::Lease). It cannot leave its thread:
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.reentrant_mutex("order:42").lock().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the lock is released at once; `let _ = …` releases it at once too, so bind it: `let guard = …`"]
pub struct ReentrantMutexGuard {
    hold: NestedHold,
    bound: PhantomData<GuardNoSend>,
}

impl ReentrantMutexGuard {
    /// Releases this guard, and the lock if it was the last guard of this thread.
    ///
    /// # Errors
    /// The errors of [`MutexGuard::unlock`](crate::MutexGuard::unlock). If the lock was lost, an inner guard reports
    /// [`Lost`](Error::Lost) too.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.reentrant_mutex("order:42").lock()?;
    /// guard.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn unlock(self) -> Result<Unlocked, Error> {
        self.hold.unlock()
    }
}

derefs_to_lease!(ReentrantMutexGuard, hold.lease);
