//! The exclusive lock: a string key whose value is the holder's token, set with a time-to-live.
//!
//! The layout is that of the Redis documentation, redsync, node-redlock and redis-py, so that programs in other languages exclude us and
//! we them.

use std::time::Duration;

use crate::config::FENCE_LIFETIME;
use crate::key::Key;
use crate::primitive::{Attempt, Primitive, millis};
use crate::script::{ACQUIRE, Call, EXTEND, FENCE, INSPECT, Purpose, RELEASE};
use crate::token::LockId;

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
        let call = Call::new(&ACQUIRE, Purpose::Acquire, attempt.id.as_str(), attempt.lease)
            .key(self.key.as_str())
            .key(self.key.fence())
            .text(attempt.id.as_str())
            .number(millis(attempt.lease))
            .number(millis(FENCE_LIFETIME))
            .number(attempt.least_fence);
        attempt.tickets.iter().fold(call, |call, ticket| call.text(ticket.as_str()))
    }

    fn extend(&self, id: &LockId, lease: Duration) -> Call {
        Call::new(&EXTEND, Purpose::Other, id.as_str(), lease)
            .key(self.key.as_str())
            .text(id.as_str())
            .number(millis(lease))
    }

    fn release(&self, id: &LockId, keep: Duration) -> Call {
        Call::new(&RELEASE, Purpose::Release, id.as_str(), keep.max(Duration::from_secs(1)))
            .key(self.key.as_str())
            .text(id.as_str())
            .number(millis(keep))
    }

    fn fence(&self, id: &LockId, fence: u64) -> Call {
        Call::new(&FENCE, Purpose::Other, id.as_str(), FENCE_LIFETIME)
            .key(self.key.as_str())
            .key(self.key.fence())
            .text(id.as_str())
            .number(fence)
            .number(millis(FENCE_LIFETIME))
    }
}
