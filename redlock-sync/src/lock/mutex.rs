//! The mutex: one holder; a thread that would wait for itself gets an error.

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::acquire::adopt::adopt;
use crate::error::Error;
use crate::key::Key;
use crate::lease::Lease;
use crate::lock::handle::{Handle, derefs_to_lease, force_unlock, inspection};
use crate::lock::holder::Holder;
use crate::lock::reentry::SingleHold;
use crate::lock::settings::settings;
use crate::lock::with::closures;
use crate::options::LockOptions;
use crate::token::LockToken;

/// A lock that one thread of one process holds at a time. [`Redlock::mutex`](crate::Redlock::mutex) makes it.
///
/// Picture one key on a hook. A thread takes it, and the others stand in a queue. If the process of the holder dies,
/// the key hangs on the hook again after a lease.
///
/// A handle is stateless: it can be cloned, shared and thrown away. The guard is what holds the lock.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let order = locks.mutex("order:42");
/// let guard = order.lock()?; // blocks until this thread has the lock
/// guard.check()?;
/// guard.unlock()?; // released here
/// assert!(!order.is_locked()?);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// # Order
///
/// On one server the lock is first come, first served, among the threads of all processes. A free lock goes to the
/// thread that has waited longest, except in these cases:
///
/// - Each client has one place in the server's queue, even if a process has two clients. Only the first waiting thread
///   of a client is in that queue. While other processes wait, the threads of one client pass the lock on to each other
///   for at most 20 ms, or 256 times. Then the lock goes to the next process.
/// - A release skips a client if its process has ended, or if its connection for notifications has broken. After the
///   client has connected again, its threads join the end of the queue. If a client may not subscribe to its channel,
///   it polls. All clients poll while a slot of a Redis Cluster moves.
/// - A client that does not know yet that others wait can get a free lock before them, once. The lock is free while
///   others wait after the lease of a dead holder has ended, or while it is left free for other programs. The release
///   of that client serves the queue.
/// - If a server loses its data, or a replica without the queue becomes the master, the queue is lost.
/// - A thread whose [`retry`](Mutex::retry) policy limits the number of attempts is not in the queue, and gets the lock
///   only if it finds it free. The same is true of a program of another library. For such programs the lock is left
///   free from time to time.
///
/// Of several servers, each has its own queue, and any attempt may get a free lock. A release wakes the threads that
/// have waited longest, so they usually come first.
#[derive(Clone)]
pub struct Mutex {
    pub(crate) handle: Handle,
}

impl Mutex {
    pub(crate) fn new(handle: Handle) -> Mutex {
        Mutex { handle }
    }

    pub(crate) fn set(self, change: impl FnOnce(&mut LockOptions)) -> Mutex {
        Mutex { handle: self.handle.set(change) }
    }

    /// Blocks until this thread has the lock. Threads of this client that want the same key get it in the order in
    /// which they came. For threads of other clients, see [the order](Mutex#order).
    ///
    /// # Errors
    /// - [`WouldDeadlock`](Error::WouldDeadlock) if this thread holds the key already, and no
    ///   [`renew(false)`](Mutex::renew), [`max_hold`](Mutex::max_hold) or [`max_renewals`](Mutex::max_renewals) ends
    ///   that hold
    /// - [`Lost`](Error::Lost) if this thread has guards of a [`ReentrantMutex`](crate::ReentrantMutex) that lost the
    ///   lock, until those guards are gone
    /// - [`Busy`](Error::Busy) only if the [`retry`](Mutex::retry) policy gives up
    /// - [`Unavailable`](Error::Unavailable) once no majority of the nodes could be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after)
    /// - [`WrongType`](Error::WrongType), [`Config`](Error::Config) and [`Closed`](Error::Closed) at once
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert!(matches!(locks.mutex("order:42").lock(), Err(redlock_sync::Error::WouldDeadlock { .. })));
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….lock()?;`"]
    pub fn lock(&self) -> Result<MutexGuard, Error> {
        self.acquire(MaxWait::Forever)
    }

    /// Makes one attempt, with one round trip to each node. If the last holder has just passed the lock on to a waiter,
    /// which may have died since, there are two round trips. The call takes one node timeout at most.
    ///
    /// A lock that is taken is an error, and not `Ok(None)` as in
    /// [`Queue::try_claim`](crate::Queue::try_claim): `?` then never goes on without the lock.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if it is held, also by this thread
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - the errors of [`lock`](Mutex::lock)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// match locks.mutex("report:daily").try_lock() {
    ///     Ok(_guard) => println!("we make the report"),
    ///     Err(error) if error.is_busy() => println!("another instance makes it"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock()?;`"]
    pub fn try_lock(&self) -> Result<MutexGuard, Error> {
        self.acquire(MaxWait::No)
    }

    /// Blocks until this thread has the lock, for at most `wait`, and makes a last attempt at the end. The call takes
    /// at most one node timeout longer than `wait`. If it has to take back an attempt that came too late, it takes a
    /// quarter of a node timeout more.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if the lock was held all the time. If this thread holds it, the call returns `Busy` at
    ///   once, unless [`renew(false)`](Mutex::renew), [`max_hold`](Mutex::max_hold) or
    ///   [`max_renewals`](Mutex::max_renewals) ends that hold before the deadline
    /// - [`Unavailable`](Error::Unavailable) if no majority could be asked at the end of the wait, or before for the
    ///   client's [`unavailable_after`](crate::Builder::unavailable_after)
    /// - the errors of [`lock`](Mutex::lock)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").try_lock_for(Duration::from_secs(2))?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock_for(…)?;`"]
    pub fn try_lock_for(&self, wait: Duration) -> Result<MutexGuard, Error> {
        self.acquire(self.handle.for_at_most(wait))
    }

    /// Like [`try_lock_for`](Mutex::try_lock_for), but with a deadline in place of a length of time. It is converted
    /// once, on entry, to the clock on which leases are measured, which goes on while the machine sleeps.
    ///
    /// # Errors
    /// The errors of [`try_lock_for`](Mutex::try_lock_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").try_lock_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_lock_until(…)?;`"]
    pub fn try_lock_until(&self, deadline: Instant) -> Result<MutexGuard, Error> {
        self.acquire(self.handle.until(deadline))
    }

    /// Takes over a held lock by the [token](MutexGuard::into_token) of its former holder. That is one step, so the
    /// lock is never free in between. The guard that this returns has this handle's settings, a renewal thread, and a
    /// [fencing token](Lease::fencing_token) that is greater than the former one. The call does not wait for a lock. It
    /// takes one node timeout at most.
    ///
    /// **This works with one server only**: one server, one Sentinel group or one cluster. A client of several cannot
    /// move a lock to another process. Keep the guard in one process there.
    ///
    /// If several calls use the same token, at most one of them gets the lock. The others return `Lost`.
    ///
    /// The token does not say which lock it is for: send the name along. The client needs the same servers and the same
    /// [`key_prefix`](crate::Builder::key_prefix).
    ///
    /// In one case a token can be adopted a second time. If the connection broke while the first holder acquired the
    /// lock, the server may execute that request late. If the adopted lock has been released by then, the request sets
    /// the key once more, with the old token, for one lease. The lock was free at that moment, so there are never two
    /// holders, and fencing tokens rise.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if the token does not hold this lock: its lease has ended, it was adopted before, or it
    ///   is the token of another lock
    /// - [`Unavailable`](Error::Unavailable) if the server did not answer in time. Try again, until the call succeeds
    ///   or returns `Lost`. `Lost` then means that the server has executed the failed call. That lock is released, like
    ///   that of any attempt that failed, and not given back to the token
    /// - [`Busy`](Error::Busy) if this thread holds the key already
    /// - [`Lost`](Error::Lost) also if this thread has guards of a [`ReentrantMutex`](crate::ReentrantMutex) that lost
    ///   the lock
    /// - [`Config`](Error::Config), also with several servers
    /// - [`WrongType`](Error::WrongType), [`Closed`](Error::Closed)
    ///
    /// After an error this call holds nothing.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let order = locks.mutex("order:42");
    /// let first = order.lock()?;
    /// let fence = first.fencing_token()?;
    /// let token = first.into_token()?;
    /// // In the process that goes on with the work:
    /// let guard = order.adopt(&token)?;
    /// assert!(guard.fencing_token()? > fence);
    /// guard.unlock()?;
    /// assert!(order.adopt(&token).unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….adopt(…)?;`"]
    pub fn adopt(&self, token: &LockToken) -> Result<MutexGuard, Error> {
        self.acquire_by(MaxWait::No, || adopt(&self.handle.client, &self.handle.request()?, &token.id()))
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.handle.key()
    }

    pub(crate) fn acquire(&self, wait: MaxWait) -> Result<MutexGuard, Error> {
        self.acquire_by(wait, || self.handle.acquire(wait))
    }

    /// The guard of a lease on this lock.
    pub(super) fn guard(&self, lease: Lease) -> MutexGuard {
        let hold = SingleHold::new(self.handle.client.id, lease.inner());
        MutexGuard { hold, lease, bound: PhantomData }
    }

    fn acquire_by(&self, wait: MaxWait, acquire: impl FnOnce() -> Result<Lease, Error>) -> Result<MutexGuard, Error> {
        // A closed client and a forked child get `Closed`, and no event. The attempt checks it again, after
        // `begin_call` has counted it.
        self.handle.client.check_open()?;
        self.handle.check_not_held(wait)?;
        Ok(self.guard(acquire()?))
    }
}

/// # With a closure
impl Mutex {
    closures!("locks.mutex(\"order:42\")", MutexGuard unlock, with lock);
}

/// # Settings
///
/// Each is a method that returns the handle with this setting.
impl Mutex {
    settings!("locks.mutex(\"order:42\")": lease renew min_hold max_hold unavailable_after cancel label fenced);
}

/// # Settings that are rarely needed
impl Mutex {
    settings!("locks.mutex(\"order:42\")": max_renewals retry holder_name take_over_keys_without_ttl);
}

/// # Inspection
impl Mutex {
    fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.handle.inspect()
    }

    inspection!("locks.mutex(\"order:42\")", "lock");
    force_unlock!("locks.mutex(\"order:42\")");
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("key", &self.handle.key()).field("options", &self.handle.options).finish()
    }
}

/// Marks a guard that stays on its thread, as those of `std::sync` do. The default.
///
/// If the compiler names this type, code moves a guard to another thread. To let the other thread use the lock, lend it
/// `&guard` or [`&Lease`](Lease), as in `std::thread::scope`. To give the guard away, call
/// [`into_send`](MutexGuard::into_send) first. A guard of a [`ReentrantMutex`](crate::ReentrantMutex) has no
/// `into_send`, since the guards of a thread share its lock.
///
/// ```
/// use redlock_sync::{MutexGuard, GuardNoSend};
/// fn same_type(guard: MutexGuard) -> MutexGuard<GuardNoSend> {
///     guard
/// }
/// ```
#[derive(Debug)]
pub struct GuardNoSend {
    /// Not `Send`, but `Sync`.
    _as_in_std: PhantomData<std::sync::MutexGuard<'static, ()>>,
}

/// Marks a guard that may change threads: see [`MutexGuard::into_send`].
///
/// ```
/// use redlock_sync::{MutexGuard, GuardSend};
/// fn may_change_threads<T: Send>() {}
/// may_change_threads::<MutexGuard<GuardSend>>();
/// ```
#[derive(Debug)]
pub struct GuardSend {
    _send: (),
}

/// The guard of a lock. The lock is held while the guard lives, and its drop releases the lock. It derefs to [`Lease`].
///
/// **The drop does not wait for the servers**: it sends the release and returns. Every thread of this client finds the
/// lock free at once. A release that fails is repeated in the background, and logged. If a renewal is under way, the
/// drop waits for it, half a node timeout at most. If another thread of this client waits for the lock, the drop can
/// ask the servers first whether other processes wait too. It waits for one node timeout at most in all.
///
/// [`unlock`](MutexGuard::unlock) waits until a majority of the nodes has confirmed the release, and returns what
/// went wrong. Use it before this program tells another one that the lock is free: until a release has arrived, other
/// clients find the lock taken. Use it also where the program has to know that the lock was lost.
///
/// When the last handle of a client is dropped, it waits for such releases, two node timeouts at most. A process can
/// also end without that drop: by `exit`, or by a return from `main` while a client is in a static. If its connection
/// was busy at that moment, the lock stays taken until its lease ends: see [how to stop a process][page]. After
/// `std::mem::forget` of a guard, its lock is renewed until [`max_hold`](Mutex::max_hold) or the end of the process.
///
/// [page]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#shutdown
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").lock()?;
/// guard.check()?;
/// drop(guard);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// It is `Sync`, so other threads can use `&guard`. It cannot leave its thread, unless it is made
/// [sendable](MutexGuard::into_send):
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.mutex("order:42").lock().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the lock is released at once; `let _ = …` releases it at once too, so bind it: `let guard = …`"]
pub struct MutexGuard<M = GuardNoSend> {
    /// Ended before the lease is released, since this thread may lock the key again from then on.
    hold: SingleHold,
    pub(super) lease: Lease,
    bound: PhantomData<M>,
}

impl<M> MutexGuard<M> {
    /// Releases the lock, and returns `Ok` once a majority of the nodes confirmed that. If a minority of nodes could
    /// not be reached, the key remains there until its time-to-live ends. Until then such a node cannot vote for
    /// another client. Once this has returned, nothing more is sent for this lock, except its release after
    /// `Unconfirmed`.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if the lock was not held any more. The work under it may have overlapped with another
    ///   holder
    /// - [`Unconfirmed`](Error::Unconfirmed) if no majority of the nodes confirmed. The release is repeated in the
    ///   background until a majority confirms it, the lease has ended, or the client is [shut
    ///   down](crate::Redlock::shutdown)
    /// - [`WrongType`](Error::WrongType) if the key holds something that is no lock
    ///
    /// After any of these, this guard does not hold the lock.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// guard.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn unlock(self) -> Result<(), Error> {
        drop(self.hold);
        self.lease.release()
    }

    /// Ends this guard and leaves the lock held, for another thread or process that [adopts](Mutex::adopt) the token
    /// that this returns. The lock stays taken for the rest of the lease ([`remaining`](Lease::remaining)). If that may
    /// be too short, [`extend`](Lease::extend) the lease first. If no holder adopts the token by then, the lock is
    /// free. Settings do not travel with the token: a [`min_hold`](Mutex::min_hold) ends here, unless the handle that
    /// adopts the token has one. Like `adopt`, this works with one server only.
    ///
    /// # Errors
    /// - [`Config`](Error::Config) with several servers
    /// - [`Lost`](Error::Lost) if the lock was not held any more
    /// - [`Unconfirmed`](Error::Unconfirmed) if a renewal that was under way did not end within two node timeouts
    /// - [`Closed`](Error::Closed) in a forked child
    ///
    /// After any of these the lock is released as if the guard was dropped.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let token = locks.mutex("order:42").lock()?.into_token()?;
    /// assert!(locks.mutex("order:42").is_locked()?);
    /// std::thread::spawn(move || locks.mutex("order:42").adopt(&token)?.unlock()).join().unwrap()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn into_token(self) -> Result<LockToken, Error> {
        drop(self.hold);
        self.lease.leave_held()?;
        Ok(LockToken::new(self.lease.id()))
    }
}

impl MutexGuard {
    /// Lets the guard change threads. From then on, a thread that locks the key again waits for this guard. The library
    /// cannot detect any more that a thread waits for itself.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?.into_send();
    /// std::thread::spawn(move || guard.unlock()).join().unwrap()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn into_send(self) -> MutexGuard<GuardSend> {
        MutexGuard { hold: self.hold.ended(), lease: self.lease, bound: PhantomData }
    }
}

derefs_to_lease!(MutexGuard<M>, lease);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guard_made_to_be_send_is_send_and_each_is_sync() {
        fn send<T: Send>() {}
        fn sync<T: Sync>() {}
        send::<MutexGuard<GuardSend>>();
        send::<std::sync::Arc<Lease>>();
        send::<Mutex>();
        sync::<MutexGuard>();
        sync::<crate::ReentrantMutexGuard>();
        sync::<crate::RwLockReadGuard>();
        sync::<crate::RwLockWriteGuard>();
        sync::<crate::SemaphorePermit>();
        sync::<crate::MultiLockGuard>();
    }
}
