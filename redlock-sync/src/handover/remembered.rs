//! What the thread queue of a key stores besides its threads: leftover tokens, a pause, and whether a foreign client
//! was seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Tick;
use crate::handover::rules::FOREIGN_CLIENTS_REMEMBERED;
use crate::handover::thread_queue::{ThreadQueue, ThreadQueues};
use crate::token::LockId;

/// Most leftover tokens that are remembered for one key.
pub(super) const MAX_LEFTOVER_TOKENS: usize = 8;

impl<T> ThreadQueues<T> {
    /// Remembers a leftover token: no lease has it, but a node may have it until then. The next attempt may take the
    /// lock from it. So a late copy of this process's own call does not lock the process out.
    pub(crate) fn add_leftover_token(&self, key: &Arc<str>, id: LockId, until: Tick) {
        let now = self.clock.now();
        let mut by_key = self.by_key.lock();
        // Each new leftover token also removes the keys whose leftover tokens have expired. A healthy system has none.
        by_key.retain(|_, queue| {
            queue.leftover_tokens.retain(|(_, until)| *until > now);
            !queue.is_idle(&*self.clock)
        });
        let leftover_tokens = &mut by_key.entry(Arc::clone(key)).or_default().leftover_tokens;
        if leftover_tokens.len() >= MAX_LEFTOVER_TOKENS {
            leftover_tokens.remove(0);
        }
        leftover_tokens.push((id, until));
        self.count_leftover_tokens(&by_key);
    }

    /// The leftover tokens that an attempt on this key names.
    pub(crate) fn leftover_tokens(&self, key: &Arc<str>) -> Vec<LockId> {
        // Read without the lock under which `count_leftover_tokens` stores it. A thread has stored its own leftover
        // token before its next attempt.
        if self.leftover_tokens.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let (now, by_key) = (self.clock.now(), self.by_key.lock());
        let tokens = by_key.get(key).into_iter().flat_map(|queue| &queue.leftover_tokens);
        tokens.filter(|(_, until)| *until > now).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets leftover tokens of a key, once every node has executed an attempt that named them. Another thread may
    /// have added one since.
    pub(crate) fn forget_leftover_tokens(&self, key: &Arc<str>, named: &[LockId]) {
        let mut by_key = self.by_key.lock();
        if let Some(queue) = by_key.get_mut(key) {
            queue.leftover_tokens.retain(|(id, _)| !named.contains(id));
            if queue.is_idle(&*self.clock) {
                by_key.remove(key);
            }
        }
        self.count_leftover_tokens(&by_key);
    }

    fn count_leftover_tokens(&self, by_key: &HashMap<Arc<str>, ThreadQueue<T>>) {
        // Stored under the lock; `leftover_tokens` reads it without.
        self.leftover_tokens.store(by_key.values().map(|queue| queue.leftover_tokens.len()).sum(), Ordering::SeqCst);
    }

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
