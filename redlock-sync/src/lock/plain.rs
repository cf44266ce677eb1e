//! The exclusive lock: a string key whose value is the holder's token, set with a time-to-live.
//!
//! The layout is that of the Redis documentation, redsync, node-redlock and redis-py, so that programs in other languages exclude us and
//! we them.

use std::time::Duration;

use crate::config::{BREATHER, FENCE_LIFETIME, LONGEST_CHAIN};
use crate::key::Key;
use crate::primitive::{Attempt, BEHIND, GiveUp, Primitive, millis};
use crate::script::Arg::{Number, Text};
use crate::script::{ACQUIRE, Call, EXTEND, FENCE, FREE, INSPECT, Purpose, RELEASE, TAKE, WAITERS};
use crate::token::LockId;

#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) key: Key,
}

impl Plain {
    /// Asks who holds it.
    pub(crate) fn inspect(&self) -> Call {
        Call::new(&INSPECT, Purpose::Other, None, Duration::ZERO, &[self.key.as_str()], &[])
    }

    /// All four, in the order of the scripts that name them.
    fn keys(&self) -> [&str; 4] {
        [self.key.as_str(), self.key.fence(), self.key.wake(), self.key.waiting()]
    }
}

impl Primitive for Plain {
    fn acquire(&self, attempt: &Attempt<'_>) -> Call {
        let (id, lease) = (attempt.id, attempt.lease);
        let (token, ms) = (Text(id.as_str()), Number(millis(lease)));
        if attempt.is_bare() {
            return Call::new(&TAKE, Purpose::Acquire, Some(id), lease, &self.keys(), &[token, ms]);
        }
        let waiter = attempt.waiter;
        let fence = attempt.fence.map_or_else(|| "-1".to_owned(), |least| least.to_string());
        let mut args = vec![
            token,
            ms,
            Number(millis(FENCE_LIFETIME)),
            Text(&fence),
            Text(waiter.map_or("", |w| w.id)),
            Number(waiter.map_or(0, |w| millis(w.stays))),
            Number(u64::from(waiter.is_some_and(|w| w.was_marked))),
        ];
        args.extend(attempt.tickets.iter().map(|ticket| Text(ticket.as_str())));
        Call::new(&ACQUIRE, Purpose::Acquire, Some(id), lease, &self.keys(), &args)
    }

    fn extend(&self, id: &LockId, lease: Duration) -> Call {
        let args = [Text(id.as_str()), Number(millis(lease))];
        Call::new(&EXTEND, Purpose::Other, Some(id), lease, &[self.key.as_str()], &args)
    }

    fn free(&self, id: &LockId) -> Call {
        Call::new(&FREE, Purpose::Release, Some(id), BEHIND, &self.release_keys(), &[Text(id.as_str())]).telling_again()
    }

    fn release(&self, give_up: &GiveUp<'_>) -> Call {
        let (id, grant) = (give_up.id, give_up.grant);
        let with_fence = grant.is_some_and(|g| g.with_fence);
        let args = [
            Text(id.as_str()),
            Number(millis(give_up.keep)),
            Text(give_up.waiter.unwrap_or("")),
            Text(grant.map_or("", |g| g.next.as_str())),
            Number(grant.map_or(0, |g| millis(g.span))),
            Number(if with_fence { millis(FENCE_LIFETIME) } else { 0 }),
            Number(grant.map_or(0, |g| g.chain)),
            Number(millis(LONGEST_CHAIN)),
            Number(millis(BREATHER)),
        ];
        let lifetime = give_up.keep.max(BEHIND);
        Call::new(&RELEASE, Purpose::Release, Some(id), lifetime, &self.keys(), &args).telling_again()
    }

    fn fence(&self, id: &LockId, fence: Option<u64>) -> Call {
        let args = [Text(id.as_str()), Number(fence.unwrap_or(0)), Number(millis(FENCE_LIFETIME))];
        let keys = [self.key.as_str(), self.key.fence()];
        Call::new(&FENCE, Purpose::Other, Some(id), FENCE_LIFETIME, &keys, &args)
    }

    fn waiters(&self, id: &LockId, own: Option<&str>) -> Call {
        let args = [Text(id.as_str()), Text(own.unwrap_or(""))];
        let keys = [self.key.as_str(), self.key.waiting()];
        Call::new(&WAITERS, Purpose::Other, Some(id), Duration::ZERO, &keys, &args)
    }

    fn wake_list(&self) -> &str {
        self.key.wake()
    }

    fn release_keys(&self) -> [&str; 3] {
        [self.key.as_str(), self.key.wake(), self.key.waiting()]
    }
}
