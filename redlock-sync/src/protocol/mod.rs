//! What a kind of lock says to one node, and what the node answers. Pure: nothing is sent from here.
//!
//! An operation is one call of one script. A node executes it in one step, and may execute it twice: the second time changes nothing.
//!
//! | trait | operations | which kinds have it |
//! |---|---|---|
//! | [`Protocol`] | acquire, extend, release, inspect | all |
//! | [`Fencing`] | fence | those whose holders have numbers that rise from one to the next |
//! | [`HandOver`] | extend and count the waits | those with a queue of waits on the node, whose threads hand the lock to each other |
//! | [`Granting`] | unreserve | those whose release gives the lock itself to the first wait |
//! | [`Lending`] | choose the votes that count together | those with numbered slots |
//! | [`Sharing`] | extend and look for waits that are kept out, downgrade | those whose holders can share the lock, or have it alone |
//! | [`Adopt`] | adopt | those that a holder can leave held, for another one that has the token |
//!
//! A [`TypedCall`] carries the type of its reply to the round that sends it. What each node says becomes a [`Vote`](reply::Vote): yes with that type, a
//! definite no, or a failure. The layers above send these calls and count the votes, and name no kind.
//!
//! 1. [`script`]: the scripts that run on the servers (`lua/`), and one call of one of them.
//! 2. [`reply`]: what a node says to a call, in types, and the form in which all scripts answer.
//! 3. Here: the parameters of the operations, and the traits.
//! 4. [`exclusive`], [`rw_lock`], [`semaphore`]: the kinds, one file each.
//! 5. [`latch`]: the calls of a latch, which has no holder and is no `Protocol`. [`queue`]: queues of tasks, and the claim of one of them.
//! 6. [`health`]: questions about a server itself. [`list`]: which of its keys are locks.

pub(crate) mod exclusive;
pub(crate) mod health;
pub(crate) mod latch;
pub(crate) mod list;
pub(crate) mod queue;
pub(crate) mod reply;
pub(crate) mod rw_lock;
pub(crate) mod script;
pub(crate) mod semaphore;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::exclusive::Exclusive;
use self::reply::{Acquired, Extended, Fenced, Holders, Released, Vote};
pub(crate) use self::rw_lock::ReadWrite;
use self::script::{Arg, Call};
use crate::error::Error;
use crate::key::Key;
use crate::observer::LockKind;
use crate::options::{Kind, LockOptions};
use crate::token::LockId;

/// One lock with its settings, ready to be taken.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) options: Arc<LockOptions>,
}

impl Request {
    pub(crate) fn not_cancelled(&self) -> Result<(), Error> {
        self.options.cancel.check("acquire", self.key.as_str())
    }
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

impl AcquireArgs<'_> {
    /// It asks for nothing else.
    fn is_for_lock_alone(&self) -> bool {
        let is_holder = matches!(self.order, Order::Holder);
        self.wait.is_none() && self.fence.is_none() && self.orphans.is_empty() && !is_holder
    }
}

/// What an attempt does with a lock that is free while others wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order<'a> {
    /// Takes it: several nodes can have different queues, which would block each other.
    None,
    /// As that, and goes before all waits: the lease holds the lock on a majority already.
    Holder,
    /// Leaves it: the attempt asks for nothing but the lock, and is told that there is a queue.
    Bare,
    /// Grants it to the first wait whose client listens, by a token with this random part, for so long. Takes it if there is none.
    First { random: &'a str, span: Duration },
}

/// A wait for the lock, as the servers know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a str,
    /// How long the queue lives if it does not get the lock; zero if it leaves the queue.
    pub(crate) stays: Duration,
    /// For how long its thread has waited.
    pub(crate) waited: Duration,
}

/// The parameters of a release.
#[derive(Debug)]
pub(crate) struct ReleaseArgs<'a> {
    /// `None` for a wait that is over: then what was granted to that wait is given up.
    pub(crate) id: Option<&'a LockId>,
    /// The key stays for this long, for a minimum hold; zero gives the lock up now.
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
    /// For the length of the pause, programs that poll the key; the first wait is told to try after it. `pauses` counts this one too.
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
#[derive(Debug, Clone)]
pub(crate) struct TypedCall<R> {
    pub(crate) call: Arc<Call>,
    reply: PhantomData<fn() -> R>,
}

impl<R> From<Arc<Call>> for TypedCall<R> {
    fn from(call: Arc<Call>) -> TypedCall<R> {
        TypedCall { call, reply: PhantomData }
    }
}

impl<R> TypedCall<R> {
    /// Written as `SET NX` where that is enough ([`Call::is_native`]).
    pub(crate) fn native(mut self) -> TypedCall<R> {
        if let Some(call) = Arc::get_mut(&mut self.call) {
            call.is_native = true;
        }
        self
    }
}

/// The operations of one lock on one node that every kind has. Every call is safe to execute twice.
///
/// What only some kinds have is a trait of its own; a kind that has it returns itself from the method.
pub(crate) trait Protocol: Send + Sync + fmt::Debug {
    /// Takes the lock if it is free for the caller.
    fn acquire(&self, args: &AcquireArgs<'_>) -> TypedCall<Acquired>;
    /// Lengthens the lease if this token holds the lock; never shortens it.
    fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;
    /// Gives the lock up if this token holds it.
    fn release(&self, args: &ReleaseArgs<'_>) -> TypedCall<Released>;
    /// Asks for the holders of the lock.
    fn inspect(&self) -> TypedCall<Holders>;

    /// What the lock is to the threads of this process.
    fn kind(&self) -> Kind;

    /// What the lock is to observers.
    fn shown(&self) -> LockKind;

    fn fencing(&self) -> Option<&dyn Fencing> {
        None
    }

    fn handing_over(&self) -> Option<&dyn HandOver> {
        None
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }

    fn adopting(&self) -> Option<&dyn Adopt> {
        None
    }

    fn lending(&self) -> Option<&dyn Lending> {
        None
    }

    /// Waits stand in a queue on the node, which tells them when to try. Waits for a lock of a kind without one poll.
    fn has_queue(&self) -> bool {
        self.handing_over().is_some()
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

/// The lock has numbered slots, and each lease has some of them.
pub(crate) trait Lending {
    /// Yes votes count together if they lent the same slots: voids all but those of the slots that most nodes lent. Returns the protocol of a lease that
    /// has those slots.
    fn choose(&self, votes: &mut [Vote<Acquired>]) -> Arc<dyn Protocol>;
    /// An attempt for which a majority of the nodes would lend the same slots, by what they have lent; none if there are no such slots.
    fn aim(&self, lent: &[Vote<Holders>]) -> Option<Arc<dyn Protocol>>;
    /// The slots of this lease, in ascending order.
    fn slots(&self) -> &[u32];
}

/// Waits stand in a queue on the node, and are told there when it is their turn. Waits for a lock of a kind without it poll.
pub(crate) trait HandOver {
    /// As `extend`, and counts the waits.
    fn extend_and_count(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;

    fn granting(&self) -> Option<&dyn Granting> {
        None
    }
}

/// A release gives the lock itself to the first wait, and leaves it to programs of other libraries from time to time. Of a kind without it a wait that is
/// told makes an attempt.
pub(crate) trait Granting {
    /// Frees what was reserved for a grant of which no wait was told.
    fn unreserve(&self, random: &str) -> TypedCall<Released>;
}

/// Holders can share the lock, or have it alone.
pub(crate) trait Sharing {
    /// The shared side of the lock.
    fn shared(&self) -> Arc<dyn Protocol>;
    /// As `extend`; the number of waits is 1 if one is kept out that wants the lock alone, else 0.
    fn extend_and_look(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;
    /// As `extend`; a token that has the lock alone shares it then.
    fn downgrade(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;
}

/// A lock that a holder has left held can be taken over by its token.
pub(crate) trait Adopt {
    /// Passes the lock to a token, if one of the others holds it.
    fn adopt(&self, id: &LockId, lease: Duration, from: &[LockId], fenced: bool) -> TypedCall<Acquired>;
    /// Passes the lock back from that token, if it holds it.
    fn give_back(&self, id: &LockId, former: &LockId) -> TypedCall<Released>;
}

/// How long a release stays behind a late call at least.
pub(crate) const BEHIND: Duration = Duration::from_secs(1);

/// The kind of lock that is granted by its key in a push.
pub(crate) fn granting(key: Key) -> Arc<dyn Protocol> {
    Arc::new(Exclusive { key })
}

pub(crate) fn text(id: Option<&LockId>) -> Arg<'_> {
    Arg::Text(id.map_or("", LockId::as_str))
}

/// What most calls need, of which the last says whether there are several nodes: on one it is left out, since each argument costs the server something.
fn of_some<'a, 'b>(args: &'b [Arg<'a>], several: bool) -> &'b [Arg<'a>] {
    args.split_last().filter(|_| !several).map_or(args, |(_, others)| others)
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
