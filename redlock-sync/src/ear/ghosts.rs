//! Waits that are over, and may still have an entry in a queue.

use std::collections::VecDeque;
use std::sync::Arc;

use super::pushed::Pushed;

const MOST: usize = 64;

/// What becomes of a push to a wait that is over.
pub(crate) type Ghost = Box<dyn Fn(Pushed) + Send + Sync>;

/// By the number of the wait, the oldest first.
#[derive(Default)]
pub(super) struct Ghosts(VecDeque<(u64, Arc<Ghost>)>);

impl Ghosts {
    /// The one that has to go for it, if there are too many.
    pub(super) fn add(&mut self, number: u64, ghost: Ghost) -> Option<Arc<Ghost>> {
        self.0.push_back((number, Arc::new(ghost)));
        if self.0.len() > MOST { self.0.pop_front().map(|(_, ghost)| ghost) } else { None }
    }

    pub(super) fn of(&self, number: u64) -> Option<Arc<Ghost>> {
        self.0.iter().find(|(of, _)| *of == number).map(|(_, ghost)| Arc::clone(ghost))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) -> impl Iterator<Item = Arc<Ghost>> {
        std::mem::take(&mut self.0).into_iter().map(|(_, ghost)| ghost)
    }
}
