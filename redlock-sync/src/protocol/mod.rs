//! The calls of a kind of lock to one node, and the node's answers. Pure: nothing is sent from here.
//!
//! An operation is one call of one script. A node executes it in one step, and may execute it twice: the second time
//! changes nothing.
//!
//! The set of kinds is closed: [`Protocol`] has a variant for each. All kinds acquire, extend, release and inspect.
//! Some kinds have more operations, which are an `Option`. A lease only needs [`LeaseCalls`]: those of a lock, or those
//! of the claim of a task.
//!
//! | operations | kinds |
//! |---|---|
//! | extend and count the waits | mutex, read-write lock: threads of a process hand the lock to each other |
//! | unreserve, adopt | mutex: a release grants the lock to the first wait, and a holder can leave it held |
//! | choose, with common slots | semaphore |
//! | shared, extend and check writers, downgrade | read-write lock |
//!
//! A [`TypedCall`] carries the type of its reply to the round that sends it. The answer of each node becomes a
//! [`Vote`](reply::Vote): yes with that type, a definite no, or a failure. The layers above send these calls, and count
//! the votes. For what only some kinds can do, they ask [`Protocol`].
//!
//! 1. [`script`]: the scripts that run on the servers (`lua/`), and one call of one of them.
//! 2. [`reply`]: typed replies of a node, and the form in which all scripts answer.
//! 3. This file: the parameters of the operations, and [`Protocol`].
//! 4. [`exclusive`], [`read_write`], [`permits`]: the kinds, one file each. [`task_queue`]: queues of tasks, and the
//!    claim of a task. [`task_replies`]: their replies.
//! 5. [`latch_calls`]: the calls of a latch, which has no holder and is no `Protocol`.
//! 6. [`list`]: which keys of a server are locks. [`held`]: which tokens a node has lost.

pub(crate) mod exclusive;
pub(crate) mod held;
pub(crate) mod latch_calls;
pub(crate) mod list;
pub(crate) mod permits;
pub(crate) mod read_write;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod task_queue;
pub(crate) mod task_replies;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::exclusive::Exclusive;
use self::exclusive::MUTEX;
use self::permits::{Permits, SEMAPHORE};
pub(crate) use self::read_write::ReadWrite;
use self::reply::{Acquired, Extended, Fenced, Holders, Released};
use self::script::{Arg, Call, INSPECT, RW_INSPECT, SEMAPHORE_INSPECT};
use crate::error::Error;
use crate::key::Key;
use crate::observer::LockKind;
use crate::options::{FENCE_LIFETIME, Kind, LockOptions, Mode};
use crate::token::LockId;

/// One lock with its settings, ready to be acquired.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) protocol: Arc<Protocol>,
    pub(crate) options: Arc<LockOptions>,
}

impl Request {
    pub(crate) fn not_cancelled(&self) -> Result<(), Error> {
        self.options.cancel.check("acquire", self.key.as_str())
    }
}

/// The parameters of one attempt to acquire a lock.
#[derive(Debug)]
pub(crate) struct AcquireArgs<'a> {
    pub(crate) id: &'a LockId,
    pub(crate) lease: Duration,
    /// The attempt raises the fence counter to this value at least. Zero asks for the next value. A refill carries the
    /// fence of its lease. `None`: no fence is wanted.
    pub(crate) fence: Option<u64>,
    pub(crate) wait: Option<WaitArgs<'a>>,
    pub(crate) policy: QueuePolicy,
    /// What a mutex is taken over from: the random part of a grant, or a value without a time-to-live (`acquire.lua`).
    pub(crate) take_over: &'a [LockId],
}

impl AcquireArgs<'_> {
    /// True if the attempt enters no wait, wants no fence, and takes nothing over. Then the call of the fast path does
    /// the same, unless the attempt is of a holder.
    fn is_fast_path(&self) -> bool {
        self.wait.is_none() && self.fence.is_none() && self.take_over.is_empty()
    }

    /// Four arguments that the scripts of all kinds have: the wait, how long its queue lives, the fence, and how long
    /// the counter lives.
    fn wait_and_fence<'b>(&self, wait: &'b str) -> [Arg<'b>; 4] {
        let stays = self.wait.map_or(0, |wait| millis(wait.stays));
        let fence = self.fence.map_or(Arg::Text("-1"), Arg::Number);
        [Arg::Text(wait), Arg::Number(stays), fence, Arg::Number(millis(FENCE_LIFETIME))]
    }
}

/// What an attempt does if the lock is free while others wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QueuePolicy {
    /// Takes the lock. With several nodes the queues can differ, and would block each other.
    None,
    /// Takes the lock, and goes before all waits: the lease already holds the lock on a majority.
    Holder,
    /// Leaves the lock, and only reports that there is a queue. The attempt asks for nothing but the lock.
    FastPath,
    /// Grants the lock to the first wait whose client listens, with this lease. Takes the lock if there is no such
    /// wait.
    First { lease: Duration },
}

/// A wait for the lock, as the servers know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitArgs<'a> {
    pub(crate) id: &'a str,
    /// How long the queue lives if the attempt does not get the lock; zero if the wait leaves the queue.
    pub(crate) stays: Duration,
}

/// The parameters of a release.
#[derive(Debug)]
pub(crate) struct ReleaseArgs<'a> {
    /// The token. `None` for a wait that is over: then what was granted to that wait is released.
    pub(crate) id: Option<&'a LockId>,
    /// How long the key stays, for a minimum hold; zero releases the lock now.
    pub(crate) keep: Duration,
    /// The holder's own wait, if it may still be in a queue.
    pub(crate) wait: Option<&'a str>,
    pub(crate) next: Next,
}

/// Which attempt or wait gets a lock that is released.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    /// Any attempt. The first wait is notified to try at once.
    Anybody,
    /// The first wait; or foreign clients, if a pause is due.
    First(Grant),
}

/// A lock that its holder grants to the next wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    /// The lease of the grant. With several nodes: how long each of them reserves the key for the wait.
    pub(crate) lease: Duration,
    pub(crate) with_fence: bool,
    pub(crate) several: bool,
    /// Threads of this process wait for the lock too.
    pub(crate) threads_wait: bool,
}

/// A call whose reply is an `R`.
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
    /// Sends the call as `SET NX` where that does the same ([`Call::set_nx`]).
    pub(crate) fn into_set_nx(mut self, lease: Duration) -> TypedCall<R> {
        if let Some(call) = Arc::get_mut(&mut self.call) {
            // For as long as the script would set it.
            call.set_nx = Some(Duration::from_millis(millis(lease)));
        }
        self
    }
}

/// The calls by which a lease is kept and ended. Every call is safe to execute twice.
pub(crate) trait LeaseCalls: fmt::Debug + Send + Sync {
    /// Extends the lease if this token has it; never shortens it.
    fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended>;

    /// Ends the lease if this token has it.
    fn release(&self, args: &ReleaseArgs<'_>) -> TypedCall<Released>;

    /// The kind, to the threads of this process.
    fn kind(&self) -> Kind;

    /// The lock. `None` for the claim of a task.
    fn lock(&self) -> Option<&Protocol>;

    /// True if a release may succeed after the end of the lease. The server accepts it only if there was no other
    /// holder since.
    fn may_end_late(&self) -> bool;
}

/// The operations of one lock on one node. Every call is safe to execute twice.
#[derive(Debug, Clone)]
pub(crate) enum Protocol {
    Mutex(Exclusive),
    ReadWrite(ReadWrite),
    Semaphore(Permits),
}

impl LeaseCalls for Protocol {
    fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        match self {
            Protocol::Mutex(lock) => lock.extend(id, lease),
            Protocol::ReadWrite(lock) => lock.extend(id, lease),
            Protocol::Semaphore(lock) => lock.extend(id, lease),
        }
    }

    fn release(&self, args: &ReleaseArgs<'_>) -> TypedCall<Released> {
        match self {
            Protocol::Mutex(lock) => lock.release(args),
            Protocol::ReadWrite(lock) => lock.release(args),
            Protocol::Semaphore(lock) => lock.release(args),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Protocol::Mutex(_) => MUTEX,
            Protocol::ReadWrite(lock) => lock.kind(),
            Protocol::Semaphore(_) => SEMAPHORE,
        }
    }

    fn lock(&self) -> Option<&Protocol> {
        Some(self)
    }

    fn may_end_late(&self) -> bool {
        false
    }
}

impl Protocol {
    /// Acquires the lock if it is free for the caller.
    pub(crate) fn acquire(&self, args: &AcquireArgs<'_>) -> TypedCall<Acquired> {
        match self {
            Protocol::Mutex(lock) => lock.acquire(args),
            Protocol::ReadWrite(lock) => lock.acquire(args),
            Protocol::Semaphore(lock) => lock.acquire(args),
        }
    }

    /// Asks for the holders of the lock.
    pub(crate) fn inspect(&self) -> TypedCall<Holders> {
        let (script, key) = match self {
            Protocol::Mutex(lock) => (&INSPECT, &lock.key),
            Protocol::ReadWrite(lock) => (&RW_INSPECT, &lock.key),
            Protocol::Semaphore(lock) => (&SEMAPHORE_INSPECT, &lock.key),
        };
        Call::new(script, &[key.as_str()], &[]).into()
    }

    /// The kind of the lock, to observers.
    pub(crate) fn shown(&self) -> LockKind {
        match self {
            Protocol::Mutex(_) => LockKind::Mutex,
            Protocol::ReadWrite(lock) if lock.kind().mode == Mode::Exclusive => LockKind::Write,
            Protocol::ReadWrite(_) => LockKind::Read,
            Protocol::Semaphore(_) => LockKind::Semaphore,
        }
    }

    /// Raises the fence counter while the lock is held: to `fence` at least, or to the next value.
    pub(crate) fn fence(&self, id: &LockId, fence: Option<u64>) -> TypedCall<Fenced> {
        match self {
            Protocol::Mutex(lock) => lock.fence(id, fence),
            Protocol::ReadWrite(lock) => lock.fence(id, fence),
            Protocol::Semaphore(lock) => lock.fence(id, fence),
        }
    }

    /// Like `extend`, and counts the waits.
    pub(crate) fn extend_and_count(&self, id: &LockId, lease: Duration) -> Option<TypedCall<Extended>> {
        match self {
            Protocol::Mutex(lock) => Some(lock.extend_and_count(id, lease)),
            Protocol::ReadWrite(lock) => Some(lock.extend_and_count(id, lease)),
            Protocol::Semaphore(_) => None,
        }
    }

    /// The mutex. Its release grants the lock to the first wait, and from time to time leaves it to foreign clients. A
    /// wait for a lock of another kind is only notified to make an attempt.
    pub(crate) fn mutex(&self) -> Option<&Exclusive> {
        if let Protocol::Mutex(lock) = self { Some(lock) } else { None }
    }

    pub(crate) fn read_write(&self) -> Option<&ReadWrite> {
        if let Protocol::ReadWrite(lock) = self { Some(lock) } else { None }
    }

    pub(crate) fn semaphore(&self) -> Option<&Permits> {
        if let Protocol::Semaphore(lock) = self { Some(lock) } else { None }
    }
}

pub(crate) fn text(id: Option<&LockId>) -> Arg<'_> {
    Arg::Text(id.map_or("", LockId::as_str))
}

/// Whole milliseconds, rounded up: never zero for a time that is not zero.
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

    /// The client counts the whole lease, so no key may end before.
    #[test]
    fn set_nx_asks_for_as_long_as_the_script() {
        let call = Call::new(&script::ACQUIRE, &["k"], &[]);
        let call = TypedCall::<Acquired>::from(call).into_set_nx(Duration::from_micros(1_500));
        assert_eq!(call.call.set_nx, Some(Duration::from_millis(2)));
    }
}
