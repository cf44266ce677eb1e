//! The read-write lock: any number of readers at a time, or one writer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lock::handle::{Handle, inspection};
use crate::lock::holder::{HoldMode, Holder};
use crate::lock::rw_guard::{RwLockReadGuard, RwLockWriteGuard};
use crate::lock::settings::settings;
use crate::lock::with::closures;
use crate::options::{LockOptions, Mode};
use crate::protocol::read_write::read_holder;
use crate::protocol::{Protocol, ReadWrite};

/// A lock that any number of readers hold at a time, or one writer. [`Redlock::rw_lock`](crate::Redlock::rw_lock) makes
/// it.
///
/// Picture a room: any number of threads may read in it together, and a thread that writes is alone there.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let prices = locks.rw_lock("prices");
/// {
///     let reader = prices.read()?; // beside other readers
///     reader.check()?;
/// }
/// let writer = prices.write()?; // alone
/// assert!(prices.is_locked_exclusive()?);
/// writer.unlock()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// # Order
///
/// A waiting writer keeps new readers out, so a stream of readers does not keep it waiting. After a writer, all waiting
/// readers get the lock together, before the next writer. So a stream of writers does not keep them waiting. (This is
/// called phase-fair: Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time
/// systems", 2010.) On one node, writers get the lock in the order in which they came.
///
/// # Nesting
///
/// A thread owns the lock, as with [`ReentrantMutex`](crate::ReentrantMutex). A thread that reads can read again, and a
/// thread that writes can read and write again, all without I/O. The guards of a thread share a lease. The lock is
/// released with the last guard, in whatever order the guards are dropped. If the last write guard is dropped while a
/// read guard of the thread remains, the lock is [downgraded](RwLockWriteGuard::downgrade). From then on the thread
/// reads, beside others.
///
/// A thread that only reads cannot write, because two readers that both want to write would wait for each other for
/// ever. It gets [`WouldDeadlock`](Error::WouldDeadlock), or [`Busy`](Error::Busy) from the calls that have a limit.
///
/// # Leases
///
/// Each writer has its own token, lease and renewal, and so has each process that reads. So if one of them dies, the
/// others keep the lock. The threads of a process that read by the same client with equal settings share one lease. The
/// first of them acquires the lease. Threads that come while one of them reads join it without a round trip, and the
/// last one releases it. So many reading threads cost the servers no more than one.
///
/// Every 20 ms, or 4096 joins, one of the joining threads asks the servers whether another process waits to write. If
/// so, no more threads join, and those that come later wait for that writer. If the lease is lost, each of its readers
/// is notified. A reader has its own lease if its handle sets [`holder_name`](RwLock::holder_name),
/// [`min_hold`](RwLock::min_hold), [`max_hold`](RwLock::max_hold), [`max_renewals`](RwLock::max_renewals) or
/// [`renew(false)`](RwLock::renew).
///
/// Readers and writers can have different leases, by two handles of one name. If a process dies, others wait for one
/// lease. Use a short lease for readers if many short-lived processes read, and a long one if readers must outlive a
/// long outage of the servers.
///
/// # Stopped processes
///
/// If a process is stopped (SIGSTOP) while one of its threads waits to write, it keeps new readers out on one node.
/// That ends when the process goes on, is killed, or loses its connection.
///
/// # A holder that is stuck
///
/// A read-write lock has no `force_unlock`, unlike [a mutex](crate::Mutex::force_unlock). That is because the readers
/// of a process share a lease, and a writer can become a reader. So such a call could also stop holders that are not
/// stuck. End the process of the holder. Then its lease ends by itself.
///
/// # Other kinds
///
/// A lock of another kind with the same name has a key of another type. While it is held, a call returns
/// [`WrongType`](Error::WrongType) at once, also if this client holds that lock.
#[derive(Clone)]
pub struct RwLock {
    reader: Handle,
    writer: Handle,
}

impl RwLock {
    pub(crate) fn new(client: &Arc<ClientInner>, key: &Result<Key, Error>, options: &Arc<LockOptions>) -> RwLock {
        let several = client.quorum.len() > 1;
        let side = |mode| {
            let lock = |key| Protocol::ReadWrite(ReadWrite::new(key, mode, several));
            Handle::new(Arc::clone(client), key.clone(), Arc::clone(options), lock)
        };
        RwLock { reader: side(Mode::Joint), writer: side(Mode::Exclusive) }
    }

    fn set(self, change: impl Fn(&mut LockOptions)) -> RwLock {
        RwLock { reader: self.reader.set(&change), writer: self.writer.set(&change) }
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    /// Blocks until this thread may read. If the thread reads or writes already, the call returns at once, also while a
    /// writer waits. If another thread of this process reads by the same client with equal settings, the call usually
    /// makes no round trip.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if this thread has outer guards that lost the lock. Until they are gone, the thread
    ///   cannot lock again, since the outer code still relies on the lock that it lost
    /// - [`Busy`](Error::Busy) only if the [`retry`](RwLock::retry) policy gives up
    /// - [`Unavailable`](Error::Unavailable) once no majority of the nodes could be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after)
    /// - [`WrongType`](Error::WrongType) at once if a lock of another kind is held under this name, also by this thread
    /// - [`Config`](Error::Config) and [`Closed`](Error::Closed) at once
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").read()?;
    /// let other = redlock_sync::Redlock::open(&url)?.rw_lock("prices").read()?; // both read
    /// # drop((reader, other));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….read()?;`"]
    pub fn read(&self) -> Result<RwLockReadGuard, Error> {
        RwLockReadGuard::acquire(&self.reader, MaxWait::Forever)
    }

    /// Makes one attempt to read, with one round trip to each node. If the lock was just passed on to waiters, which
    /// may have died since, there are two round trips. If this thread reads or writes already, the call returns at once
    /// and without I/O.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if another thread or process writes or waits to write
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - the errors of [`read`](RwLock::read)
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _writer = locks.rw_lock("prices").write()?;
    /// let other = redlock_sync::Redlock::open(&url)?;
    /// assert!(other.rw_lock("prices").try_read().unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_read()?;`"]
    pub fn try_read(&self) -> Result<RwLockReadGuard, Error> {
        RwLockReadGuard::acquire(&self.reader, MaxWait::No)
    }

    /// Blocks until this thread may read, for at most `wait`, and makes a last attempt at the end. The call takes at
    /// most one node timeout longer than `wait`. If it has to take back an attempt that came too late, it takes a
    /// quarter of a node timeout more.
    ///
    /// # Errors
    /// The errors of [`try_read`](RwLock::try_read), at the end of `wait`.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").try_read_for(Duration::from_secs(2))?;
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_read_for(…)?;`"]
    pub fn try_read_for(&self, wait: Duration) -> Result<RwLockReadGuard, Error> {
        RwLockReadGuard::acquire(&self.reader, self.reader.for_at_most(wait))
    }

    /// Like [`try_read_for`](RwLock::try_read_for), but with a deadline in place of a length of time. It is converted
    /// once, on entry.
    ///
    /// # Errors
    /// The errors of [`try_read_for`](RwLock::try_read_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").try_read_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_read_until(…)?;`"]
    pub fn try_read_until(&self, deadline: Instant) -> Result<RwLockReadGuard, Error> {
        RwLockReadGuard::acquire(&self.reader, self.reader.until(deadline))
    }

    // --- writing -----------------------------------------------------------------------------------------------------

    /// Blocks until this thread may write, alone. If the thread writes already, the call returns at once. While it
    /// waits, no new readers get the lock. Only readers that already waited for another writer can get it first.
    ///
    /// # Errors
    /// The errors of [`read`](RwLock::read), and [`WouldDeadlock`](Error::WouldDeadlock) if this thread only reads, and
    /// no [`renew(false)`](RwLock::renew), [`max_hold`](RwLock::max_hold) or [`max_renewals`](RwLock::max_renewals)
    /// ends that hold. Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::Error;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let prices = locks.rw_lock("prices");
    /// let reader = prices.read()?;
    /// assert!(matches!(prices.write(), Err(Error::WouldDeadlock { .. })));
    /// drop(reader);
    /// let writer = prices.write()?;
    /// # drop(writer);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….write()?;`"]
    pub fn write(&self) -> Result<RwLockWriteGuard, Error> {
        RwLockWriteGuard::acquire(&self.writer, MaxWait::Forever)
    }

    /// Makes one attempt to write, as [`try_read`](RwLock::try_read) does to read.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if another thread or process reads or writes, or if this thread only reads
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - the errors of [`write`](RwLock::write)
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _reader = locks.rw_lock("prices").read()?;
    /// let other = redlock_sync::Redlock::open(&url)?;
    /// assert!(other.rw_lock("prices").try_write().unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_write()?;`"]
    pub fn try_write(&self) -> Result<RwLockWriteGuard, Error> {
        RwLockWriteGuard::acquire(&self.writer, MaxWait::No)
    }

    /// Blocks until this thread may write, for at most `wait`. It takes as long as
    /// [`try_read_for`](RwLock::try_read_for).
    ///
    /// # Errors
    /// The errors of [`try_write`](RwLock::try_write), at the end of `wait`. If this thread only reads, they come at
    /// once, unless that hold surely ends before the deadline.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let writer = locks.rw_lock("prices").try_write_for(Duration::from_secs(2))?;
    /// # drop(writer);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_write_for(…)?;`"]
    pub fn try_write_for(&self, wait: Duration) -> Result<RwLockWriteGuard, Error> {
        RwLockWriteGuard::acquire(&self.writer, self.writer.for_at_most(wait))
    }

    /// Like [`try_write_for`](RwLock::try_write_for), but with a deadline in place of a length of time. It is converted
    /// once, on entry.
    ///
    /// # Errors
    /// The errors of [`try_write_for`](RwLock::try_write_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let writer = locks.rw_lock("prices").try_write_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(writer);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the guard in its `Ok` holds the lock: write `let guard = ….try_write_until(…)?;`"]
    pub fn try_write_until(&self, deadline: Instant) -> Result<RwLockWriteGuard, Error> {
        RwLockWriteGuard::acquire(&self.writer, self.writer.until(deadline))
    }

    // --- inspection --------------------------------------------------------------------------------------------------

    inspection!("locks.rw_lock(\"prices\")", "write");

    /// Returns whether any process holds the lock to write at this moment.
    ///
    /// # Errors
    /// The errors of [`is_locked`](RwLock::is_locked).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let prices = locks.rw_lock("prices");
    /// let reader = prices.read()?;
    /// assert!(!prices.is_locked_exclusive()?);
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_locked_exclusive(&self) -> Result<bool, Error> {
        Ok(self.inspect()?.iter().any(|holder| holder.mode == HoldMode::Exclusive))
    }

    fn holders(&self) -> Result<Vec<Holder>, Error> {
        let holder = |(name, remaining): (String, _)| {
            let (writes, token) = read_holder(&name);
            Holder::new(if writes { HoldMode::Exclusive } else { HoldMode::Shared }, token, remaining)
        };
        Ok(self.writer.holders()?.into_iter().map(holder).collect())
    }
}

/// # With a closure
impl RwLock {
    closures!("locks.rw_lock(\"prices\")", RwLockReadGuard unlock, with_read read);
    closures!("locks.rw_lock(\"prices\")", RwLockWriteGuard unlock, with_write write);
}

/// # Settings
///
/// Each is a method that returns the handle with this setting.
impl RwLock {
    settings!("locks.rw_lock(\"prices\")": lease renew min_hold max_hold unavailable_after cancel label fenced);
}

/// # Settings that are rarely needed
impl RwLock {
    settings!("locks.rw_lock(\"prices\")": max_renewals retry holder_name);
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("key", &self.reader.key())
            .field("read_options", &self.reader.options)
            .field("write_options", &self.writer.options)
            .finish()
    }
}
