//! Ending one wait from another thread. All waits check it: those in the queue of threads, those that sleep until a
//! message of a server, and pauses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Tick;
use crate::error::Error;
use crate::sync::AtomicBool;

/// How often a wait checks whether it was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

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
/// A thread that waits with a `Cancel` checks it every 5 ms. That costs no request to a server, and about 0.2 % of a
/// core for each such thread.
///
/// ```
/// # let server = redlock_tests::Server::start();
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
    /// `cancel` sets it, and nothing clears it. Pairs with `Cancel::is_cancelled`, which waits read every 5 ms. A
    /// thread that reads true also sees what the other thread wrote before it cancelled.
    is_set: Arc<AtomicBool>,
    /// It counts as cancelled if this one is.
    within: Option<Arc<Cancel>>,
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
    /// when their current requests have ended. Any thread may call this, and more than once.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use redlock_sync::{Cancel, Error};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let cancel = Cancel::new();
    /// cancel.clone().cancel();
    /// assert!(matches!(locks.mutex("order:42").cancel(&cancel).lock(), Err(Error::Cancelled { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) {
        self.is_set.store(true, Ordering::SeqCst);
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
        self.is_set.load(Ordering::SeqCst) || self.within.as_ref().is_some_and(|within| within.is_cancelled())
    }

    /// Makes a `Cancel` that can be cancelled alone, and that is cancelled with the other.
    pub(crate) fn within(other: Option<Cancel>) -> Cancel {
        Cancel { within: other.map(Arc::new), ..Cancel::default() }
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

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(Cancel::is_cancelled)
    }

    pub(crate) fn check(&self, op: &'static str, key: &str) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Cancelled { op, key: key.to_owned() }) } else { Ok(()) }
    }

    /// The time at which a sleep until `until` has to check again whether it was cancelled. Not later than `now` if it
    /// was.
    pub(crate) fn slice(&self, now: Tick, until: Tick) -> Tick {
        match &self.0 {
            None => until,
            Some(cancel) if cancel.is_cancelled() => until.min(now),
            Some(_) => until.min(now.after(CHECK_INTERVAL)),
        }
    }
}
