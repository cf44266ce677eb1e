//! What a lock kind tells the layers below: the calls that make it up, on one node.
//!
//! Quorum, lease and waiting know no kind; they send these calls and count the votes. Replies have one shape for all kinds:
//! see [`Vote`](crate::quorum::Vote).

use std::fmt;
use std::time::Duration;

use crate::script::{Arg, Call, Purpose, RELEASE_ALL};
use crate::token::LockId;

/// The parameters of one attempt to take a lock.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) id: &'a LockId,
    pub(crate) lease: Duration,
    /// The fence counter is raised, to this at least: a refill carries the fence of its lease. `None` if no fence is wanted.
    pub(crate) fence: Option<u64>,
    pub(crate) waiter: Option<Waiter<'a>>,
    /// Tokens that nobody holds but that a node may still have.
    pub(crate) tickets: &'a [LockId],
}

impl Attempt<'_> {
    /// Asks for nothing but the lock.
    pub(crate) fn is_bare(&self) -> bool {
        self.fence.is_none() && self.waiter.is_none() && self.tickets.is_empty()
    }
}

/// Somebody who waits for the lock, as the servers know him.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter<'a> {
    pub(crate) id: &'a str,
    /// How long he goes on waiting if he does not get the lock; zero if he leaves.
    pub(crate) stays: Duration,
    pub(crate) was_marked: bool,
}

/// The parameters of a release.
#[derive(Debug)]
pub(crate) struct GiveUp<'a> {
    pub(crate) id: &'a LockId,
    /// The lock runs out after this instead; zero gives it up now.
    pub(crate) keep: Duration,
    /// The id under which the holder waited for it, if he did.
    pub(crate) waiter: Option<&'a str>,
    /// What the next waiter gets; `None` frees the lock.
    pub(crate) grant: Option<Grant<'a>>,
}

/// A lock given to the next waiter by its holder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant<'a> {
    pub(crate) next: &'a LockId,
    /// How long the grant lasts.
    pub(crate) span: Duration,
    /// Server time in ms at which the chain of grants began; 0 if it begins here.
    pub(crate) chain: u64,
    pub(crate) with_fence: bool,
}

/// The operations of one lock on one node. Every call is safe to execute twice.
pub(crate) trait Primitive: Send + Sync + fmt::Debug {
    /// Takes the lock if it is free.
    fn acquire(&self, attempt: &Attempt<'_>) -> Call;
    /// Lengthens the lease, strictly compared.
    fn extend(&self, id: &LockId, lease: Duration) -> Call;
    /// Gives the lock up, strictly compared, if nobody waits for it; a vote [`Held`](crate::quorum::Vote::Held) if somebody does.
    fn free(&self, id: &LockId) -> Call;
    /// Gives the lock up, strictly compared.
    fn release(&self, give_up: &GiveUp<'_>) -> Call;
    /// Raises the fence counter while the lock is held: to `fence` at least, or to the next value.
    fn fence(&self, id: &LockId, fence: Option<u64>) -> Call;
    /// Counts who else waits, while the lock is held.
    fn waiters(&self, id: &LockId, own: Option<&str>) -> Call;
    /// The list on which a release pushes to the next waiter.
    fn wake_list(&self) -> &str;
    /// The keys that [`release_all`] needs: the lock, its wake list, and who waits.
    fn release_keys(&self) -> [&str; 3];
}

/// How long a release stays behind a late call at least.
pub(crate) const BEHIND: Duration = Duration::from_secs(1);

/// One call that gives up many locks, none of which is granted. The reply has a number for each.
pub(crate) fn release_all<'a>(locks: impl Iterator<Item = (&'a dyn Primitive, GiveUp<'a>)>) -> Call {
    let (mut keys, mut args, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for (primitive, GiveUp { id, keep, waiter, .. }) in locks {
        keys.extend(primitive.release_keys());
        args.extend([Arg::Text(id.as_str()), Arg::Number(millis(keep)), Arg::Text(waiter.unwrap_or(""))]);
        longest = longest.max(keep);
    }
    Call::new(&RELEASE_ALL, Purpose::Release, None, longest.max(BEHIND), &keys, &args)
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
