//! Ending one wait from another thread. All waits have it: those in the queue of threads, those that sleep until a
//! message of a server, and pauses.

use std::panic::RefUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Error;
use crate::fork::ForkGuard;
use crate::sync::{AtomicBool, Mutex, MutexGuard};

/// Wakes a thread that sleeps. Called without any mutex, on the thread that cancels.
type WakeUp = dyn Fn() + Send + Sync;

/// Stops calls that wait for locks, from another thread. It concerns all handles that have it as their setting
/// [`cancel`](crate::Mutex::cancel).
///
/// Clones are the same `Cancel`. It stays cancelled, so make a new one for the next call. It does not affect locks that
/// are held, nor their renewals.
///
/// A call that waits returns within 10 ms, or when its current requests to the servers have ended, which takes one node
/// timeout at most. One more request to each server removes the waiter from the queues there. If a lock was granted to
/// it meanwhile, the lock goes to the next waiter. If the call got the lock at that moment, it returns the lock.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Cancel, Error, Redlock};
/// let locks = Redlock::open(&url)?;
/// let held = locks.mutex("order:42").lock()?;
/// let (cancel, order) = (Cancel::new(), locks.mutex("order:42"));
/// let waiter = std::thread::spawn({
///     let order = order.cancel(&cancel);
///     move || order.lock().map(drop)
/// });
/// cancel.cancel();
/// assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled { .. })));
/// # drop(held);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    state: Arc<CancelState>,
    /// It counts as cancelled if this one is.
    within: Option<Arc<Cancel>>,
}

#[derive(Debug)]
struct CancelState {
    /// `cancel` sets it before it takes `sleepers`, and nothing clears it. Pairs with `Cancel::is_cancelled`, which a
    /// thread reads once it is in `sleepers`: it reads true, or it is woken. A thread that reads true also sees what
    /// the other thread wrote before it cancelled.
    is_set: AtomicBool,
    /// The waits that sleep, or slept.
    sleepers: Mutex<Vec<Weak<WakeUp>>>,
    process: ForkGuard,
}

/// No code of users runs while `sleepers` is locked.
impl RefUnwindSafe for CancelState {}

impl Default for CancelState {
    fn default() -> CancelState {
        CancelState { is_set: AtomicBool::new(false), sleepers: Mutex::default(), process: ForkGuard::new() }
    }
}

impl CancelState {
    /// In a forked child, a thread that does not exist there can have the mutex. Then this is `None` after a second.
    fn sleepers(&self) -> Option<MutexGuard<'_, Vec<Weak<WakeUp>>>> {
        let is_child = self.process.is_forked_child();
        if is_child { self.sleepers.try_lock_for(Duration::from_secs(1)) } else { Some(self.sleepers.lock()) }
    }
}

impl Cancel {
    /// Makes a `Cancel` that is not cancelled yet.
    ///
    /// ```
    /// assert!(!redlock_sync::Cancel::new().is_cancelled());
    /// ```
    #[must_use]
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Stops the calls that wait, also those that begin later. This returns at once. The calls return within 10 ms, or
    /// when their current requests have ended. Any thread may call this, and more than once. A signal handler may not:
    /// it would lock a mutex.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Cancel, Error};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let cancel = Cancel::new();
    /// cancel.clone().cancel();
    /// assert!(matches!(locks.mutex("order:42").cancel(&cancel).lock(), Err(Error::Cancelled { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) {
        self.state.is_set.store(true, Ordering::SeqCst);
        let sleepers = self.state.sleepers().map(|mut sleepers| std::mem::take(&mut *sleepers));
        sleepers.iter().flatten().filter_map(Weak::upgrade).for_each(|wake| wake());
    }

    /// Returns whether it was cancelled.
    ///
    /// ```
    /// let cancel = redlock_sync::Cancel::new();
    /// cancel.cancel();
    /// assert!(cancel.is_cancelled());
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.is_set.load(Ordering::SeqCst) || self.within.as_ref().is_some_and(|within| within.is_cancelled())
    }

    /// Makes a `Cancel` that can be cancelled alone, and that is cancelled with the other.
    pub(crate) fn within(other: Option<Cancel>) -> Cancel {
        Cancel { within: other.map(Arc::new), ..Cancel::default() }
    }

    /// Calls this when it is cancelled, as long as the returned value lives. If it was cancelled before, nothing is
    /// called: the caller asks that once it has the value.
    #[must_use = "if unused nothing is called"]
    pub(crate) fn wakes(&self, wake: impl Fn() + Send + Sync + 'static) -> Arc<WakeUp> {
        let wake: Arc<WakeUp> = Arc::new(wake);
        let mut next = Some(self);
        while let Some(cancel) = next {
            if let Some(mut sleepers) = cancel.state.sleepers() {
                if sleepers.len() == sleepers.capacity() {
                    sleepers.retain(|wake| wake.strong_count() > 0);
                }
                sleepers.push(Arc::downgrade(&wake));
            }
            next = cancel.within.as_deref();
        }
        wake
    }
}

/// What cancels a wait, if anything does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancelling(Option<Cancel>);

/// All values are equal: threads whose settings differ only in this can hand a lock to each other, or share one.
impl PartialEq for Cancelling {
    fn eq(&self, _: &Cancelling) -> bool {
        true
    }
}

impl Cancelling {
    pub(crate) fn by(cancel: &Cancel) -> Cancelling {
        Cancelling(Some(cancel.clone()))
    }

    pub(crate) fn get(&self) -> Option<&Cancel> {
        self.0.as_ref()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(Cancel::is_cancelled)
    }

    pub(crate) fn check(&self, op: &'static str, key: &str) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Cancelled { op, key: key.to_owned() }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_are_over_are_forgotten() {
        let outer = Cancel::new();
        let inner = Cancel::within(Some(outer.clone()));
        let alive: Vec<_> = (0..10).map(|_| inner.wakes(|| ())).collect();
        (0..10_000).for_each(|_| drop(inner.wakes(|| ())));
        let sizes = [&outer, &inner].map(|cancel| cancel.state.sleepers.lock().len());
        assert!(sizes.iter().all(|size| (alive.len()..100).contains(size)), "{sizes:?}");
    }

    /// As after `daemon`: the program goes on in the child.
    #[test]
    fn a_forked_child_goes_on_with_the_one_of_its_parent() {
        let cancel = Cancel::within(Some(Cancel::new()));
        let child = redlock_tests::fork(|| {
            let is_told = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&is_told);
            let _wake = cancel.wakes(move || theirs.store(true, Ordering::SeqCst));
            cancel.cancel();
            assert!(cancel.is_cancelled() && is_told.load(Ordering::SeqCst));
        });
        assert!(redlock_tests::wait_for(child).success());
        assert!(!cancel.is_cancelled());
    }
}
