//! The locks, latches and queues that are made from a client.

use std::sync::Arc;

use super::Redlock;
use crate::error::Error;
use crate::key::{Key, LockKey, TaskQueue};
use crate::leader::Leader;
use crate::lock::count_down_latch::CountDownLatch;
use crate::lock::handle::Handle;
use crate::lock::multi::MultiLock;
use crate::lock::mutex::Mutex;
use crate::lock::reentrant::ReentrantMutex;
use crate::lock::rw_lock::RwLock;
use crate::lock::semaphore::Semaphore;
use crate::once::Once;
use crate::protocol::{Exclusive, Protocol};
use crate::queue::Queue;

impl Redlock {
    /// Returns the mutex of that name. This does no I/O: the first use reports a wrong name.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let order = locks.mutex("order:42");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn mutex(&self, key: impl LockKey) -> Mutex {
        Mutex::new(self.handle(&key))
    }

    /// Returns the reentrant mutex of that name, which its holding thread may lock again. It and the
    /// [`mutex`](Redlock::mutex) of the same name exclude each other.
    ///
    /// **In tasks of a work-stealing pool, such as rayon's, use [`mutex`](Redlock::mutex)**: [`ReentrantMutex`] says
    /// why.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let order = locks.reentrant_mutex("order:42");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn reentrant_mutex(&self, key: impl LockKey) -> ReentrantMutex {
        ReentrantMutex::new(self.handle(&key))
    }

    /// Returns the semaphore of that name, with this number of permits, 1 to 1024. One holder at a time holds each
    /// permit. Every caller gives the number, since the servers do not store it. See [how to change
    /// it](Semaphore#changing-the-number). This does no I/O: the first use reports a wrong name or number.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let geocoder = locks.semaphore("geocoder", 10);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn semaphore(&self, key: impl LockKey, permits: u32) -> Semaphore {
        Semaphore::new(Arc::clone(&self.inner), self.key(&key), Arc::clone(&self.options), permits)
    }

    /// Returns the read-write lock of that name, which any number of readers hold at a time, or one writer. This does
    /// no I/O: the first use reports a wrong name.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let prices = locks.rw_lock("prices");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn rw_lock(&self, key: impl LockKey) -> RwLock {
        RwLock::new(&self.inner, &self.key(&key), &self.options)
    }

    /// Returns the locks of these names, which a thread gets together or not at all. There are 1 to 64 names, in any
    /// order. A name that occurs twice counts once. These locks and [`mutex`](Redlock::mutex) of the same names exclude
    /// each other. This does no I/O: the first use reports wrong names.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let accounts = locks.multi_lock(["account:7", "account:3"]);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn multi_lock(&self, keys: impl IntoIterator<Item = impl LockKey>) -> MultiLock {
        let mutexes = keys.into_iter().map(|key| self.mutex(key)).collect();
        MultiLock::new(Arc::clone(&self.inner), mutexes)
    }

    /// Returns the latch of that name, which opens when `count` workers have arrived, 10,000 at most. All processes
    /// should give the same number, because a handle finds the latch open after as many arrivals as its own number.
    /// While there is a latch of a name, calls for a lock of this name return [`WrongType`](Error::WrongType), and vice
    /// versa. This does no I/O: the first use reports a wrong name or number.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let loaded = locks.count_down_latch("import:42:loaded", 8);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn count_down_latch(&self, name: impl LockKey, count: usize) -> CountDownLatch {
        CountDownLatch::new(Arc::clone(&self.inner), self.key(&name), count, &self.options)
    }

    /// Returns a candidate for the leader of that name. Of all processes that have such a candidate, one at a time runs
    /// its body. The leader and [`mutex`](Redlock::mutex) of the same name exclude each other. This does no I/O:
    /// [`run`](Leader::run) reports a wrong name.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let candidate = locks.leader("scheduler");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn leader(&self, name: impl LockKey) -> Leader {
        Leader::new(Arc::clone(&self.inner), self.mutex(name))
    }

    /// Returns the job of that name, which several processes want to run and one of them runs once. While the job runs,
    /// it and [`mutex`](Redlock::mutex) of the same name exclude each other. This does no I/O: [`run`](Once::run)
    /// reports a wrong name.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let report = locks.once("report:2026-11-24");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn once(&self, name: impl LockKey) -> Once {
        Once::new(Arc::clone(&self.inner), self.mutex(name))
    }

    /// Returns the queue of delayed tasks of that name, on a client of one node. A lock of the same name has other
    /// keys, so neither affects the other. This does no I/O: the first use reports a wrong name.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let mails = locks.queue("emails");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn queue(&self, name: impl LockKey) -> Queue {
        let name = name.lock_key();
        let keys = TaskQueue::new(&self.prefix, &name);
        Queue::new(Arc::clone(&self.inner), keys, &self.options).label(name.into_owned())
    }

    fn handle(&self, key: &impl LockKey) -> Handle {
        Handle::new(Arc::clone(&self.inner), self.key(key), Arc::clone(&self.options), |key| {
            Protocol::Mutex(Exclusive { key })
        })
    }

    pub(super) fn key(&self, key: &impl LockKey) -> Result<Key, Error> {
        Key::new(&self.prefix, &key.lock_key())
    }
}
