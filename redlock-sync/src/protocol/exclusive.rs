//! The exclusive lock: a string key whose value is the holder's token, set with a time-to-live.
//!
//! The layout is that of the Redis documentation, redsync, node-redlock and redis-py. So programs with those libraries
//! and with this one exclude each other.

use std::time::Duration;

use smallvec::SmallVec;

use super::reply::{Acquired, Extended, Fenced, Released};
use super::script::Arg::{self, Bytes, Number, Text};
use super::script::{ACQUIRE, ADOPT, Call, EXTEND, FENCE, RELEASE, UNRESERVE};
use super::{AcquireArgs, Next, QueuePolicy, ReleaseArgs, TypedCall, millis, text};
use crate::key::Key;
use crate::options::{FENCE_LIFETIME, Kind, Mode};
use crate::token::LockId;

pub(super) const MUTEX: Kind = Kind { name: "mutex", mode: Mode::Exclusive };

#[derive(Debug, Clone)]
pub(crate) struct Exclusive {
    pub(crate) key: Key,
}

impl Exclusive {
    /// All keys of the lock, in the order of the scripts.
    fn keys(&self) -> [&str; 3] {
        [self.key.as_str(), self.key.queue(), self.key.fence()]
    }

    pub(crate) fn acquire(&self, attempt: &AcquireArgs<'_>) -> TypedCall<Acquired> {
        let (id, lease, wait) = (attempt.id, attempt.lease, attempt.wait);
        let (token, lease_ms) = (Text(id.as_str()), Number(millis(lease)));
        let call = |args: &[Arg<'_>]| Call::of_token(&ACQUIRE, Some(id), &self.keys(), args).into();
        let is_fast_path = attempt.is_fast_path();
        let grant_lease = match attempt.policy {
            QueuePolicy::FastPath if is_fast_path => return call(&[token, lease_ms]),
            QueuePolicy::None | QueuePolicy::Holder if is_fast_path => return call(&[token, lease_ms, Number(1)]),
            QueuePolicy::First { lease } => lease,
            QueuePolicy::FastPath | QueuePolicy::None | QueuePolicy::Holder => Duration::ZERO,
        };
        let ignores_queue = matches!(attempt.policy, QueuePolicy::None | QueuePolicy::Holder);
        let mut args = vec![token, lease_ms, Number(ignores_queue.into())];
        args.extend(attempt.wait_and_fence(wait.map_or("", |w| w.id)));
        args.push(Number(millis(grant_lease)));
        args.extend(attempt.take_over.iter().map(|from| Text(from.as_str())));
        call(&args)
    }

    pub(crate) fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        extend_call(id, lease, &[self.key.as_str()])
    }

    pub(crate) fn release(&self, release: &ReleaseArgs<'_>) -> TypedCall<Released> {
        let ReleaseArgs { id, keep, wait, next } = *release;
        let granted = granted(next);
        let all = [text(id), Bytes(&granted), Text(wait.unwrap_or("")), Number(millis(keep))];
        // Most calls need only the first two, and each argument costs the server time.
        let (usual, _) = all.split_at(2);
        let args = if wait.is_none() && keep.is_zero() { usual } else { &all };
        Call::of_token(&RELEASE, id, &self.keys(), args).into()
    }

    pub(crate) fn fence(&self, id: &LockId, fence: Option<u64>) -> TypedCall<Fenced> {
        let args = [Text(id.as_str()), Number(fence.unwrap_or(0)), Number(millis(FENCE_LIFETIME))];
        let keys = [self.key.as_str(), self.key.fence()];
        Call::of_token(&FENCE, Some(id), &keys, &args).into()
    }

    /// Passes the lock from the token `former` to another one, if `former` holds it.
    pub(crate) fn adopt(&self, id: &LockId, lease: Duration, former: &LockId, fenced: bool) -> TypedCall<Acquired> {
        let (lease_ms, fence_lifetime) = (Number(millis(lease)), Number(millis(FENCE_LIFETIME)));
        let args = [Text(id.as_str()), lease_ms, Number(fenced.into()), fence_lifetime, Text(former.as_str())];
        Call::of_token(&ADOPT, Some(id), &self.keys(), &args).into()
    }

    pub(crate) fn extend_and_count(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        extend_call(id, lease, &[self.key.as_str(), self.key.queue()])
    }

    /// Frees what was reserved for a grant, if no wait was notified of it.
    pub(crate) fn unreserve(&self, random: &str) -> TypedCall<Released> {
        Call::new(&UNRESERVE, &[self.key.as_str(), self.key.queue()], &[Text(random)]).into()
    }
}

fn extend_call(id: &LockId, lease: Duration, keys: &[&str]) -> TypedCall<Extended> {
    let args = [Text(id.as_str()), Number(millis(lease))];
    Call::of_token(&EXTEND, Some(id), keys, &args).into()
}

/// Most grants fit into this many bytes.
const USUAL_GRANT: usize = 32;

/// The grant of a release, as one argument of `release.lua`. Written by hand, since `format!` takes longer than the
/// rest of the call.
fn granted(next: Next) -> SmallVec<[u8; USUAL_GRANT]> {
    let Next::First(grant) = next else { return SmallVec::from_slice(b"0 0 0 0") };
    let fence_lifetime = if grant.with_fence { millis(FENCE_LIFETIME) } else { 0 };
    let mut text = SmallVec::new();
    let mut number = itoa::Buffer::new();
    for n in [grant.several.into(), millis(grant.lease), fence_lifetime, grant.threads_wait.into()] {
        text.extend_from_slice(number.format(n).as_bytes());
        text.push(b' ');
    }
    text
}
