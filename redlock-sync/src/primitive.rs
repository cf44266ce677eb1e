//! What a lock kind tells the layers below: the calls that make it up, on one node.
//!
//! Quorum, lease and waiting know no kind; they send these calls and count the votes. Replies have one shape for all kinds:
//! see [`Vote`](crate::quorum::Vote).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::config::Pauses;
use crate::script::{Arg, Call, Purpose, RELEASE_ALL};
use crate::token::LockId;

/// The parameters of one attempt to take a lock.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) id: &'a LockId,
    pub(crate) lease: Duration,
    /// The fence counter is raised, to this at least: a refill carries the fence of its lease. `None` if no fence is wanted.
    pub(crate) fence: Option<u64>,
    pub(crate) wait: Option<Entry<'a>>,
    pub(crate) order: Order<'a>,
    /// Beginnings of tokens that no lease has but that a node may still have.
    pub(crate) tickets: &'a [LockId],
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
pub(crate) struct GiveUp<'a> {
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
    Others { pause: Duration, pauses: Pauses, several: bool },
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
    pub(crate) pauses: Pauses,
    pub(crate) with_fence: bool,
    pub(crate) several: bool,
}

/// A chain of holders that got the lock from each other: programs that poll the key never saw it free. It ends with a pause in which they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// `None` for a lock that no holder has passed on so far.
    pub(crate) began: Option<Tick>,
    /// The pauses before it.
    pub(crate) pauses: Pauses,
}

impl Chain {
    /// As a push tells it.
    pub(crate) fn told(now: Tick, age: Duration, pauses: Pauses) -> Chain {
        Chain { began: Some(now.before(age)), pauses }
    }

    pub(crate) fn age(&self, now: Tick) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.since(began))
    }
}

/// The operations of one lock on one node. Every call is safe to execute twice.
pub(crate) trait Primitive: Send + Sync + fmt::Debug {
    /// Takes the lock if it is free.
    fn acquire(&self, attempt: &Attempt<'_>) -> Arc<Call>;
    /// Lengthens the lease, strictly compared; counts the waits if that is wanted.
    fn extend(&self, id: &LockId, lease: Duration, counts_waits: bool) -> Arc<Call>;
    /// Gives the lock up, strictly compared.
    fn release(&self, give_up: &GiveUp<'_>) -> Arc<Call>;
    /// Frees what was reserved for a grant of which no wait was told.
    fn unreserve(&self, random: &str) -> Arc<Call>;
    /// Raises the fence counter while the lock is held: to `fence` at least, or to the next value.
    fn fence(&self, id: &LockId, fence: Option<u64>) -> Arc<Call>;
    /// Asks for the holder of the lock.
    fn inspect(&self) -> Arc<Call>;
    /// The keys that [`release_all`] needs: the lock and its queue.
    fn release_keys(&self) -> [&str; 2];
}

/// How long a release stays behind a late call at least.
pub(crate) const BEHIND: Duration = Duration::from_secs(1);

/// One call that gives up many locks, none of which is granted. The reply has a number for each.
pub(crate) fn release_all<'a>(locks: impl Iterator<Item = (&'a dyn Primitive, GiveUp<'a>)>) -> Arc<Call> {
    let (mut keys, mut args, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for (primitive, GiveUp { id, keep, wait, .. }) in locks {
        keys.extend(primitive.release_keys());
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
