//! The exclusive lock: a string key whose value is the holder's token, set with a time-to-live.
//!
//! The layout is that of the Redis documentation, redsync, node-redlock and redis-py, so that programs in other languages exclude us and
//! we them.

use std::time::Duration;

use crate::config::{BREATHER, FENCE_LIFETIME, LONGEST_CHAIN};
use crate::key::Key;
use crate::primitive::{Attempt, GiveUp, Primitive, millis};
use crate::script::{ACQUIRE, Call, EXTEND, FENCE, FREE, INSPECT, Purpose, RELEASE, Script, TAKE, WAITERS};

use crate::token::LockId;

/// How long a release stays behind a late call at least.
const BEHIND: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) key: Key,
}

impl Plain {
    /// Asks who holds it.
    pub(crate) fn inspect(&self) -> Call {
        Call::new(&INSPECT, Purpose::Other, "", Duration::ZERO).key(self.key.as_str())
    }
}

impl Primitive for Plain {
    fn acquire(&self, attempt: &Attempt<'_>) -> Call {
        if attempt.is_bare() {
            return Call::new(&TAKE, Purpose::Acquire, attempt.id.as_str(), attempt.lease)
                .key(self.key.as_str())
                .text(attempt.id.as_str())
                .number(millis(attempt.lease));
        }
        let waiter = attempt.waiter;
        let call = self
            .call(&ACQUIRE, Purpose::Acquire, attempt.id, attempt.lease)
            .number(millis(attempt.lease))
            .number(millis(FENCE_LIFETIME))
            .text(&attempt.fence.map_or_else(|| "-1".to_owned(), |least| least.to_string()))
            .text(waiter.map_or("", |w| w.id))
            .number(waiter.map_or(0, |w| millis(w.stays)))
            .number(u64::from(waiter.is_some_and(|w| w.was_marked)));
        attempt.tickets.iter().fold(call, |call, ticket| call.text(ticket.as_str()))
    }

    fn extend(&self, id: &LockId, lease: Duration) -> Call {
        Call::new(&EXTEND, Purpose::Other, id.as_str(), lease)
            .key(self.key.as_str())
            .text(id.as_str())
            .number(millis(lease))
    }

    fn free(&self, id: &LockId) -> Call {
        Call::new(&FREE, Purpose::Release, id.as_str(), BEHIND)
            .key(self.key.as_str())
            .key(self.key.wake())
            .key(self.key.waiting())
            .text(id.as_str())
            .telling_again()
    }

    fn release(&self, give_up: &GiveUp<'_>) -> Call {
        let grant = give_up.grant;
        let with_fence = grant.is_some_and(|g| g.with_fence);
        self.call(&RELEASE, Purpose::Release, give_up.id, give_up.keep.max(BEHIND))
            .number(millis(give_up.keep))
            .text(give_up.waiter.unwrap_or(""))
            .text(grant.map_or("", |g| g.next.as_str()))
            .number(grant.map_or(0, |g| millis(g.span)))
            .number(if with_fence { millis(FENCE_LIFETIME) } else { 0 })
            .number(grant.map_or(0, |g| g.chain))
            .number(millis(LONGEST_CHAIN))
            .number(millis(BREATHER))
            .telling_again()
    }

    fn fence(&self, id: &LockId, fence: Option<u64>) -> Call {
        Call::new(&FENCE, Purpose::Other, id.as_str(), FENCE_LIFETIME)
            .key(self.key.as_str())
            .key(self.key.fence())
            .text(id.as_str())
            .number(fence.unwrap_or(0))
            .number(millis(FENCE_LIFETIME))
    }

    fn waiters(&self, id: &LockId, own: Option<&str>) -> Call {
        Call::new(&WAITERS, Purpose::Other, id.as_str(), Duration::ZERO)
            .key(self.key.as_str())
            .key(self.key.waiting())
            .text(id.as_str())
            .text(own.unwrap_or(""))
    }

    fn wake_list(&self) -> &str {
        self.key.wake()
    }
}

impl Plain {
    /// A call with all four keys of the lock, and the token as its first argument.
    fn call(&self, script: &'static Script, purpose: Purpose, id: &LockId, lifetime: Duration) -> Call {
        let key = &self.key;
        Call::new(script, purpose, id.as_str(), lifetime)
            .key(key.as_str())
            .key(key.fence())
            .key(key.wake())
            .key(key.waiting())
            .text(id.as_str())
    }
}
