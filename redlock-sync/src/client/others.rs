//! What a client makes besides single locks.

use std::sync::Arc;

use super::Redlock;
use crate::key::{Key, LockKey};
use crate::lock::latch::CountDownLatch;
use crate::lock::multi::MultiLock;

impl Redlock {
    /// The locks of these names, which are taken together or not at all: 1 to 64, in any order; one that is named twice counts once. They exclude
    /// [`mutex`](Redlock::mutex) of the same names. No I/O; what is wrong is reported by the first use.
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

    /// The latch of that name, which opens when `count` workers have arrived; at most 10,000. No I/O; a wrong name or number is reported by the first
    /// use. All processes must give the same number. The latch is of no use as the name of a lock as well, and the other way round.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let loaded = locks.count_down_latch("import:42:loaded", 8);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn count_down_latch(&self, name: impl LockKey, count: usize) -> CountDownLatch {
        let key = Key::new(&self.prefix, &name.lock_key(), self.inner.quorum.limits.max_key_len);
        CountDownLatch::new(Arc::clone(&self.inner), key, count, self.options.retry.clone())
    }
}
