//! The guard of a semaphore: a permit, or several that were acquired at once.

use std::marker::PhantomData;

use crate::error::Error;
use crate::lease::Lease;
use crate::lock::handle::derefs_to_lease;
use crate::lock::mutex::{GuardNoSend, GuardSend};
use crate::protocol::Protocol;

/// A permit of a [`Semaphore`](crate::Semaphore), or several of one server that were [acquired at
/// once](crate::Semaphore::acquire_many). Its drop releases all of them.
///
/// As with a [`MutexGuard`](crate::MutexGuard), the drop does not wait for the servers.
///
/// It derefs to [`Lease`]. Its [fencing token](Lease::fencing_token) is greater than those of all earlier holders of
/// the same [slot](SemaphorePermit::slot). It is also greater than each token that was returned for this semaphore
/// before this permit was acquired. The tokens of permits that are held at the same time are in no order, and on
/// several servers two of them can be equal. So a resource that refuses smaller numbers has to keep the largest for
/// each slot.
///
/// A permit cannot leave its thread, unless it is made [sendable](SemaphorePermit::into_send):
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let permit = locks.semaphore("geocoder", 10).acquire().unwrap();
/// std::thread::spawn(move || drop(permit));
/// ```
#[must_use = "if unused the permit is released at once; `let _ = …` releases it at once too, so bind it: `let permit = …`"]
pub struct SemaphorePermit<M = GuardNoSend> {
    lease: Lease,
    bound: PhantomData<M>,
}

impl<M> SemaphorePermit<M> {
    /// Returns the number of the permit, from 0 on, or the first number if it has [several](SemaphorePermit::slots).
    /// The number is less than the semaphore's number of permits unless [that was
    /// changed](crate::Semaphore#changing-the-number). No two holders have the same slot at a time. So each slot can
    /// stand for one thing that one holder uses at a time: a device, a licence, a port.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let devices = locks.semaphore("devices", 4);
    /// let (one, other) = (devices.acquire()?, devices.acquire()?);
    /// assert_ne!(one.slot(), other.slot());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn slot(&self) -> u32 {
        // A lease that was won has one.
        self.slots().first().copied().unwrap_or_default()
    }

    /// Returns all of its slots, in ascending order: one, or as many as were [acquired at
    /// once](crate::Semaphore::acquire_many).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let devices = locks.semaphore("devices", 4).acquire_many(2)?;
    /// assert_eq!(devices.slots(), [0, 1]);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        self.lease.inner().protocol().lock().and_then(Protocol::semaphore).map_or(&[], |semaphore| &semaphore.slots)
    }

    /// Releases the permit, and returns `Ok` once a majority of the nodes confirmed that. If a minority of nodes could
    /// not be reached, the permit remains lent there until its lease ends.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if the permit was not held any more. The work under it may have overlapped with another
    ///   holder, so that there were more holders than permits
    /// - [`Unconfirmed`](Error::Unconfirmed) if no majority of the nodes confirmed. The release is repeated in the
    ///   background until a majority confirms it, the lease has ended, or the client is [shut
    ///   down](crate::Redlock::shutdown)
    /// - [`WrongType`](Error::WrongType) if the key holds something that is not a semaphore
    ///
    /// After any of these, this guard does not hold the permit.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let permit = locks.semaphore("geocoder", 10).acquire()?;
    /// permit.release()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        self.lease.release()
    }
}

impl SemaphorePermit {
    pub(crate) fn new(lease: Lease) -> SemaphorePermit {
        SemaphorePermit { lease, bound: PhantomData }
    }

    /// Lets the permit change threads, so that another thread can use or release it.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let permit = locks.semaphore("geocoder", 10).acquire()?.into_send();
    /// std::thread::spawn(move || permit.release()).join().unwrap()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn into_send(self) -> SemaphorePermit<GuardSend> {
        SemaphorePermit { lease: self.lease, bound: PhantomData }
    }
}

derefs_to_lease!(SemaphorePermit<M>, lease);
