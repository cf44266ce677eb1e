//! What the thread queue of a key knows of foreign clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::handover::rules::FOREIGN_CLIENTS_REMEMBERED;
use crate::handover::thread_queue::ThreadQueues;

impl<T> ThreadQueues<T> {
    /// Remembers that a foreign client has the lock.
    pub(crate) fn record_foreign_client(&self, key: &Arc<str>) {
        self.foreign_clients.store(true, Ordering::Relaxed);
        let until = self.clock.now().after(FOREIGN_CLIENTS_REMEMBERED);
        let mut by_key = self.by_key.lock();
        by_key.entry(Arc::clone(key)).or_default().foreign_clients_until = until;
        // Removes the keys of which nothing is remembered any more. The table has doubled since the last time, so this
        // costs little on average.
        if by_key.len() >= self.sweep_at.load(Ordering::Relaxed) {
            by_key.retain(|_, queue| !queue.is_idle(&*self.clock));
            self.sweep_at.store(2 * by_key.len() + 64, Ordering::Relaxed);
        }
    }
}
