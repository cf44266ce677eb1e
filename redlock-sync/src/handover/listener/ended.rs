//! Waits that are over, and may still have an entry in a queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pushed::Pushed;

/// There are few as a rule. Of those that are forgotten a lock is still given back by its key (`UnclaimedGrant`); a permit or a turn ends by itself.
const MOST: usize = 1024;

/// What becomes of a push to a wait that is over.
pub(crate) type OnLatePush = Box<dyn Fn(Pushed) + Send + Sync>;

/// By the number of the wait: the first is the one that began first.
#[derive(Default)]
pub(super) struct EndedWaits(BTreeMap<u64, Arc<OnLatePush>>);

impl EndedWaits {
    /// The one that has to go for it, if there are too many.
    pub(super) fn add(&mut self, number: u64, ended: OnLatePush) -> Option<Arc<OnLatePush>> {
        self.0.insert(number, Arc::new(ended));
        if self.0.len() > MOST { self.0.pop_first().map(|(_, ended)| ended) } else { None }
    }

    pub(super) fn of(&self, number: u64) -> Option<Arc<OnLatePush>> {
        self.0.get(&number).map(Arc::clone)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) -> impl Iterator<Item = Arc<OnLatePush>> {
        std::mem::take(&mut self.0).into_values()
    }
}
