//! One of several guards of a thread, which share a lease.

use std::sync::Arc;

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::handle::Handle;
use crate::lock::reentry::{self, Left};
use crate::options::Kind;

/// What the `unlock` of a guard that can nest did: that of a [`ReentrantMutexGuard`](crate::ReentrantMutexGuard), of a
/// [`RwLockReadGuard`](crate::RwLockReadGuard) or of a [`RwLockWriteGuard`](crate::RwLockWriteGuard).
///
/// ```
/// # let server = redlock_tests::Server::start();
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

/// One of the guards of a thread, which share a lease.
pub(crate) struct Hold {
    pub(crate) lease: Arc<Lease>,
    is_entered: bool,
    /// It keeps all others out, as a writer does, or a mutex.
    is_alone: bool,
}

impl Hold {
    /// Another hold of the lease that this thread has, if that `serves`; else takes the lock.
    #[inline]
    pub(crate) fn enter(
        handle: &Handle,
        wait: MaxWait,
        is_alone: bool,
        serves: impl Fn(Kind) -> bool,
    ) -> Result<Hold, Error> {
        let (client, key) = (handle.client.id, handle.key()?);
        handle.client.serves()?;
        let lease = if let Some(nested) = reentry::enter_again(client, key.as_str(), is_alone, serves) {
            nested?
        } else {
            handle.refuse_mine(&reentry::mine(client, key.as_str()), wait)?;
            let lease = Arc::new(handle.acquire(wait)?);
            reentry::enter_first(client, key.name(), &lease, is_alone);
            lease
        };
        Ok(Hold { lease, is_entered: true, is_alone })
    }

    fn leave(&mut self) -> Left {
        if std::mem::take(&mut self.is_entered) { reentry::leave(&self.lease, self.is_alone) } else { Left::Nothing }
    }

    /// Releases the lock if it was the last hold of this thread.
    pub(crate) fn unlock(mut self) -> Result<Unlocked, Error> {
        match self.leave() {
            Left::All => {
                self.lease.finish()?;
                return Ok(Unlocked::Released);
            }
            Left::Alone => self.lease.downgrade()?,
            Left::Nothing => self.lease.check()?,
        }
        Ok(Unlocked::StillHeld)
    }

    /// Reads from now on.
    pub(crate) fn step_down(mut self) -> Result<Hold, Error> {
        self.is_alone = false;
        if reentry::step_down(&self.lease) {
            self.lease.downgrade()?;
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
            Left::Alone => _ = self.lease.downgrade(),
            Left::Nothing => {}
        }
    }
}
