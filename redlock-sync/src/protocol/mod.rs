//! What a kind of lock says to one node, and what the node answers. Pure: nothing is sent from here.
//!
//! 1. [`script`]: the scripts that run on the servers, and one call of one of them.
//! 2. [`reply`]: what a node says to a call, in types.
//! 3. [`Protocol`], here: the operations that every kind has, and what only some have.
//! 4. [`exclusive`]: the kinds, one file each. [`queue`]: queues of tasks, and the claim of one of them.
//!
//! Quorum, lease, hand-over and acquire know no kind: they send these calls and count the votes.

pub(crate) mod exclusive;
pub(crate) mod queue;
pub(crate) mod reply;
pub(crate) mod script;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::exclusive::Exclusive;
use self::reply::{Acquired, Extended, Fenced, Holders, Released};
use self::script::{Arg, Call, Purpose, RELEASE_ALL};
use crate::key::Key;
use crate::options::{Kind, LockOptions};
use crate::token::LockId;

/// One lock with its settings, ready to be taken.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) options: LockOptions,
}

/// The parameters of one attempt to take a lock.
#[derive(Debug)]
pub(crate) struct AcquireArgs<'a> {
    pub(crate) id: &'a LockId,
    pub(crate) lease: Duration,
    /// The fence counter is raised, to this at least: a refill carries the fence of its lease. `None` if no fence is wanted.
    pub(crate) fence: Option<u64>,
    pub(crate) wait: Option<Entry<'a>>,
    pub(crate) order: Order<'a>,
    /// Beginnings of tokens that no lease has but that a node may still have.
    pub(crate) orphans: &'a [LockId],
}

/// What an attempt makes of a lock that is free while others wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order<'a> {
    /// Several nodes, which can have different queues: takes it.
    None,
    /// Asks for nothing but the lock, and is told if there is a queue.
    Bare,
    /// Grants it to the first wait whose client listens.
    First { random: &'a str, span: Duration },
}

/// A wait for the lock, as the servers know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a str,
    /// How long the queue lives if it does not get the lock; zero if it leaves the queue.
    pub(crate) stays: Duration,
}

/// The parameters of a release.
#[derive(Debug)]
pub(crate) struct ReleaseArgs<'a> {
    /// None to leave a wait: then it is for what was granted to that.
    pub(crate) id: Option<&'a LockId>,
    /// The lock runs out after this instead; zero gives it up now.
    pub(crate) keep: Duration,
    /// The holder's own wait, where it may still be in a queue.
    pub(crate) wait: Option<&'a str>,
    pub(crate) next: Next<'a>,
}

/// Which attempt or wait gets a lock that is given up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next<'a> {
    /// Any attempt; the first wait is told to try at once.
    Anybody,
    /// For so long, programs that poll the key; the first wait is told to try after that. The pauses, this one included.
    Others { pause: Duration, pauses: u64, several: bool },
    /// The first wait.
    First(Grant<'a>),
}

/// A lock given to the next wait by its holder.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Grant<'a> {
    pub(crate) random: &'a str,
    /// How long the grant lasts.
    pub(crate) span: Duration,
    /// How long the lock has gone from hand to hand, and how many pauses there were before.
    pub(crate) age: Duration,
    pub(crate) pauses: u64,
    pub(crate) with_fence: bool,
    pub(crate) several: bool,
}

/// A call that asks for an `R`.
#[derive(Debug)]
pub(crate) struct TypedCall<R> {
    pub(crate) call: Arc<Call>,
    reply: PhantomData<fn() -> R>,
}

impl<R> From<Arc<Call>> for TypedCall<R> {
    fn from(call: Arc<Call>) -> TypedCall<R> {
        TypedCall { call, reply: PhantomData }
    }
}

/// The operations of one lock on one node, which every kind has. Every call is safe to execute twice.
///
/// What only some kinds have is a trait of its own, which a kind returns from the method of that name.
pub(crate) trait Protocol: Send + Sync + fmt::Debug {
    /// Takes the lock if it is free for the caller.
    fn acquire(&self, args: &AcquireArgs<'_>) -> TypedCall<Acquired>;
    /// Lengthens the lease, strictly compared.
    fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;
    /// Gives the lock up, strictly compared.
    fn release(&self, args: &ReleaseArgs<'_>) -> TypedCall<Released>;
    /// Asks for the holders of the lock.
    fn inspect(&self) -> TypedCall<Holders>;

    fn kind(&self) -> Kind;

    fn fencing(&self) -> Option<&dyn Fencing> {
        None
    }

    fn handing_over(&self) -> Option<&dyn HandOver> {
        None
    }

    /// A release that the server accepts is a success even if it comes after the lease's end: the server accepts none once there was another holder.
    fn may_end_late(&self) -> bool {
        false
    }
}

/// Holders have numbers that rise from one to the next.
pub(crate) trait Fencing {
    /// Raises the counter while the lock is held: to `fence` at least, or to the next value.
    fn fence(&self, id: &LockId, fence: Option<u64>) -> TypedCall<Fenced>;
}

/// Waits stand in a queue on the node, and a release grants the lock to the first of them. Waits for a lock of a kind without it poll.
pub(crate) trait HandOver {
    /// As `extend`, and counts the waits.
    fn extend_and_count(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;
    /// Frees what was reserved for a grant of which no wait was told.
    fn unreserve(&self, random: &str) -> TypedCall<Released>;
    /// The keys that [`release_all`] needs: the lock and its queue.
    fn release_keys(&self) -> [&str; 2];
}

/// How long a release stays behind a late call at least.
pub(crate) const BEHIND: Duration = Duration::from_secs(1);

/// One call that gives up many locks, none of which is granted. The reply has a number for each.
pub(crate) fn release_all<'a>(locks: impl Iterator<Item = (&'a dyn HandOver, ReleaseArgs<'a>)>) -> Arc<Call> {
    let (mut keys, mut args, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for (lock, ReleaseArgs { id, keep, wait, .. }) in locks {
        keys.extend(lock.release_keys());
        args.extend([text(id), Arg::Number(millis(keep)), Arg::Text(wait.unwrap_or(""))]);
        longest = longest.max(keep);
    }
    Call::new(&RELEASE_ALL, Purpose::Release, None, longest.max(BEHIND), &keys, &args)
}

pub(crate) fn text(id: Option<&LockId>) -> Arg<'_> {
    Arg::Text(id.map_or("", LockId::as_str))
}

/// Whole milliseconds for the server, rounded up: never a zero for a time that is not.
pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_up() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_secs(30)), 30_000);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
