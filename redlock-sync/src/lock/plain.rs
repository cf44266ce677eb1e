//! The exclusive lock: a string key whose value is the holder's token, set with a time-to-live.
//!
//! The layout is that of the Redis documentation, redsync, node-redlock and redis-py, so that programs in other languages exclude us and
//! we them.

use std::time::Duration;

use crate::config::FENCE_LIFETIME;
use crate::key::Key;
use crate::primitive::{Attempt, BEHIND, GiveUp, Next, Order, Primitive, millis, text};
use crate::script::Arg::{self, Number, Text};
use crate::script::{ACQUIRE, Call, EXTEND, FENCE, INSPECT, Purpose, RELEASE, UNRESERVE};
use crate::token::LockId;

#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) key: Key,
}

impl Plain {
    /// All of them, in the order of the scripts.
    fn keys(&self) -> [&str; 3] {
        [self.key.as_str(), self.key.queue(), self.key.fence()]
    }
}

impl Primitive for Plain {
    fn acquire(&self, attempt: &Attempt<'_>) -> Call {
        let (id, lease, wait) = (attempt.id, attempt.lease, attempt.wait);
        let several = matches!(attempt.order, Order::None);
        let mut args = vec![Text(id.as_str()), Number(millis(lease)), flag(several)];
        let fence = attempt.fence.map_or_else(|| "-1".to_owned(), |least| least.to_string());
        let is_bare = attempt.fence.is_none() && wait.is_none() && attempt.tickets.is_empty();
        if !is_bare || matches!(attempt.order, Order::First { .. }) {
            let (random, span) =
                if let Order::First { random, span } = attempt.order { (random, span) } else { ("", Duration::ZERO) };
            args.extend([
                Text(wait.map_or("", |w| w.id)),
                Number(wait.map_or(0, |w| millis(w.stays))),
                Text(&fence),
                Number(millis(FENCE_LIFETIME)),
                Text(random),
                Number(millis(span)),
            ]);
            args.extend(attempt.tickets.iter().map(|ticket| Text(ticket.as_str())));
        }
        Call::new(&ACQUIRE, Purpose::Acquire, Some(id), lease, &self.keys(), &args)
    }

    fn extend(&self, id: &LockId, lease: Duration, counts_waits: bool) -> Call {
        let args = [Text(id.as_str()), Number(millis(lease))];
        let keys = [self.key.as_str(), self.key.queue()];
        let keys = keys.get(..1 + usize::from(counts_waits)).unwrap_or(&keys);
        Call::new(&EXTEND, Purpose::Other, Some(id), lease, keys, &args)
    }

    fn release(&self, give_up: &GiveUp<'_>) -> Call {
        let GiveUp { id, keep, wait, next } = *give_up;
        let grant = if let Next::First(grant) = next { Some(grant) } else { None };
        let (pause, pauses, several) = match next {
            Next::Anybody => (Duration::ZERO, 0, false),
            Next::Others { pause, pauses, several } => (pause, pauses, several),
            Next::First(grant) => (Duration::ZERO, grant.pauses, grant.several),
        };
        let with_fence = grant.is_some_and(|g| g.with_fence);
        let args = [
            text(id),
            Text(wait.unwrap_or("")),
            Text(grant.map_or("", |g| g.random)),
            Number(grant.map_or(0, |g| millis(g.span))),
            Number(grant.map_or(0, |g| millis(g.age))),
            Number(pauses),
            flag(several),
            Number(millis(keep)),
            Number(if with_fence { millis(FENCE_LIFETIME) } else { 0 }),
            Number(millis(pause)),
        ];
        Call::new(&RELEASE, Purpose::Release, id, keep.max(BEHIND), &self.keys(), &args)
    }

    fn unreserve(&self, random: &str) -> Call {
        Call::new(&UNRESERVE, Purpose::Other, None, Duration::ZERO, &self.release_keys(), &[Text(random)])
    }

    fn fence(&self, id: &LockId, fence: Option<u64>) -> Call {
        let args = [Text(id.as_str()), Number(fence.unwrap_or(0)), Number(millis(FENCE_LIFETIME))];
        let keys = [self.key.as_str(), self.key.fence()];
        Call::new(&FENCE, Purpose::Other, Some(id), FENCE_LIFETIME, &keys, &args)
    }

    fn inspect(&self) -> Call {
        Call::new(&INSPECT, Purpose::Other, None, Duration::ZERO, &[self.key.as_str()], &[])
    }

    fn release_keys(&self) -> [&str; 2] {
        [self.key.as_str(), self.key.queue()]
    }
}

fn flag(is_set: bool) -> Arg<'static> {
    Number(u64::from(is_set))
}
