//! How long a thread waited for a lease and has held it, and the events that observers get of this.

use std::sync::Arc;
use std::time::Duration;

use super::Lease;
use super::inner::LeaseInner;
use crate::clock::Tick;
use crate::error::Error;
use crate::observer::{Event, LockKind, ObservedLock, Observers};
use crate::protocol::Protocol;

impl Lease {
    /// A call that began at `wanted` has acquired this lock. From now on observers get its events.
    pub(crate) fn acquired(&mut self, wanted: Tick) {
        self.wanted = Some(wanted);
        let inner = &self.inner;
        let observers = &self.inner.quorum.settings.observers;
        if !observers.are_there() {
            return;
        }
        // From now on they get the renewals too.
        inner.state.lock().is_observed = true;
        observers.notify(&Event::Acquired { lock: inner.observed(), waited: self.waited() });
        let lease = Arc::downgrade(inner);
        let taken = self.taken;
        self.on_lost(move |error| {
            if let (Some(inner), Some(reason)) = (lease.upgrade(), error.lost_reason()) {
                let (lock, held) = (inner.observed(), inner.quorum.now().since(taken));
                inner.quorum.settings.observers.notify(&Event::Lost { lock, held, reason });
            }
        });
    }

    /// How long the call waited that took the lock: from its beginning until it had the lock. A [job](crate::Job) has a
    /// [`waited`](crate::Job::waited) of its own.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert!(guard.waited() < Duration::from_secs(5)); // it was free
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.wanted.map_or(Duration::ZERO, |wanted| self.taken.since(wanted))
    }

    /// How long ago the lock was acquired, on the clock of the lease, whether it is still held or not.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// std::thread::sleep(Duration::from_millis(10));
    /// assert!(guard.held_for() >= Duration::from_millis(10));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.inner.quorum.now().since(self.taken)
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.quorum.settings.observers
    }

    /// How long the lock was held until `end`, if observers were notified of the acquisition.
    pub(super) fn observed_until(&self, end: Tick) -> Option<Duration> {
        (self.observers().are_there() && self.wanted.is_some()).then(|| end.since(self.taken))
    }

    /// The guard began to release the lock at `began`.
    pub(super) fn notify_end(&self, began: Tick, result: &Result<(), Error>) {
        self.inner.notify_end(self.observed_until(began), result);
    }
}

impl LeaseInner {
    pub(crate) fn observed(&self) -> ObservedLock<'_> {
        // A claim of a task is reported by `Event::Job`, which names no kind of lock.
        let kind = self.protocol().lock().map_or(LockKind::Mutex, Protocol::shown);
        self.options.observed(self.key.as_str(), kind)
    }

    /// Reports a release after the lock was `held` for that time, if observers were notified of the acquisition. A loss
    /// is reported when it is noticed, not here.
    pub(super) fn notify_end(&self, held: Option<Duration>, result: &Result<(), Error>) {
        if let Some(held) = held
            && !matches!(result, Err(Error::Lost { .. } | Error::Closed))
        {
            let (lock, confirmed) = (self.observed(), result.is_ok());
            self.quorum.settings.observers.notify(&Event::Released { lock, held, confirmed });
        }
    }

    /// Called without `rounds`, since an observer may take any time.
    pub(super) fn notify_renewal(&self, outcome: &Result<(), Error>) {
        let observers = &self.quorum.settings.observers;
        if observers.are_there() && self.state.lock().is_observed {
            let (lock, remaining) = (self.observed(), self.remaining());
            observers.notify(&match outcome {
                Ok(()) => Event::Renewed { lock, remaining },
                Err(error) => Event::RenewalFailed { lock, remaining, error },
            });
        }
    }
}
