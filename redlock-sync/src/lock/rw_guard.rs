//! The guards of a read-write lock. Those of one thread share a lease.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Wait;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::handle::Handle;
use crate::lock::reentrant::Unlocked;
use crate::lock::reentry::{self, Left};
use crate::options::Kind;
use crate::protocol::ReadWrite;

/// One of the guards of a thread, which share a lease.
pub(crate) struct Hold {
    lease: Arc<Lease>,
    is_entered: bool,
    /// It was taken to write.
    writes: bool,
    /// What a drop waits for a round under way.
    patience: Duration,
}

impl Hold {
    pub(crate) fn enter(
        handle: &Handle<ReadWrite>,
        wait: Wait,
        writes: bool,
        serves: impl Fn(Kind) -> bool,
    ) -> Result<Hold, Error> {
        let (client, key) = (handle.client.id, handle.key()?);
        handle.client.serves()?;
        let lease = if let Some(nested) = reentry::enter_again(client, key.as_str(), writes, serves) {
            nested?
        } else {
            handle.refuse_mine(&reentry::mine(client, key.as_str()), wait)?;
            let lease = Arc::new(handle.acquire(wait)?);
            reentry::enter_first(client, key.name(), &lease, writes);
            lease
        };
        Ok(Hold { lease, is_entered: true, writes, patience: handle.client.quorum.limits.node_timeout / 2 })
    }

    fn leave(&mut self) -> Left {
        if std::mem::take(&mut self.is_entered) { reentry::leave(&self.lease, self.writes) } else { Left::Nothing }
    }

    fn unlock(mut self) -> Result<Unlocked, Error> {
        match self.leave() {
            Left::All => {
                self.lease.finish()?;
                return Ok(Unlocked::Released);
            }
            Left::Alone => self.lease.downgrade(self.patience)?,
            Left::Nothing => self.lease.check()?,
        }
        Ok(Unlocked::StillHeld)
    }

    /// Reads from now on.
    fn step_down(mut self) -> Result<Hold, Error> {
        self.writes = false;
        if reentry::step_down(&self.lease) {
            self.lease.downgrade(self.patience)?;
        } else {
            self.lease.check()?;
        }
        Ok(self)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match self.leave() {
            Left::All => self.lease.finish_quietly(),
            // A loss is reported by the guards that are left.
            Left::Alone => _ = self.lease.downgrade(self.patience),
            Left::Nothing => {}
        }
    }
}

macro_rules! guard {
    ($guard:ident, $take:literal) => {
        impl $guard {
            pub(crate) fn new(hold: Hold) -> $guard {
                $guard { hold, bound: PhantomData }
            }

            /// Gives up this hold; releases the lock if it was the last of this thread.
            ///
            /// # Errors
            /// As for [`MutexGuard::unlock`](crate::MutexGuard::unlock). A guard that is not the last reports [`Lost`](Error::Lost) too when the lock is gone.
            ///
            /// ```
            /// # let server = redlock_tests::Server::start();
            /// # let url = server.url();
            /// use redlock_sync::Unlocked;
            /// let locks = redlock_sync::Redlock::open(&url)?;
            #[doc = concat!("let outer = locks.rw_lock(\"prices\").", $take, "()?;")]
            /// let inner = locks.rw_lock("prices").read()?; // no I/O
            /// assert_eq!(outer.unlock()?, Unlocked::StillHeld);
            /// assert_eq!(inner.unlock()?, Unlocked::Released);
            /// # Ok::<(), redlock_sync::Error>(())
            /// ```
            pub fn unlock(self) -> Result<Unlocked, Error> {
                self.hold.unlock()
            }
        }

        impl Deref for $guard {
            type Target = Lease;

            fn deref(&self) -> &Lease {
                &self.hold.lease
            }
        }

        impl fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.hold.lease).finish()
            }
        }
    };
}

/// The lock is held to read while this lives. Derefs to [`Lease`]. Never leaves its thread.
///
/// Its [`fencing_token`](crate::Lease::fencing_token) exceeds those of all earlier writers, and that of every later writer exceeds it. Threads that have one
/// lease together have one number, so a resource takes a reader's if it is not less than the largest it has seen.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let reader = locks.rw_lock("prices").read()?;
/// reader.check()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.rw_lock("prices").read().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the lock is released at once"]
pub struct RwLockReadGuard {
    hold: Hold,
    bound: PhantomData<*const ()>,
}

guard!(RwLockReadGuard, "read");

/// The lock is held to write while this lives. Derefs to [`Lease`]. Never leaves its thread.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let writer = locks.rw_lock("prices").write()?;
/// println!("UPDATE … WHERE fence < {}", writer.fencing_token()?);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.rw_lock("prices").write().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the lock is released at once"]
pub struct RwLockWriteGuard {
    hold: Hold,
    bound: PhantomData<*const ()>,
}

guard!(RwLockWriteGuard, "write");

impl RwLockWriteGuard {
    /// Keeps the lock to read, without letting another writer in between: what was written can be read on, beside others. Readers that wait are let in, also
    /// before a writer that waits. One round trip to each node. The lease goes on with the settings of the writer, and has a new
    /// [fencing token](crate::Lease::fencing_token). While this thread has another guard that writes, the lock stays exclusive until that one goes.
    ///
    /// There is no way back: two readers that both wanted to write would wait for each other. Unlock, and take the lock to write.
    ///
    /// # Errors
    /// [`Lost`](Error::Lost) if the lock is not held any more: nothing is held then; [`Closed`](Error::Closed) in a forked child. No error if the servers
    /// do not answer: to those that did not learn of it the holder is a writer until the next renewal.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let prices = locks.rw_lock("prices");
    /// let writer = prices.write()?; // fill a cache
    /// let reader = writer.downgrade()?; // use it
    /// let other = redlock_sync::Redlock::open(&url)?;
    /// let beside = other.rw_lock("prices").try_read()?;
    /// # drop((reader, beside));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn downgrade(self) -> Result<RwLockReadGuard, Error> {
        Ok(RwLockReadGuard::new(self.hold.step_down()?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::thread;
    use std::time::Duration;

    use redlock_tests::eventually;

    use crate::Redlock;

    #[test]
    fn in_memory_it_is_as_on_servers() {
        let lock = Redlock::in_memory().rw_lock("prices");
        let reader = lock.read().unwrap();
        thread::scope(|scope| {
            let beside = scope.spawn(|| lock.try_read().map(drop));
            beside.join().unwrap().unwrap();
            let writer = scope.spawn(|| lock.write().unwrap().unlock().unwrap());
            let is_refused = || scope.spawn(|| lock.try_read().is_err_and(|error| error.is_busy())).join().unwrap();
            eventually("the writer that waits keeps readers out", Duration::from_secs(20), is_refused);
            lock.read().unwrap().unlock().unwrap();
            assert_eq!(lock.inspect().unwrap().readers.len(), 1);
            reader.unlock().unwrap();
            writer.join().unwrap();
        });
        assert!(!lock.is_locked().unwrap());
    }
}
