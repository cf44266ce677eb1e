//! The read-write lock: any number of readers at a time, or one writer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lock::handle::{Handle, rarely_needed, settings};
use crate::lock::hold::Hold;
use crate::lock::holder::{HoldMode, Holder};
use crate::lock::rw_guard::{RwLockReadGuard, RwLockWriteGuard};
use crate::lock::with::closures;
use crate::options::{LockOptions, Mode};
use crate::protocol::rw_lock::{RW_LOCK, read_holder};
use crate::protocol::{Protocol, ReadWrite};

/// A lock that any number of readers hold at a time, or one writer. Made by
/// [`Redlock::rw_lock`](crate::Redlock::rw_lock).
///
/// Picture a room: any number of threads may read in it together, and a thread that writes is alone there.
///
/// ```
/// # let server = redlock_tests::Server::start();
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
/// A writer that waits keeps new readers out, so a stream of readers does not keep it waiting. After a writer all
/// readers that wait go in together, before the next writer, so a stream of writers does not keep them waiting
/// (phase-fair, after Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time
/// systems", 2010). On one node writers are served in the order in which they came.
///
/// # Nesting
///
/// Ownership is by thread, as with [`ReentrantMutex`](crate::ReentrantMutex): a thread that reads can read again, and a
/// thread that writes can read and write again, all without I/O. The guards of a thread share a lease, which the last
/// of them gives up, in whatever order they are dropped. If the last write guard is dropped while a read guard of the
/// thread remains, the lock is [downgraded](RwLockWriteGuard::downgrade): the thread reads from then on, beside others.
/// A thread that only reads cannot write: with another reader that wants the same it would wait for ever. It gets
/// [`WouldDeadlock`](Error::WouldDeadlock), or [`Busy`](Error::Busy) from the calls that do not wait for ever.
///
/// # Leases
///
/// Each writer has a token, a lease and a renewal of its own, and so has each process that reads: the death of one
/// takes nothing from the others. The threads of a process that read by the same client with equal settings have one
/// lease together. The first takes it, and those that come while one of them reads join it without a round trip; the
/// last gives it up. So the servers have no more work with many threads that read than with one. Every 20 ms, or 4096
/// joins, one of those that join asks the servers whether another process waits to write. If so, no more threads join,
/// and those that come later wait for that writer. When the lease is lost, each of its readers is notified. A reader
/// has a lease of its own if its handle sets [`holder_name`](RwLock::holder_name), [`min_hold`](RwLock::min_hold),
/// [`max_hold`](RwLock::max_hold), [`max_renewals`](RwLock::max_renewals) or [`renew(false)`](RwLock::renew).
///
/// # Stopped processes
///
/// On one node a process that is stopped (SIGSTOP) while one of its threads waits to write keeps new readers out until
/// it goes on, is killed, or its connection ends.
///
/// # A holder that is stuck
///
/// There is no `force_unlock`, as [that of a mutex](crate::Mutex::force_unlock): the readers of a process share a
/// lease, and a writer can become a reader, so it would end work that is not stuck. Stop the process of that holder,
/// and its lease ends by itself.
///
/// # Other kinds
///
/// A lock of another kind with the same name has a key of another type: the call is [`WrongType`](Error::WrongType) at
/// once, also if this client holds that lock.
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

    fn set(&mut self, change: impl Fn(&mut LockOptions)) {
        self.reader.set(&change);
        self.writer.set(&change);
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    /// Blocks until this thread may read; returns at once if it reads or writes already, also while a writer waits.
    /// Usually without a round trip if another thread of this process reads, by the same client with equal settings.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if this thread has outer guards that lost the lock: until they are gone it cannot be
    ///   locked again, since the outer code still relies on the lock that it lost
    /// - [`WouldDeadlock`](Error::WouldDeadlock) if this thread holds a lock of another kind on this key
    /// - [`Busy`](Error::Busy) only if the [`retry`](RwLock::retry) policy gives up
    /// - [`Unavailable`](Error::Unavailable) once no majority of the nodes could be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after)
    /// - [`WrongType`](Error::WrongType), [`Config`](Error::Config) and [`Closed`](Error::Closed) at once
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").read()?;
    /// let other = redlock_sync::Redlock::open(&url)?.rw_lock("prices").read()?; // both read
    /// # drop((reader, other));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn read(&self) -> Result<RwLockReadGuard, Error> {
        self.acquire_to_read(MaxWait::Forever)
    }

    /// Makes one attempt to read, with one round trip to each node; two if the lock was just passed on to waiters,
    /// which may have died since. Returns at once and without I/O if this thread reads or writes already.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if another thread or process writes or waits to write
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - the errors of [`read`](RwLock::read)
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _writer = locks.rw_lock("prices").write()?;
    /// let other = redlock_sync::Redlock::open(&url)?;
    /// assert!(other.rw_lock("prices").try_read().unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn try_read(&self) -> Result<RwLockReadGuard, Error> {
        self.acquire_to_read(MaxWait::No)
    }

    /// Blocks until this thread may read, for at most `wait`, and makes a last attempt at the end. The call takes at
    /// most one node timeout longer than `wait`. If it has to take back an attempt that came too late, it takes a
    /// quarter of a node timeout more.
    ///
    /// # Errors
    /// The errors of [`try_read`](RwLock::try_read), at the end of `wait`.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").try_read_for(Duration::from_secs(2))?;
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn try_read_for(&self, wait: Duration) -> Result<RwLockReadGuard, Error> {
        self.acquire_to_read(self.reader.for_at_most(wait))
    }

    /// Like [`try_read_for`](RwLock::try_read_for), but with a deadline in place of a length of time. It is converted
    /// once, on entry.
    ///
    /// # Errors
    /// The errors of [`try_read_for`](RwLock::try_read_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").try_read_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn try_read_until(&self, deadline: Instant) -> Result<RwLockReadGuard, Error> {
        self.acquire_to_read(self.reader.until(deadline))
    }

    // --- writing -----------------------------------------------------------------------------------------------------

    /// Blocks until this thread may write, alone; returns at once if it writes already. While it waits no new readers
    /// are let in, except those whose turn comes first: after another writer, the readers that waited for that one go
    /// in before the next writer.
    ///
    /// # Errors
    /// The errors of [`read`](RwLock::read), and [`WouldDeadlock`](Error::WouldDeadlock) if this thread only reads, and
    /// no [`renew(false)`](RwLock::renew), [`max_hold`](RwLock::max_hold) or [`max_renewals`](RwLock::max_renewals)
    /// ends that hold.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
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
    pub fn write(&self) -> Result<RwLockWriteGuard, Error> {
        self.acquire_to_write(MaxWait::Forever)
    }

    /// One attempt to write, as [`try_read`](RwLock::try_read).
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if another thread or process reads or writes, or if this thread only reads
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - the errors of [`write`](RwLock::write)
    ///
    /// Nothing new is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _reader = locks.rw_lock("prices").read()?;
    /// let other = redlock_sync::Redlock::open(&url)?;
    /// assert!(other.rw_lock("prices").try_write().unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn try_write(&self) -> Result<RwLockWriteGuard, Error> {
        self.acquire_to_write(MaxWait::No)
    }

    /// Blocks until this thread may write, for at most `wait`, as [`try_read_for`](RwLock::try_read_for).
    ///
    /// # Errors
    /// The errors of [`try_write`](RwLock::try_write), at the end of `wait`. If this thread only reads, they come at
    /// once, unless that hold surely ends before the deadline.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let writer = locks.rw_lock("prices").try_write_for(Duration::from_secs(2))?;
    /// # drop(writer);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn try_write_for(&self, wait: Duration) -> Result<RwLockWriteGuard, Error> {
        self.acquire_to_write(self.writer.for_at_most(wait))
    }

    /// Like [`try_write_for`](RwLock::try_write_for), but with a deadline in place of a length of time. It is converted
    /// once, on entry.
    ///
    /// # Errors
    /// The errors of [`try_write_for`](RwLock::try_write_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let writer = locks.rw_lock("prices").try_write_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(writer);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn try_write_until(&self, deadline: Instant) -> Result<RwLockWriteGuard, Error> {
        self.acquire_to_write(self.writer.until(deadline))
    }

    // --- inspection --------------------------------------------------------------------------------------------------

    /// Whether the lock is held at this moment, to read or to write, by this process or another, on a majority of the
    /// nodes. It can have changed when this returns: use it to watch, not to decide. A holder asks
    /// [`check`](crate::Lease::check).
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - [`WrongType`](Error::WrongType) if the key holds something else
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let prices = locks.rw_lock("prices");
    /// assert!(!prices.is_locked()?);
    /// let reader = prices.read()?;
    /// assert!(prices.is_locked()?);
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.inspect()?.is_empty())
    }

    /// Whether the lock is held to write at this moment.
    ///
    /// # Errors
    /// The errors of [`is_locked`](RwLock::is_locked).
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
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

    /// Returns the holders of the lock at this moment, on a majority of the nodes; at most a thousand of each node. The
    /// list is empty if the lock is free. [`mode`](Holder::mode) distinguishes a writer from readers. Threads of a
    /// process that read by one lease are one holder. For a moment after a release, the list also has waiters for which
    /// the lock is kept. The [`holder_name`](crate::LockId::holder_name) of such a waiter begins with `granted:`.
    ///
    /// # Errors
    /// The errors of [`is_locked`](RwLock::is_locked).
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use redlock_sync::HoldMode;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let prices = locks.rw_lock("prices").holder_name("me");
    /// let reader = prices.read()?;
    /// let holders = prices.inspect()?;
    /// assert_eq!((holders[0].mode, holders[0].id.holder_name()), (HoldMode::Shared, "me"));
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn inspect(&self) -> Result<Vec<Holder>, Error> {
        let holder = |(name, remaining): (String, _)| {
            let (writes, token) = read_holder(&name);
            Holder::new(if writes { HoldMode::Exclusive } else { HoldMode::Shared }, token, remaining)
        };
        Ok(self.writer.holders()?.into_iter().map(holder).collect())
    }

    // --- acquiring ---------------------------------------------------------------------------------------------------

    fn acquire_to_read(&self, wait: MaxWait) -> Result<RwLockReadGuard, Error> {
        // A thread that reads or writes already may read.
        let hold = Hold::acquire(&self.reader, wait, false, |held| held.name == RW_LOCK)?;
        Ok(RwLockReadGuard::new(hold))
    }

    fn acquire_to_write(&self, wait: MaxWait) -> Result<RwLockWriteGuard, Error> {
        let hold =
            Hold::acquire(&self.writer, wait, true, |held| held.name == RW_LOCK && held.mode == Mode::Exclusive)?;
        Ok(RwLockWriteGuard::new(hold))
    }
}

/// # With a closure
impl RwLock {
    closures!("locks.rw_lock(\"prices\")", RwLockReadGuard unlock, with_read read, try_with_read try_read, try_with_read_for try_read_for);
    closures!("locks.rw_lock(\"prices\")", RwLockWriteGuard unlock, with_write write, try_with_write try_write, try_with_write_for try_write_for);
}

/// # Settings of one side
impl RwLock {
    /// Like [`lease`](RwLock::lease), but only for threads that read; default: that of the lock, 10 ms to 24 h. A lease
    /// is how long the others wait after a process has died: short for readers if many short-lived processes read, long
    /// where readers must outlive a long outage of the servers.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").read_lease(Duration::from_secs(5)).read()?;
    /// assert!(reader.remaining() < Duration::from_secs(5));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn read_lease(mut self, lease: Duration) -> RwLock {
        self.reader.set(|options| options.lease = lease);
        self
    }

    /// Like [`lease`](RwLock::lease), but only for threads that write; default: that of the lock, 10 ms to 24 h. See
    /// [`read_lease`](RwLock::read_lease) for what the two depend on.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let writer = locks.rw_lock("prices").write_lease(Duration::from_secs(5)).write()?;
    /// assert!(writer.remaining() < Duration::from_secs(5));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn write_lease(mut self, lease: Duration) -> RwLock {
        self.writer.set(|options| options.lease = lease);
        self
    }
}

/// # Settings
///
/// Each is a method that returns the handle with this setting.
impl RwLock {
    settings!("locks.rw_lock(\"prices\")", "write", "try_write", "unlock");
}

/// # Settings that are rarely needed
impl RwLock {
    rarely_needed!("locks.rw_lock(\"prices\")", "write");
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
