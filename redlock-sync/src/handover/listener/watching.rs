//! What ends the sleep of a wait besides its timer and a push: its lock is free, or was granted to it by a message that was lost; or servers can be
//! reached again. A client looks after the locks of all its waits in one call a second, together with the beat (`push_connection.rs`). If each wait looked by
//! itself, a thousand idle threads would cost hundreds of calls a second. If there are more than a [`FEW`] sorted sets, the call looks into one only when a
//! member of it may have come to its end: for all others it takes one command to see that they are there.

use std::sync::Arc;
use std::time::Duration;

use super::awaits::Awaits;
use super::push_connection::{HEARTBEAT_INTERVAL, RARE_HEARTBEAT_INTERVAL, Subscription};
use super::waiter_table::{WaitState, WaiterTable};
use crate::clock::Tick;

/// So many sorted sets are looked into each time: what a message was lost about is found then, such as a permit that was kept for a wait in vain.
const FEW: usize = 8;

/// A wait with its lock.
pub(crate) struct WatchedLock {
    pub(crate) number: u64,
    pub(crate) key: Arc<str>,
    pub(crate) of: WatchedFor,
}

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchedFor {
    /// That the key is gone, or granted to the wait with this id.
    Grant(Arc<str>),
    /// That the sorted set is gone.
    Presence,
    /// That a member of it has ended.
    End,
}

impl WatchedFor {
    /// As `publish.lua` reads it.
    pub(crate) fn text(&self) -> &str {
        match self {
            WatchedFor::Grant(id) => id,
            WatchedFor::Presence => "",
            WatchedFor::End => "*",
        }
    }
}

impl WaiterTable {
    pub(crate) fn await_also(&mut self, number: u64, awaits: Awaits) {
        if let Some(wait) = self.waits.get_mut(&number) {
            (wait.awaits, wait.must_check) = (awaits, false);
        }
    }

    /// How long after the last beat another one is due.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        if self.waits.values().all(|wait| wait.awaits == Awaits::Task) {
            RARE_HEARTBEAT_INTERVAL
        } else {
            HEARTBEAT_INTERVAL
        }
    }

    /// The locks that are to be looked after now.
    pub(crate) fn watched(&self, now: Tick) -> Vec<WatchedLock> {
        let has_end = |awaits: &Awaits| matches!(awaits, Awaits::Set(_, ends) if *ends < Tick::NEVER);
        let are_few = self.waits.values().filter(|wait| has_end(&wait.awaits)).count() <= FEW;
        let watched = |(number, wait): (&u64, &WaitState)| {
            let (key, of) = match &wait.awaits {
                Awaits::Lock(key, id) => (key, WatchedFor::Grant(Arc::clone(id))),
                Awaits::Set(key, ends) if *ends <= now || are_few && has_end(&wait.awaits) => (key, WatchedFor::End),
                Awaits::Set(key, _) => (key, WatchedFor::Presence),
                Awaits::Nothing | Awaits::Servers | Awaits::Task => return None,
            };
            Some(WatchedLock { number: *number, key: Arc::clone(key), of })
        };
        self.waits.iter().filter_map(watched).collect()
    }

    /// So long it takes until the first members of these sets come to their ends.
    pub(crate) fn set_next_check(&mut self, waits: impl IntoIterator<Item = (u64, Duration)>, now: Tick) {
        for (number, left) in waits {
            if let Some(WaitState { awaits: Awaits::Set(_, ends), .. }) = self.waits.get_mut(&number) {
                *ends = now.after(left);
            }
        }
    }

    /// Has these waits look for themselves. True if the thread of one of them may be reading: then a message has to wake it.
    pub(crate) fn wake_to_check(&mut self, numbers: impl IntoIterator<Item = u64>) -> bool {
        let mut reads = false;
        for number in numbers {
            let Some(wait) = self.waits.get_mut(&number) else { continue };
            (wait.awaits, wait.must_check) = (Awaits::Nothing, true);
            if self.sleeping.remove(&number) {
                self.wake(number);
            } else {
                reads = true;
            }
        }
        self.wake_next_reader();
        reads
    }

    /// Those that wait for a server look. Where a thread reads that has to be woken for it, if there is one.
    pub(crate) fn servers_are_back(&mut self) -> Option<Subscription> {
        let awaits = |(number, wait): (&u64, &WaitState)| (wait.awaits == Awaits::Servers).then_some(*number);
        let numbers: Vec<u64> = self.waits.iter().filter_map(awaits).collect();
        if self.wake_to_check(numbers) { self.connection.subscription().cloned() } else { None }
    }
}
