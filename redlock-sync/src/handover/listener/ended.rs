//! Waits that are over, and may still have an entry in a queue.

use std::collections::VecDeque;
use std::sync::Arc;

use super::pushed::Pushed;

const MOST: usize = 64;

/// What becomes of a push to a wait that is over.
pub(crate) type OnLatePush = Box<dyn Fn(Pushed) + Send + Sync>;

/// By the number of the wait, the oldest first.
#[derive(Default)]
pub(super) struct EndedWaits(VecDeque<(u64, Arc<OnLatePush>)>);

impl EndedWaits {
    /// The one that has to go for it, if there are too many.
    pub(super) fn add(&mut self, number: u64, ended: OnLatePush) -> Option<Arc<OnLatePush>> {
        self.0.push_back((number, Arc::new(ended)));
        if self.0.len() > MOST { self.0.pop_front().map(|(_, ended)| ended) } else { None }
    }

    pub(super) fn of(&self, number: u64) -> Option<Arc<OnLatePush>> {
        self.0.iter().find(|(of, _)| *of == number).map(|(_, ended)| Arc::clone(ended))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) -> impl Iterator<Item = Arc<OnLatePush>> {
        std::mem::take(&mut self.0).into_iter().map(|(_, ended)| ended)
    }
}
