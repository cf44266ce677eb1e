//! What the queue of a key remembers beside its threads: orphans, and whether a program of another library was seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Tick;
use crate::handover::queue::{WaitQueue, WaitQueues};
use crate::handover::rules::STRANGERS_REMEMBERED;
use crate::token::LockId;

/// Orphans that are remembered for one key.
pub(super) const MAX_ORPHANS: usize = 8;

impl<T> WaitQueues<T> {
    /// Remembers a token that no lease has, but that a node may have until then: an orphan. The next attempt may take
    /// the lock from it, so that this process is not locked out by a late copy of its own call.
    pub(crate) fn add_orphan(&self, key: &Arc<str>, id: LockId, until: Tick) {
        let now = self.clock.now();
        let mut by_key = self.by_key.lock();
        // Keys whose orphans have run out go with the next one that comes; a healthy system has none.
        by_key.retain(|_, queue| {
            queue.orphans.retain(|(_, until)| *until > now);
            !queue.is_idle(&*self.clock)
        });
        let orphans = &mut by_key.entry(Arc::clone(key)).or_default().orphans;
        if orphans.len() >= MAX_ORPHANS {
            orphans.remove(0);
        }
        orphans.push((id, until));
        self.count_orphans(&by_key);
    }

    /// The orphans for an attempt on this key.
    pub(crate) fn orphans(&self, key: &Arc<str>) -> Vec<LockId> {
        if self.orphans.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let by_key = self.by_key.lock();
        let Some(queue) = by_key.get(key) else { return Vec::new() };
        if queue.orphans.is_empty() {
            return Vec::new();
        }
        let now = self.clock.now();
        queue.orphans.iter().filter(|(_, until)| *until > now).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets orphans once every node has executed an attempt that named them.
    pub(crate) fn drop_orphans(&self, key: &Arc<str>) {
        let mut by_key = self.by_key.lock();
        if let Some(queue) = by_key.get_mut(key) {
            queue.orphans.clear();
            if queue.is_idle(&*self.clock) {
                by_key.remove(key);
            }
        }
        self.count_orphans(&by_key);
    }

    fn count_orphans(&self, by_key: &HashMap<Arc<str>, WaitQueue<T>>) {
        self.orphans.store(by_key.values().map(|queue| queue.orphans.len()).sum(), Ordering::SeqCst);
    }

    /// Remembers that a program of another library has the lock.
    pub(crate) fn note_stranger(&self, key: &Arc<str>) {
        self.strangers.store(true, Ordering::Relaxed);
        let until = self.clock.now().after(STRANGERS_REMEMBERED);
        let mut by_key = self.by_key.lock();
        if let Some(queue) = by_key.get_mut(key) {
            queue.strangers_until = until;
            return;
        }
        // Keys that are remembered for nothing else go with the next one that comes.
        by_key.retain(|_, queue| !queue.is_idle(&*self.clock));
        let mut queue = WaitQueue::default();
        queue.strangers_until = until;
        by_key.insert(Arc::clone(key), queue);
    }
}
