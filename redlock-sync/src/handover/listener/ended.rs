//! Waits that are over and may still be in a server queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::notification::Notification;

/// Usually there are few. If one was forgotten, a granted lock is still released by its key (`UnclaimedGrant`);
/// a permit or a reservation expires.
const MOST: usize = 1024;

/// What to do with a notification to a wait that is over.
pub(crate) type OnLateNotification = Box<dyn Fn(Notification) + Send + Sync>;

/// By the number of the wait, so the first is the oldest.
#[derive(Default)]
pub(super) struct EndedWaits(BTreeMap<u64, Arc<OnLateNotification>>);

impl EndedWaits {
    /// Adds one. Returns the oldest, which it removes if there are too many.
    pub(super) fn add(&mut self, number: u64, ended: OnLateNotification) -> Option<Arc<OnLateNotification>> {
        self.0.insert(number, Arc::new(ended));
        if self.0.len() > MOST { self.0.pop_first().map(|(_, ended)| ended) } else { None }
    }

    pub(super) fn of(&self, number: u64) -> Option<Arc<OnLateNotification>> {
        self.0.get(&number).map(Arc::clone)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) -> impl Iterator<Item = Arc<OnLateNotification>> {
        std::mem::take(&mut self.0).into_values()
    }
}
