//! The read-write lock: a sorted set of holders, each with the end of its lease. There is one writer or any number of
//! readers.
//!
//! Each side is a kind of its own, on one key. Every holder has its own token and lease, so exclusion works as with the
//! mutex. A node with a live reader lets no writer in. A node with a live writer lets no reader in. Any two majorities
//! share a node. To the servers, readers of a process that share a lease are one reader. After a downgrade, nodes that
//! the call did not reach still have a writer. That excludes no less.

use std::time::Duration;

use super::reply::{Acquired, Extended, Fenced, Released};
use super::script::Arg::{self, Number, Text};
use super::script::{Call, RW_ACQUIRE, RW_EXTEND, RW_FENCE, RW_RELEASE};
use super::{AcquireArgs, Next, QueuePolicy, ReleaseArgs, TypedCall, millis, text};
use crate::key::Key;
use crate::options::{FENCE_LIFETIME, Kind, Mode};
use crate::token::LockId;

/// The kind's name, which both sides share.
const RW_LOCK: &str = "rw_lock";
const READER: &str = "r";
const WRITER: &str = "w";

/// One side of a read-write lock.
#[derive(Debug, Clone)]
pub(crate) struct ReadWrite {
    pub(super) key: Key,
    /// The queue of the readers, and that of the writers.
    queues: [String; 2],
    /// `Exclusive` for writers.
    mode: Mode,
    /// True with several nodes. Then the queues hold marks that expire, since a client listens on one of the nodes
    /// only.
    several: bool,
}

impl ReadWrite {
    pub(crate) fn new(key: Key, mode: Mode, several: bool) -> ReadWrite {
        ReadWrite { queues: key.rw_queues(), key, mode, several }
    }

    /// All keys of the lock, in the order of the scripts.
    fn keys(&self) -> [&str; 4] {
        let [readers, writers] = &self.queues;
        [self.key.as_str(), readers, self.key.fence(), writers]
    }

    pub(super) fn kind(&self) -> Kind {
        Kind { name: RW_LOCK, mode: self.mode }
    }

    fn letter(&self) -> Arg<'static> {
        Text(if self.mode == Mode::Exclusive { WRITER } else { READER })
    }

    fn extend_call(&self, id: &LockId, lease: Duration, what: &str) -> TypedCall<Extended> {
        let several = Number(self.several.into());
        let args = [Text(id.as_str()), Number(millis(lease)), self.letter(), several, Text(what)];
        Call::of_token(&RW_EXTEND, Some(id), &self.keys(), &args).into()
    }

    pub(crate) fn acquire(&self, attempt: &AcquireArgs<'_>) -> TypedCall<Acquired> {
        let (id, lease, is_holder) = (attempt.id, attempt.lease, matches!(attempt.policy, QueuePolicy::Holder));
        let call = |args: &[Arg<'_>]| Call::of_token(&RW_ACQUIRE, Some(id), &self.keys(), args).into();
        let usual = [Text(id.as_str()), Number(millis(lease)), self.letter(), Number(self.several.into())];
        if attempt.is_fast_path() && !is_holder {
            return call(of_some(&usual, self.several));
        }
        let mut args = usual.to_vec();
        args.extend(attempt.wait_and_fence(attempt.wait.map_or("", |w| w.id)));
        args.push(Number(is_holder.into()));
        call(&args)
    }

    pub(crate) fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        self.extend_call(id, lease, "")
    }

    /// The waits whose turn it is get reservations. A reservation is not a lock, so no terms of a grant are sent.
    pub(crate) fn release(&self, release: &ReleaseArgs<'_>) -> TypedCall<Released> {
        let ReleaseArgs { id, keep, wait, next } = *release;
        let is_in_order = !matches!(next, Next::Anybody);
        let usual = [text(id), self.letter(), Number(self.several.into())];
        let call = |args: &[Arg<'_>]| Call::of_token(&RW_RELEASE, id, &self.keys(), args).into();
        if wait.is_none() && keep.is_zero() && is_in_order {
            return call(of_some(&usual, self.several));
        }
        let rest = [Text(wait.unwrap_or("")), Number(millis(keep)), Number(is_in_order.into())];
        call(&[&usual[..], &rest].concat())
    }

    pub(crate) fn fence(&self, id: &LockId, fence: Option<u64>) -> TypedCall<Fenced> {
        let args = [Text(id.as_str()), Number(fence.unwrap_or(0)), Number(millis(FENCE_LIFETIME)), self.letter()];
        Call::of_token(&RW_FENCE, Some(id), &self.keys(), &args).into()
    }

    pub(crate) fn extend_and_count(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        self.extend_call(id, lease, "count")
    }

    /// The readers' side of this lock.
    pub(crate) fn shared(&self) -> ReadWrite {
        ReadWrite::new(self.key.clone(), Mode::Joint, self.several)
    }

    /// Like `extend`. The number of waits is 1 if a writer is kept out, else 0.
    pub(crate) fn extend_and_check_writers(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        self.extend_call(id, lease, "check")
    }

    /// Like `extend`. A token that writes is a reader from then on.
    pub(crate) fn downgrade(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        self.extend_call(id, lease, "reserve")
    }
}

/// Splits a holder's name on the servers: whether it writes, and its token.
pub(crate) fn read_holder(name: &str) -> (bool, &str) {
    name.strip_prefix(WRITER).map_or_else(|| (false, name.strip_prefix(READER).unwrap_or(name)), |token| (true, token))
}

/// The arguments without the last one, which says that there are several nodes. With one node it is left out, since
/// each argument costs the server time.
fn of_some<'a, 'b>(args: &'b [Arg<'a>], several: bool) -> &'b [Arg<'a>] {
    args.split_last().filter(|_| !several).map_or(args, |(_, others)| others)
}
