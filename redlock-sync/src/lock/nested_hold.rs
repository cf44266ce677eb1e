//! One of the guards of a thread that share a lease.

use std::sync::Arc;

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::handle::Handle;
use crate::lock::reentry::{self, Removed};
use crate::options::Mode;
use crate::protocol::LeaseCalls;

/// What the `unlock` of a guard that can nest did: that of a [`ReentrantMutexGuard`](crate::ReentrantMutexGuard), of a
/// [`RwLockReadGuard`](crate::RwLockReadGuard) or of a [`RwLockWriteGuard`](crate::RwLockWriteGuard).
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let guard = locks.reentrant_mutex("order:42").lock()?;
/// assert_eq!(guard.unlock()?, redlock_sync::Unlocked::Released);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unlocked {
    /// It was this thread's last guard: this thread does not hold the lock any more.
    Released,
    /// Other guards of this thread still hold it.
    StillHeld,
}

/// One of the guards of a thread that share a lease.
pub(crate) struct NestedHold {
    pub(crate) lease: Arc<Lease>,
    /// True until it is removed from the list of this thread.
    is_listed: bool,
    /// It needs the lock exclusively, like a writer or the guard of a mutex.
    is_exclusive: bool,
}

impl NestedHold {
    /// Adds a hold to the lease by which this thread holds the lock. Acquires the lock if there is no such lease.
    #[inline]
    pub(crate) fn acquire(handle: &Handle, wait: MaxWait) -> Result<NestedHold, Error> {
        let (key, protocol) = handle.lock.as_ref().map_err(Error::clone)?;
        let (client, kind) = (handle.client.id, protocol.kind());
        let is_exclusive = kind.mode == Mode::Exclusive;
        handle.client.check_not_ended()?;
        let min_hold = handle.options.min_hold;
        if !min_hold.is_zero() {
            handle.options.check(&handle.client.quorum.settings)?;
        }
        let lease = if let Some(nested) = reentry::add_nested(client, key.as_str(), kind) {
            let lease = nested?;
            if !min_hold.is_zero() {
                lease.inner().hold_at_least(min_hold);
            }
            lease
        } else {
            handle.check_not_held(wait)?;
            let lease = Arc::new(handle.acquire(wait)?);
            reentry::add_first(client, &lease, is_exclusive);
            lease
        };
        Ok(NestedHold { lease, is_listed: true, is_exclusive })
    }

    fn remove(&mut self) -> Removed {
        if std::mem::take(&mut self.is_listed) {
            reentry::remove(&self.lease, self.is_exclusive)
        } else {
            Removed::OthersRemain
        }
    }

    /// Releases the lock if it was the last hold of this thread.
    pub(crate) fn unlock(mut self) -> Result<Unlocked, Error> {
        match self.remove() {
            Removed::Last => {
                self.lease.release()?;
                return Ok(Unlocked::Released);
            }
            Removed::LastExclusive => self.lease.downgrade()?,
            Removed::OthersRemain => self.lease.check()?,
        }
        Ok(Unlocked::StillHeld)
    }

    /// Makes a writer a reader.
    pub(crate) fn downgrade(mut self) -> Result<NestedHold, Error> {
        self.is_exclusive = false;
        if reentry::downgrade(&self.lease) {
            self.lease.downgrade()?;
        } else {
            self.lease.check()?;
        }
        Ok(self)
    }
}

impl Drop for NestedHold {
    fn drop(&mut self) {
        match self.remove() {
            Removed::Last => self.lease.release_detached(),
            // The remaining guards report a loss.
            Removed::LastExclusive => _ = self.lease.downgrade(),
            Removed::OthersRemain => {}
        }
    }
}
