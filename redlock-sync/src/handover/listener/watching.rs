//! What ends the sleep of a wait besides its timer and a push: its lock is free, or was granted to it by a message that was lost; or servers can be
//! reached again. A client looks after the locks of all its waits in one call a second, together with the beat (`connection.rs`). If each wait looked by
//! itself, a thousand idle threads would cost hundreds of calls a second.

use std::sync::Arc;

use super::awaits::Awaits;
use super::connection::Subscription;
use super::desk::{Desk, WaitState};

/// A wait with its lock.
pub(crate) struct Watched {
    pub(crate) number: u64,
    pub(crate) key: Arc<str>,
    pub(crate) id: Arc<str>,
}

impl Desk {
    pub(super) fn await_also(&mut self, number: u64, awaits: Awaits) {
        if let Some(wait) = self.waits.get_mut(&number) {
            (wait.awaits, wait.must_look) = (awaits, false);
        }
    }

    /// The locks that are to be looked after.
    pub(super) fn watched(&self) -> Vec<Watched> {
        let watched = |(number, wait): (&u64, &WaitState)| match &wait.awaits {
            Awaits::Lock(key, id) => Some(Watched { number: *number, key: Arc::clone(key), id: Arc::clone(id) }),
            Awaits::Nothing | Awaits::Servers => None,
        };
        self.waits.iter().filter_map(watched).collect()
    }

    /// Has these waits look for themselves. True if the thread of one of them may be reading: then a message has to wake it.
    pub(super) fn look(&mut self, numbers: impl IntoIterator<Item = u64>) -> bool {
        let mut reads = false;
        for number in numbers {
            let Some(wait) = self.waits.get_mut(&number) else { continue };
            (wait.awaits, wait.must_look) = (Awaits::Nothing, true);
            if self.sleeping.remove(&number) {
                self.wake(number);
            } else {
                reads = true;
            }
        }
        self.hand_on();
        reads
    }

    /// Those that wait for a server look. Where a thread reads that has to be woken for it, if there is one.
    pub(super) fn servers_are_back(&mut self) -> Option<Subscription> {
        let awaits = |(number, wait): (&u64, &WaitState)| (wait.awaits == Awaits::Servers).then_some(*number);
        let numbers: Vec<u64> = self.waits.iter().filter_map(awaits).collect();
        if self.look(numbers) { self.connection.subscription().cloned() } else { None }
    }
}
