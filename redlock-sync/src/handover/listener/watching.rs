//! Detects events that end the sleep of a wait besides its timer and a notification. Its lock is free, or was granted
//! to it by a message that was lost; or its queue was deleted; or servers can be reached again.
//!
//! A client checks the locks of all its waits in one call a second, behind the heartbeat (`connection_state.rs`). If
//! each wait made its own check, a thousand idle threads would cost hundreds of calls a second. With more than [`FEW`]
//! sorted sets, the call reads a set only when a member may have ended. One command shows that all the others exist.

use std::sync::Arc;
use std::time::Duration;

use super::connection_state::{HEARTBEAT_INTERVAL, RARE_HEARTBEAT_INTERVAL};
use super::waiter_table::{Awaits, BackgroundTask, WaitState, WaiterTable};
use crate::clock::Tick;
use crate::token::wait_id;

/// If there are at most this many sorted sets, each check reads all of them. So the effect of a lost message is found,
/// such as a permit that was kept for a wait in vain.
const FEW: usize = 8;

/// What the servers are asked about the lock of one wait. A wait says what it awaits for its whole sleep ([`Awaits`]);
/// for a sorted set, the question of each check depends on the time.
pub(crate) struct LockCheck {
    pub(crate) number: u64,
    pub(crate) key: Arc<str>,
    /// In the form that `check_locks.lua` reads: the id of the wait to which the key may be granted, [`MEMBER`] and a
    /// wait, [`PRESENCE`] or [`END`].
    pub(crate) what: Arc<str>,
}

/// Has the queue lost this wait?
const MEMBER: &str = "?";
/// Is the sorted set gone?
const PRESENCE: &str = "";
/// Has a member of the sorted set ended?
const END: &str = "*";

impl WaiterTable {
    pub(crate) fn await_also(&mut self, number: u64, awaits: Awaits) {
        if let Some(wait) = self.waits.get_mut(&number) {
            (wait.awaits, wait.must_check) = (awaits, false);
        }
    }

    /// How long after the last heartbeat another one is due.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        if self.waits.values().all(|wait| wait.awaits == Awaits::Task) {
            RARE_HEARTBEAT_INTERVAL
        } else {
            HEARTBEAT_INTERVAL
        }
    }

    /// The checks to make now.
    pub(crate) fn due_checks(&self, now: Tick) -> Vec<LockCheck> {
        let has_end = |awaits: &Awaits| matches!(awaits, Awaits::Set(_, ends) if *ends < Tick::NEVER);
        let are_few = self.waits.values().filter(|wait| has_end(&wait.awaits)).count() <= FEW;
        let mut all = Vec::new();
        for (number, wait) in &self.waits {
            let mut check = |key: &Arc<str>, what: Arc<str>| {
                all.push(LockCheck { number: *number, key: Arc::clone(key), what });
            };
            match &wait.awaits {
                Awaits::Lock { key, queue, wait } => {
                    check(key, wait_id(wait).into());
                    check(queue, format!("{MEMBER}{wait}").into());
                }
                Awaits::Set(key, ends) if *ends <= now || are_few && has_end(&wait.awaits) => check(key, END.into()),
                Awaits::Set(key, _) => check(key, PRESENCE.into()),
                Awaits::Nothing | Awaits::Servers | Awaits::Task => {}
            }
        }
        all
    }

    /// Sets when the first members of these sets end.
    pub(crate) fn set_next_check(&mut self, waits: impl IntoIterator<Item = (u64, Duration)>, now: Tick) {
        for (number, left) in waits {
            if let Some(WaitState { awaits: Awaits::Set(_, ends), .. }) = self.waits.get_mut(&number) {
                *ends = now.after(left);
            }
        }
    }

    /// Wakes these waits, so that they make their own check. If the thread of one of them may be reading, a message
    /// wakes it.
    pub(crate) fn wake_to_check(&mut self, numbers: impl IntoIterator<Item = u64>) {
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
        if reads && let Some(subscription) = self.connection.subscription() {
            self.follow_up.tasks.push(BackgroundTask::WakeReader(subscription.clone()));
        }
        self.wake_next_reader();
    }

    /// Wakes the waits that wait for a server.
    pub(crate) fn servers_are_back(&mut self) {
        let awaits = |(number, wait): (&u64, &WaitState)| (wait.awaits == Awaits::Servers).then_some(*number);
        let numbers: Vec<u64> = self.waits.iter().filter_map(awaits).collect();
        self.wake_to_check(numbers);
    }
}
