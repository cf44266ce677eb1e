//! The guards of a read-write lock. Those of one thread share a lease.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::acquire::Wait;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::handle::Handle;
use crate::lock::reentrant::Unlocked;
use crate::lock::reentry;
use crate::options::Kind;
use crate::protocol::ReadWrite;

/// One of the guards of a thread, which share a lease.
pub(crate) struct Hold {
    lease: Arc<Lease>,
    is_entered: bool,
}

impl Hold {
    pub(crate) fn enter(handle: &Handle<ReadWrite>, wait: Wait, serves: impl Fn(Kind) -> bool) -> Result<Hold, Error> {
        let (client, key) = (handle.client.id, handle.key()?);
        handle.client.serves()?;
        let lease = if let Some(nested) = reentry::enter_again(client, key.as_str(), serves) {
            nested?
        } else {
            handle.refuse_mine(&reentry::mine(client, key.as_str()), wait)?;
            let lease = Arc::new(handle.acquire(wait)?);
            reentry::enter_first(client, key.name(), &lease);
            lease
        };
        Ok(Hold { lease, is_entered: true })
    }

    /// True if this was the last hold of its thread.
    fn leave(&mut self) -> bool {
        std::mem::take(&mut self.is_entered) && reentry::leave(&self.lease)
    }

    fn unlock(mut self) -> Result<Unlocked, Error> {
        if self.leave() {
            self.lease.finish()?;
            return Ok(Unlocked::Released);
        }
        self.lease.check()?;
        Ok(Unlocked::StillHeld)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.leave() {
            self.lease.finish_quietly();
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
/// Its [`fencing_token`](crate::Lease::fencing_token) exceeds those of all earlier writers, and that of every later writer exceeds it.
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
