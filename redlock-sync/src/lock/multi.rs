//! Several mutexes at once: all of them, or none.
//!
//! The free mutexes are taken in one round trip; the others follow one by one, in the order of their keys. Each has a
//! lease of its own, and all are released in one round trip. All multi-locks use the same order, so they never wait for
//! each other in a circle. A multi-lock keeps the mutexes that it has while it waits for the next, so it gets its turn
//! in the queue of each mutex.

mod guard;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::acquire::together::together;
use crate::clock::{Tick, tick_at};
use crate::error::{Error, NodeError};
use crate::inner::ClientInner;
use crate::lock::mutex::{Mutex, MutexGuard};
use crate::lock::settings::settings;
use crate::options::LockOptions;

use self::guard::HeldMutexes;
pub use self::guard::MultiLockGuard;

/// The largest number of keys of one multi-lock. Each key can cost a round trip, and has a renewal thread.
const MOST_KEYS: usize = 64;

/// Several mutexes that a thread holds together or not at all, such as the accounts of a transfer.
/// [`Redlock::multi_lock`](crate::Redlock::multi_lock) makes it.
///
/// Picture a door with several keyholes: it opens for the thread that has all of the keys.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let (from, to) = (7, 3);
/// let accounts = locks.multi_lock([format!("account:{from}"), format!("account:{to}")]);
/// let guard = accounts.lock()?;
/// guard.check()?; // all of them are held
/// guard.unlock()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// Each key is locked as by a [`Mutex`](crate::Mutex). So it excludes mutexes of that name, and multi-locks that share
/// a key. Multi-locks never deadlock with each other, in whatever order the keys are named. A thread that holds one of
/// the keys already gets an error, as with a mutex.
///
/// The keys are locked in their order. One round trip locks all free keys up to the first key that is held. That key
/// and each key behind it cost a round trip each. One round trip releases all of them. Each key has a lease and a
/// renewal thread, and with several nodes its own majority. A multi-lock has the settings of a mutex except `min_hold`.
/// With `min_hold`, a key that is released because another one is held would stay taken.
///
/// For each key, a thread has its place in [the order of the mutex](crate::Mutex#order). While it waits for one key, it
/// keeps the keys before it, so threads that want only these wait as well. There is no deadlock, because all
/// multi-locks lock their keys in the same order.
///
/// To inspect one of the keys, or to unlock it by force, use the [`Mutex`](crate::Mutex) of that name. A multi-lock has
/// no `inspect` and no `force_unlock`, since each key has its own holder. If a guard loses one of its keys, it gives up
/// all of them.
///
/// A handle is stateless: it can be cloned, shared and thrown away. The guard is what holds the locks.
#[derive(Clone)]
pub struct MultiLock {
    client: Arc<ClientInner>,
    /// In the order of their keys, without duplicates.
    mutexes: Result<Vec<Mutex>, Error>,
}

impl MultiLock {
    pub(crate) fn new(client: Arc<ClientInner>, mutexes: Vec<Mutex>) -> MultiLock {
        MultiLock { client, mutexes: sorted(mutexes) }
    }

    fn set(mut self, change: impl Fn(&mut LockOptions)) -> MultiLock {
        self.mutexes = self.mutexes.map(|all| all.into_iter().map(|mutex| mutex.set(&change)).collect());
        self
    }

    /// Blocks until this thread has all keys. If a key is lost while the call waits for the others, it begins again.
    ///
    /// # Errors
    /// - [`WouldDeadlock`](Error::WouldDeadlock) if this thread holds one of the keys already
    /// - [`Config`](Error::Config) if there is no key, or more than 64
    /// - the errors of [`Mutex::lock`](crate::Mutex::lock)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["account:7", "account:3"]).lock()?;
    /// assert!(locks.mutex("account:3").is_locked()?);
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….lock()?;`"]
    pub fn lock(&self) -> Result<MultiLockGuard, Error> {
        self.acquire(MaxWait::Forever)
    }

    /// Makes one attempt for each key. If one of them is held, the others are released again, so for a moment other
    /// callers can find them taken. The call gives up two node timeouts after it began, and then releases the keys that
    /// it has. If the servers do not answer, that takes another node timeout and a quarter.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) with the key that is held, also by this thread
    /// - [`Unavailable`](Error::Unavailable) if the servers cannot be asked, or not within that time
    /// - the errors of [`lock`](MultiLock::lock)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let held = locks.mutex("b").lock()?;
    /// assert!(locks.multi_lock(["a", "b"]).try_lock().unwrap_err().is_busy());
    /// assert!(!locks.mutex("a").is_locked()?);
    /// # drop(held);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock()?;`"]
    pub fn try_lock(&self) -> Result<MultiLockGuard, Error> {
        self.acquire(MaxWait::No)
    }

    /// Blocks until this thread has all keys, for at most `wait`. The call takes at most two node timeouts longer than
    /// `wait`, and the time to release the keys that it has, as [`try_lock`](MultiLock::try_lock) does.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) with the key that was held at the end
    /// - [`Unavailable`](Error::Unavailable) if no majority could be asked at the end of the wait, or before for the
    ///   client's [`unavailable_after`](crate::Builder::unavailable_after)
    /// - the errors of [`lock`](MultiLock::lock)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).try_lock_for(Duration::from_secs(2))?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock_for(…)?;`"]
    pub fn try_lock_for(&self, wait: Duration) -> Result<MultiLockGuard, Error> {
        self.acquire(MaxWait::Until(self.client.quorum.now().after(wait)))
    }

    /// Like [`try_lock_for`](MultiLock::try_lock_for), but with a deadline in place of a length of time. It is
    /// converted once, on entry.
    ///
    /// # Errors
    /// The errors of [`try_lock_for`](MultiLock::try_lock_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).try_lock_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock_until(…)?;`"]
    pub fn try_lock_until(&self, deadline: Instant) -> Result<MultiLockGuard, Error> {
        self.acquire(MaxWait::Until(tick_at(&*self.client.quorum.clock, deadline)))
    }

    /// Returns whether any process holds one of the keys at this moment, on a majority of the nodes. If so, a call that
    /// does not wait returns [`Busy`](Error::Busy). This makes one round trip for each key, up to the first that is
    /// held. The answer can have changed when this returns, so use it to watch, not to decide.
    ///
    /// # Errors
    /// The errors of [`Mutex::is_locked`](crate::Mutex::is_locked).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let accounts = locks.multi_lock(["account:7", "account:3"]);
    /// assert!(!accounts.is_locked()?);
    /// let guard = locks.mutex("account:7").lock()?;
    /// assert!(accounts.is_locked()?);
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_locked(&self) -> Result<bool, Error> {
        for mutex in self.mutexes.as_ref().map_err(Error::clone)? {
            if mutex.is_locked()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn acquire(&self, wait: MaxWait) -> Result<MultiLockGuard, Error> {
        let mutexes = self.mutexes.as_ref().map_err(Error::clone)?;
        // As in `Mutex::acquire_by`.
        self.client.check_open()?;
        // Checked before any mutex is taken: a thread that would wait for itself gets its error at once.
        mutexes.iter().try_for_each(|mutex| mutex.handle.check_not_held(wait))?;
        // A deadline in the past leaves the time for one attempt, as for a mutex.
        let until = wait.until().max(self.client.quorum.now());
        loop {
            let guard = MultiLockGuard::new(&self.client, self.acquire_each(mutexes, wait, until)?);
            match guard.check() {
                Ok(()) => return Ok(guard),
                Err(Error::Lost { key, .. }) if self.client.quorum.now() >= until => {
                    return Err(Error::Busy { key, expires_in: None, by_this_thread: false, is_latch: false });
                }
                // A lease ended while the thread waited for another mutex: it begins again with the first.
                Err(Error::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn acquire_each(&self, mutexes: &[Mutex], wait: MaxWait, until: Tick) -> Result<HeldMutexes, Error> {
        let quorum = &self.client.quorum;
        let mut held = HeldMutexes { guards: Vec::with_capacity(mutexes.len()), quorum: Arc::clone(quorum) };
        let requests = mutexes.iter().map(|mutex| mutex.handle.request()).collect::<Result<Vec<_>, _>>()?;
        let at_once = if let [_] = mutexes { Vec::new() } else { together(&self.client, &requests)? };
        for (mutex, lease) in mutexes.iter().zip(at_once) {
            held.guards.push(mutex.guard(lease));
        }
        for mutex in mutexes.iter().skip(held.guards.len()) {
            // Each attempt is bounded, but there can be many. The first attempt is made in any case, since it reports
            // what is wrong if `together` took nothing.
            let is_late = !held.guards.is_empty() && quorum.now() >= until.after(quorum.settings.node_timeout);
            let part = if is_late { self.deadline_passed(mutex, held.guards.len()) } else { mutex.acquire(wait) };
            let part = part.inspect_err(|_| held.roll_back())?;
            held.guards.push(part);
        }
        Ok(held)
    }

    fn deadline_passed(&self, next: &Mutex, taken: usize) -> Result<MutexGuard, Error> {
        let key = next.key()?.as_str().to_owned();
        let quorum = &self.client.quorum;
        let late = |i| quorum.node_error(i, format!("the deadline passed after {taken} keys were locked"));
        let nodes: Vec<NodeError> = (0..quorum.len()).map(late).collect();
        Err(Error::Unavailable { op: "acquire", key, of: quorum.len(), nodes })
    }
}

/// # Settings
///
/// Each is a method that returns the handle with this setting. It concerns each of the mutexes: each key has its own
/// lease, renewal, label and [fencing token](MultiLockGuard::leases). For [`max_hold`](MultiLock::max_hold), the time
/// counts during which the call waits for the next keys. If one key is lost, all are lost.
impl MultiLock {
    settings!("locks.multi_lock([\"account:7\", \"account:3\"])": lease renew max_hold unavailable_after cancel label fenced);
}

/// # Settings that are rarely needed
///
/// A limit of attempts ([`retry`](MultiLock::retry)) counts for each key by itself.
impl MultiLock {
    settings!("locks.multi_lock([\"account:7\", \"account:3\"])": max_renewals retry holder_name take_over_keys_without_ttl);
}

/// The mutexes in the order of their keys, without duplicates.
fn sorted(mutexes: Vec<Mutex>) -> Result<Vec<Mutex>, Error> {
    let mut named: BTreeMap<Arc<str>, Mutex> = BTreeMap::new();
    for mutex in mutexes {
        named.insert(Arc::clone(mutex.key()?.name()), mutex);
    }
    if named.is_empty() {
        return Err(Error::config("a multi-lock needs at least one key"));
    }
    if named.len() > MOST_KEYS {
        return Err(Error::config(format!("a multi-lock of {} keys; it takes at most {MOST_KEYS}", named.len())));
    }
    Ok(named.into_values().collect())
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock").field("mutexes", &self.mutexes).finish_non_exhaustive()
    }
}
