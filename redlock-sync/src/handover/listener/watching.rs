//! What ends the sleep of a wait besides its timer and a push: its lock is free, or was granted to it by a message that was lost; or servers can be
//! reached again. A client looks after the locks of all its waits in one call a second, together with the beat (`line.rs`). If each wait looked by
//! itself, a thousand idle threads would cost hundreds of calls a second.

use std::sync::Arc;

use super::awaits::Awaits;
use super::desk::{Desk, Spot};
use super::line::Place;

/// A wait with its lock.
pub(crate) struct Watched {
    pub(crate) number: u64,
    pub(crate) key: Arc<str>,
    pub(crate) id: Arc<str>,
}

impl Desk {
    pub(super) fn await_also(&mut self, number: u64, awaits: Awaits) {
        if let Some(spot) = self.spots.get_mut(&number) {
            (spot.awaits, spot.must_look) = (awaits, false);
        }
    }

    /// The locks that are to be looked after.
    pub(super) fn watched(&self) -> Vec<Watched> {
        let watched = |(number, spot): (&u64, &Spot)| match &spot.awaits {
            Awaits::Lock(key, id) => Some(Watched { number: *number, key: Arc::clone(key), id: Arc::clone(id) }),
            Awaits::Nothing | Awaits::Servers => None,
        };
        self.spots.iter().filter_map(watched).collect()
    }

    /// Has these waits look for themselves. True if the thread of one of them may be reading: then a message has to wake it.
    pub(super) fn look(&mut self, numbers: impl IntoIterator<Item = u64>) -> bool {
        let mut reads = false;
        for number in numbers {
            let Some(spot) = self.spots.get_mut(&number) else { continue };
            (spot.awaits, spot.must_look) = (Awaits::Nothing, true);
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
    pub(super) fn servers_are_back(&mut self) -> Option<Place> {
        let awaits = |(number, spot): (&u64, &Spot)| (spot.awaits == Awaits::Servers).then_some(*number);
        let numbers: Vec<u64> = self.spots.iter().filter_map(awaits).collect();
        if self.look(numbers) { self.line.place().cloned() } else { None }
    }
}
