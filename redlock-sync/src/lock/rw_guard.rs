//! The guards of a read-write lock. Those of one thread share a lease.

use std::marker::PhantomData;

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::lock::handle::{Handle, derefs_to_lease};
use crate::lock::mutex::{GuardNoSend, GuardSend};
use crate::lock::nested_hold::{NestedHold, Unlocked};
use crate::lock::reentry;

macro_rules! guard {
    ($guard:ident, $take:literal) => {
        impl $guard {
            pub(super) fn acquire(handle: &Handle, wait: MaxWait) -> Result<$guard, Error> {
                Ok($guard { hold: NestedHold::acquire(handle, wait)?, bound: PhantomData })
            }

            /// Lets the guard change threads. From then on, this thread counts as one that does not hold the lock. If
            /// it asks for the lock again, it can wait for this guard, and the library cannot detect that it waits for
            /// itself.
            ///
            /// # Errors
            /// The unchanged guard, if this thread has other guards of the lock. Guards of one thread share a lease, so
            /// they have to stay on it.
            ///
            /// ```
            /// # let server = redlock_tests::Server::for_sample();
            /// # let url = server.url();
            /// let locks = redlock_sync::Redlock::open(&url)?;
            #[doc = concat!("let guard = locks.rw_lock(\"prices\").", $take, "()?.into_send().expect(\"the only one of this thread\");")]
            /// std::thread::spawn(move || guard.unlock()).join().unwrap()?;
            /// # Ok::<(), redlock_sync::Error>(())
            /// ```
            pub fn into_send(self) -> Result<$guard<GuardSend>, $guard> {
                if reentry::remove_only(&self.hold.lease) {
                    return Ok($guard { hold: self.hold, bound: PhantomData });
                }
                Err(self)
            }
        }

        impl<M> $guard<M> {
            /// Releases this guard, and the lock if it was the last guard of this thread.
            ///
            /// # Errors
            /// The errors of [`MutexGuard::unlock`](crate::MutexGuard::unlock). If the lock was lost, a guard that is
            /// not the last one reports [`Lost`](Error::Lost) too.
            ///
            /// ```
            /// # let server = redlock_tests::Server::for_sample();
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

        derefs_to_lease!($guard<M>, hold.lease);
    };
}

/// The guard of a thread that reads. The drop of the thread's last guard releases the lock. As with a
/// [`MutexGuard`](crate::MutexGuard), the drop does not wait for the servers. The guard derefs to
/// [`Lease`](crate::Lease).
///
/// Its [`fencing_token`](crate::Lease::fencing_token) is greater than those of all earlier writers, and smaller than
/// those of all later ones. Threads that share a lease have the same token. So a resource has to accept a reader's
/// token that is equal to the largest it has seen.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let reader = locks.rw_lock("prices").read()?;
/// reader.check()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// The guard cannot leave its thread, unless it is made [sendable](RwLockReadGuard::into_send):
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.rw_lock("prices").read().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the lock is released at once; `let _ = …` releases it at once too, so bind it: `let guard = …`"]
pub struct RwLockReadGuard<M = GuardNoSend> {
    hold: NestedHold,
    bound: PhantomData<M>,
}

guard!(RwLockReadGuard, "read");

/// The guard of a thread that writes. The drop of the thread's last guard releases the lock, and does not wait for the
/// servers. If only read guards of the thread remain, the drop [downgrades](RwLockWriteGuard::downgrade) the lock,
/// which takes a round trip. The guard derefs to [`Lease`](crate::Lease).
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let writer = locks.rw_lock("prices").write()?;
/// println!("UPDATE … WHERE fence <= {}", writer.fencing_token()?);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// The guard cannot leave its thread, unless it is made [sendable](RwLockWriteGuard::into_send):
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.rw_lock("prices").write().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the lock is released at once; `let _ = …` releases it at once too, so bind it: `let guard = …`"]
pub struct RwLockWriteGuard<M = GuardNoSend> {
    hold: NestedHold,
    bound: PhantomData<M>,
}

guard!(RwLockWriteGuard, "write");

impl<M> RwLockWriteGuard<M> {
    /// Makes this writer a reader in one step, so no other writer gets the lock in between. Readers that wait get the
    /// lock too, even before a writer that waits. The call makes one round trip to each node. The lease keeps the
    /// settings of the writer, and gets a new [fencing token](crate::Lease::fencing_token). If this thread has another
    /// write guard, the lock stays exclusive until that guard is dropped.
    ///
    /// A reader cannot become a writer, because two readers that both want to write would wait for each other. Unlock
    /// the read guard, and then take the lock to write.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if the lock was not held any more. Nothing is held then
    /// - [`Closed`](Error::Closed) in a forked child
    ///
    /// If servers do not answer, that is not an error. They treat the holder as a writer until the next renewal, and
    /// the fencing token may be that of the writer.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
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
    pub fn downgrade(self) -> Result<RwLockReadGuard<M>, Error> {
        Ok(RwLockReadGuard { hold: self.hold.downgrade()?, bound: PhantomData })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::thread;
    use std::time::Duration;

    use redlock_tests::eventually;

    use super::*;
    use crate::Redlock;
    use crate::testing::Memory;

    #[test]
    fn only_a_guard_made_to_be_send_is_send() {
        fn send<T: Send>() {}
        send::<RwLockReadGuard<GuardSend>>();
        send::<RwLockWriteGuard<GuardSend>>();
    }

    /// The threads that read by one client share one lease. A writer that is downgraded shares its own lease, even with
    /// readers on other threads.
    #[test]
    fn in_memory_readers_share_a_lease_also_one_that_was_downgraded() {
        for nodes in [1, 3] {
            let memory = Memory::new(nodes);
            let (lock, others) = (memory.client().rw_lock("prices"), memory.client().rw_lock("prices"));
            let reader = lock.read().unwrap();
            let beside = thread::scope(|scope| scope.spawn(|| lock.read().unwrap().id().clone()).join().unwrap());
            assert_eq!(&beside, reader.id());
            assert_eq!(others.inspect().unwrap().len(), 1);
            reader.unlock().unwrap();

            let writer = lock.write().unwrap();
            let nested = lock.read().unwrap();
            let writer = writer.into_send().unwrap_err();
            drop(nested);
            let (writer, fence) = (writer.into_send().unwrap(), others.try_read().unwrap_err().is_busy());
            assert!(fence);
            let reader = thread::spawn(move || writer.downgrade().unwrap()).join().unwrap();
            assert_eq!(lock.read().unwrap().id(), reader.id(), "it is shared with the threads of its process");
            assert!(
                others.try_read().is_ok_and(|guard| guard.unlock().is_ok())
                    && others.try_write().unwrap_err().is_busy()
            );
            thread::spawn(move || reader.unlock().unwrap()).join().unwrap();
            assert!(!others.is_locked().unwrap());
        }
    }

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
            assert_eq!(lock.inspect().unwrap().len(), 1);
            reader.unlock().unwrap();
            writer.join().unwrap();
        });
        assert!(!lock.is_locked().unwrap());
    }
}
