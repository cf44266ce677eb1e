//! The process of each client, and the source of its tokens and ids. The library calls this module instead of the
//! operating system.

use std::time::Duration;

use uuid::Builder;

use super::world::{World, try_with};
use crate::lease::LeaseInner;

/// Random bytes for the client whose code runs now; `None` outside of a schedule.
pub(crate) fn random() -> Option<[u8; 16]> {
    try_with(|world| {
        let (client, task) = (world.client, world.current);
        let drawn = world.clients[client].generator.draw();
        let lease = world.tasks[task].options.as_ref().map(LeaseInner::first_lease);
        world.drawn.insert(Builder::from_random_bytes(drawn).into_uuid().as_u128(), (task, lease));
        drawn
    })
}

impl World {
    /// The task that asked for a lock by this token, or that waited for the grant. A lock that is handed to another
    /// task keeps its token.
    pub(super) fn taker(&self, token: &str) -> Option<usize> {
        match token.split_once(":granted:") {
            Some((_, wait)) => self.invariants.tokens.wait_of(wait).map(|(task, _)| task),
            None => self.drawer(token),
        }
    }

    /// The task that drew the random part of a token.
    pub(super) fn drawer(&self, token: &str) -> Option<usize> {
        self.drawn(token).map(|(task, _)| task)
    }

    /// The first lease of the lock for which the random part of a token was drawn.
    pub(super) fn first_lease(&self, token: &str) -> Option<Duration> {
        self.drawn(token)?.1
    }

    fn drawn(&self, token: &str) -> Option<(usize, Option<Duration>)> {
        self.drawn.get(&u128::from_str_radix(token.get(..32)?, 16).ok()?).copied()
    }
}

/// The process id of the client whose code runs now; `None` outside of a schedule.
pub(crate) fn process_id() -> Option<u32> {
    try_with(|world| 1000 + world.client as u32)
}

/// The number of the coroutine that runs now; `None` outside of a schedule.
pub(crate) fn thread_number() -> Option<u64> {
    try_with(|world| world.current as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_outside_of_a_schedule() {
        assert_eq!((random(), process_id(), thread_number()), (None, None, None));
    }
}
