//! The lease: what a guard holds, and the thread that renews it.
//!
//! 1. [`expiry`]: which nodes have our token, and until when a majority surely has it. Pure.
//! 2. [`state`]: held, suspended, lost, released, and the transitions between them.
//! 3. [`release_votes`]: what the votes of a release mean. Pure.
//! 4. [`inner`]: the rounds of a lease: extend, fence, release, and the hand-over to the next thread. The guard and its
//!    renewal thread share it.
//! 5. [`renewal`]: the renewal threads. No other file starts one.
//! 6. [`observed`]: the events that observers get.
//! 7. [`release_all`]: the end of several leases in one round trip.
//! 8. [`dropped`]: the release of a dropped guard, which does not wait.
//! 9. [`Lease`], in this file: what users see, and the one way in which a lease ends.

mod dropped;
pub(crate) mod expiry;
mod inner;
mod observed;
mod release_all;
mod release_votes;
mod renewal;
mod state;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

pub(crate) use self::dropped::log_end;
pub(crate) use self::inner::{GivenUp, LeaseInner, LeaseStart, Pending, PendingRelease, call_handler};
pub(crate) use self::release_all::{notify_losses, release_all, release_revoked, revoke};
pub use self::state::LeaseState;
pub(crate) use self::state::OnLost;

use self::renewal::{RenewalThread, Renewer};
use crate::clock::Tick;
use crate::error::Error;
use crate::fork::ForkGuard;
use crate::handover::sharing::SharedLease;
use crate::handover::thread_queue::{QueueHead, ThreadQueues};
use crate::options::{Mode, check_lease};
use crate::protocol::TypedCall;
use crate::protocol::reply::Reply;
use crate::quorum::Ballot;
use crate::token::LockId;

/// A lock that is held for a time and renewed. The guard of each single lock derefs to its lease. The guard of a
/// [`MultiLock`](crate::MultiLock) has a lease for [each key](crate::MultiLockGuard::leases).
///
/// Each lease has a renewal thread, which renews the lease each time a third of it has passed. Once a second, one of
/// these threads asks the servers whether they still have the locks of the client. The methods of a lease say whether
/// the lock is still held, and return the fencing token for the protected resource. Threads that read by a
/// [`RwLock`](crate::RwLock) can share one lease on the servers, and each has its own `Lease`. `Lease` is `Send` and
/// `Sync`, so the holder can lend `&Lease` to a thread that works for it. It is not `Clone`.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Lease, Redlock};
///
/// fn write(lease: &Lease) -> Result<(), redlock_sync::Error> {
///     lease.check()?; // still held
///     println!("UPDATE … WHERE fence <= {}", lease.fencing_token()?);
///     Ok(())
/// }
///
/// let locks = Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").lock()?;
/// write(&guard)?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
pub struct Lease {
    inner: Arc<LeaseInner>,
    renewal: Arc<RenewalThread>,
    leases: Arc<Leases>,
    /// The number of the thread that holds this lease. Set once this lease has a handler of a loss.
    holder: OnceLock<u64>,
    /// When this thread got the lease, and when its call for it began.
    pub(crate) taken: Tick,
    wanted: Option<Tick>,
    is_finished: AtomicBool,
}

/// No code of users runs under a lock of a lease.
impl RefUnwindSafe for Lease {}
impl UnwindSafe for Lease {}

impl Lease {
    fn of(inner: Arc<LeaseInner>, renewal: Arc<RenewalThread>, leases: Arc<Leases>, taken: Tick) -> Lease {
        let (holder, is_finished) = (OnceLock::new(), AtomicBool::new(false));
        Lease { inner, renewal, leases, holder, taken, wanted: None, is_finished }
    }

    /// Lets threads of this process join the lease, and the next thread in the queue move up.
    pub(crate) fn share(&self, head: QueueHead<Lease>) {
        let kind = self.inner.protocol().kind();
        if !self.inner.options.is_plain() || kind.mode != Mode::Joint {
            return;
        }
        let inner = Arc::clone(&self.inner);
        let renewal = Arc::clone(&self.renewal);
        let leases = Arc::clone(&self.leases);
        let options = Arc::clone(&inner.options);
        let gate = Arc::clone(&inner.gate);
        let another = move |now| Lease::of(Arc::clone(&inner), Arc::clone(&renewal), Arc::clone(&leases), now);
        head.share(SharedLease::new(kind, options, gate, Box::new(another)));
    }

    /// Shares a lock that this thread held exclusively.
    pub(crate) fn downgrade(&self) -> Result<(), Error> {
        let outcome = self.inner.downgrade();
        self.inner.notify_loss();
        outcome?;
        if let Some(head) = self.inner.take_head() {
            self.share(head);
        }
        Ok(())
    }

    /// Returns `Ok` while, as far as this process knows, the lock is held. No I/O: it compares the end of the lease
    /// with a clock that goes on while the machine sleeps. So it is right even if the renewal thread got no
    /// processor time. If the servers lose the key early, the client finds that [about a second later][look], and then
    /// this is `Lost`. [`extend`](Lease::extend) finds it at once.
    ///
    /// Call it before each step that must not happen without the lock. The process can still be paused between the call
    /// and the step. Only [`fencing_token`](Lease::fencing_token) helps against that.
    ///
    /// [look]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#is-the-lock-still-held
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) once the lease has run out or a loss is known, and from then on
    /// - [`Closed`](Error::Closed) in a forked child, whose copy of a guard holds nothing
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// for _step in 0..3 {
    ///     guard.check()?;
    /// }
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Returns for how long the lock is held without a further renewal; zero if it is lost.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert!(guard.remaining() > Duration::from_secs(25)); // of 30 s
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Returns the state: held, suspended (a renewal failed, and the lease still runs), lost or released. No I/O.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert_eq!(guard.state(), redlock_sync::LeaseState::Held);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.inner.state()
    }

    /// Returns a number that is strictly greater for every later holder of this lock. Give it to the protected resource
    /// with each write, and let the resource refuse a number that is smaller than the largest it has seen. Nothing else
    /// protects against a holder that was paused and does not know yet that it lost the lock. See Kleppmann, [How to do
    /// distributed locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html), 2016.
    ///
    /// The number is the server's time in microseconds or the last number plus one, whichever is larger. It is always
    /// below 2^53. The first call for a lock makes a round trip. On several nodes it makes two, and a majority then
    /// stores the number. Later calls return the same number, also after renewals and re-entry.
    ///
    /// With [`fenced(true)`](crate::Mutex::fenced) the acquire brings the number along. Then the first call costs
    /// nothing on one node, and one round trip on several. If another thread of this client handed the lock on, the
    /// lock has a new number, which costs a round trip.
    ///
    /// The servers keep the last number until 20 minutes after their clocks have passed it. So numbers rise even if a
    /// server's clock is set back. While the number is kept, that may be by any amount, and afterwards by up to 20
    /// minutes. If the last number is lost, as in a failover, and the server's clock is behind it, [a number can be
    /// smaller][falls].
    ///
    /// [falls]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/faq.md#does-a-fence-rise-after-a-loss-of-data
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if the lock is not held any more
    /// - [`Unavailable`](Error::Unavailable) if no majority confirmed it. The lock is held for as long as before. Call
    ///   again
    /// - [`WrongType`](Error::WrongType) if the key holds something that is no lock
    /// - [`Config`](Error::Config) if a server refuses the call (a missing permission, a master that became a replica).
    ///   The lock may still be held
    /// - [`Closed`](Error::Closed) in a forked child
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let first = locks.mutex("order:42").lock()?.fencing_token()?;
    /// let second = locks.mutex("order:42").lock()?.fencing_token()?;
    /// assert!(second > first);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn fencing_token(&self) -> Result<u64, Error> {
        let outcome = self.inner.fencing_token();
        self.inner.notify_loss();
        outcome
    }

    /// Makes the lease last for at least `lease` from now, by one request to each server. It never shortens the lease,
    /// and never extends it beyond `max_hold`. Use it before a step that cannot be undone, since it asks the servers.
    /// Use it also with `renew(false)`, or before a step during which this process may get no processor time. Renewal
    /// goes on as before.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if it is not held any more
    /// - [`Unavailable`](Error::Unavailable) if no majority confirmed: the lock is held as long as before
    /// - [`WrongType`](Error::WrongType) if the key holds something that is no lock
    /// - [`Config`](Error::Config) for a length outside 10 ms to 24 h or too short for the node timeout, or if a server
    ///   refuses the call. The lock is held as long as before
    /// - [`Closed`](Error::Closed) in a forked child
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").renew(false).lock()?;
    /// guard.extend(Duration::from_secs(60))?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        check_lease("lease", lease, &self.inner.quorum.settings)?;
        let outcome = self.inner.extend(lease);
        self.inner.notify_loss();
        outcome
    }

    /// Calls `handler` once when the lock is lost. If it is lost already, the call comes at once. A normal release
    /// calls no handler. The handler runs on the renewal thread, or on the thread of a holder whose call noticed the
    /// loss first, so keep it short. If it panics, the panic is caught and logged. Several handlers are called in the
    /// order in which they were added.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::sync::mpsc;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// let (tell, told) = mpsc::channel();
    /// guard.on_lost(move |error| tell.send(error).unwrap());
    /// locks.unlock_all()?;
    /// assert!(told.recv().unwrap().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn on_lost(&self, handler: impl FnOnce(Error) + Send + 'static) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let holder = *self.holder.get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed));
        self.inner.on_lost(holder, Box::new(handler));
    }

    /// The lock's key on the server, with the client's prefix.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::builder().node(&url).key_prefix("Lock:").build()?;
    /// assert_eq!(locks.mutex("order:42").lock()?.key(), "Lock:order:42");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        self.inner.key.as_str()
    }

    /// The unique token of this acquisition, as it stands on the server.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let order = locks.mutex("order:42");
    /// let guard = order.lock()?;
    /// assert_eq!(&order.inspect()?[0].id, guard.id());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> &LockId {
        &self.inner.id
    }

    /// True once the user has ended it.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with `prepare_end` and `leave_held`.
        self.is_finished.load(Ordering::Acquire)
    }

    pub(crate) fn inner(&self) -> &Arc<LeaseInner> {
        &self.inner
    }

    /// The end of a lease, for `unlock()` and for `Drop`: ends renewal and releases the lock, once.
    pub(crate) fn release(&self) -> Result<(), Error> {
        let began = self.inner.quorum.now();
        let grace = self.inner.quorum.settings.two_rounds();
        self.prepare_end(began).unwrap_or_else(|| {
            let _unanswered = self.leases.pending.count_unanswered();
            self.stop_renewals(began);
            self.released(began, self.inner.release(grace, &self.leases.pending))
        })
    }

    /// Like [`release`](Lease::release), with another call behind the release, in one packet. Its ballot is `None` if
    /// nothing was sent, since the lease was over.
    pub(crate) fn release_and<R: Reply>(&self, then: &TypedCall<R>) -> (Result<(), Error>, Option<Ballot<R>>) {
        let began = self.inner.quorum.now();
        let grace = self.inner.quorum.settings.two_rounds();
        if let Some(result) = self.prepare_end(began) {
            return (result, None);
        }
        let _unanswered = self.leases.pending.count_unanswered();
        self.stop_renewals(began);
        let (outcome, ballot) = self.inner.release_and(then, grace);
        (self.released(began, self.inner.end_release(outcome, &self.leases.pending)), ballot)
    }

    /// Ends the hold of this thread. Returns the result if no release is needed. That is if the lease is over already,
    /// other threads still share it, or the next thread in the queue has got it.
    fn prepare_end(&self, began: Tick) -> Option<Result<(), Error>> {
        // Pairs with `is_over` and `leave_held`. Of two threads that end the lease, one gets `false` here, and goes on.
        if self.is_finished.swap(true, Ordering::AcqRel) {
            return Some(Ok(()));
        }
        if self.inner.process.is_forked_child() {
            return Some(Err(Error::Closed));
        }
        let result = self.give_up_share(began)?;
        self.notify_end(began, &result);
        Some(result)
    }

    fn give_up_share(&self, began: Tick) -> Option<Result<(), Error>> {
        let is_joint = self.inner.protocol().kind().mode == Mode::Joint;
        // Checked before this thread leaves: after that, the last thread may end the lease at any time.
        let held = if is_joint { self.inner.check_at_leave(began, self.holder.get().is_some()) } else { Ok(()) };
        // Taken before this thread leaves, for the same reason: the last thread removes the handlers of all.
        let handlers = self.holder.get().filter(|_| is_joint).map(|holder| self.inner.take_handlers(*holder));
        if !self.inner.gate.leave() {
            // If the loss handlers of this thread were called since the check, its hold has ended by that loss.
            let is_told = handlers.is_some_and(|handlers| handlers.is_empty());
            return Some(if is_told { self.inner.check() } else { held });
        }
        // Put back before the release. If a loss comes in between, the handlers are called after the release.
        self.inner.restore_handlers(handlers.unwrap_or_default());
        if self.pass_on() {
            return Some(Ok(()));
        }
        if is_joint {
            self.leases.queues.unshare(self.inner.key.name());
        }
        None
    }

    /// Ends the renewals, just before the release. Until then, a lease that waits for the release of others stays held.
    fn stop_renewals(&self, began: Tick) {
        self.leases.renewer.retire(&self.renewal, began);
    }

    /// Everything after the release.
    fn released(&self, began: Tick, result: Result<(), Error>) -> Result<(), Error> {
        self.notify_end(began, &result);
        result
    }

    /// Ends the lease and leaves the lock held, for a holder that adopts its token. With several nodes the call is
    /// refused, and the lease goes on.
    pub(crate) fn leave_held(&self) -> Result<(), Error> {
        let what = format!("leave lock `{}` to another holder", self.inner.key);
        self.inner.quorum.needs_one_server(&what, "keep the guard in one process")?;
        let grace = self.inner.quorum.settings.two_rounds();
        let outcome = self.inner.leave_held(grace, &self.leases.pending);
        self.inner.notify_loss();
        outcome?;
        // Pairs with `is_over`, and with `prepare_end`: no later end of this lease releases the lock.
        self.is_finished.store(true, Ordering::Release);
        let now = self.inner.quorum.now();
        self.stop_renewals(now);
        self.notify_end(now, &Ok(()));
        Ok(())
    }

    /// Gives the lock and its renewal thread to the next thread in the queue. False if the lock has to be released.
    fn pass_on(&self) -> bool {
        let Some((successor, thread)) = self.inner.pass_on() else { return false };
        let inner = Arc::new(successor);
        // Registered here, and not when that thread runs: `unlock_all` has to find the lock in between too. It can miss
        // the lock only between `LeaseInner::pass_on` and this line.
        self.leases.renewer.transfer(&self.renewal, Arc::clone(&inner));
        let now = inner.quorum.now();
        thread.hand_over(Lease::of(inner, Arc::clone(&self.renewal), Arc::clone(&self.leases), now));
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !*self.is_finished.get_mut() {
            self.release_detached();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// What all leases of a client share. It lives as long as one of them.
#[derive(Debug)]
pub(crate) struct Leases {
    queues: Arc<ThreadQueues<Lease>>,
    pub(crate) renewer: Arc<Renewer>,
    pending: Arc<Pending>,
    fork: ForkGuard,
}

impl Leases {
    pub(crate) fn new(queues: &Arc<ThreadQueues<Lease>>, pending: &Arc<Pending>) -> Arc<Leases> {
        Arc::new(Leases {
            queues: Arc::clone(queues),
            renewer: Renewer::new(Arc::clone(&pending.quorum.clock)),
            pending: Arc::clone(pending),
            fork: ForkGuard::new(),
        })
    }

    /// Gives a held lock its renewal thread. If no thread can be started, the lock is released.
    pub(crate) fn hold(self: &Arc<Self>, inner: &Arc<LeaseInner>) -> io::Result<Lease> {
        let renewal = self.renewer.assign(inner).inspect_err(|_| {
            drop(inner.release(inner.quorum.settings.node_timeout, &self.pending));
        })?;
        Ok(Lease::of(Arc::clone(inner), renewal, Arc::clone(self), inner.quorum.now()))
    }

    /// The live leases, for `unlock_all` and `shutdown`.
    pub(crate) fn live(&self) -> Vec<Arc<LeaseInner>> {
        self.renewer.live()
    }

    /// Sends releases again, for an attempt that found the lock held by tokens that `is_holder` selects. It does not
    /// wait for the replies. True if one was sent.
    ///
    /// The tokens are pending ones of the key, or of dropped guards whose releases are not answered. Such a release
    /// usually reaches the server before the attempt. It does not if its connection broke, or is blocked while another
    /// connection is not.
    pub(crate) fn release_again(&self, key: &Arc<str>, is_holder: impl Fn(&LockId) -> bool) -> bool {
        let live = self.live();
        let dropped = live.iter().filter(|inner| is_holder(&inner.id) && inner.repeat_release());
        let dropped: Vec<_> = dropped.map(LeaseInner::pending_release).collect();
        self.pending.release_again(key, is_holder, dropped)
    }
}

impl Drop for Leases {
    /// The last handle and the last guard of a client are gone. Releases of dropped guards have to reach the servers
    /// before the connections are closed.
    fn drop(&mut self) {
        if !self.fork.is_forked_child() {
            self.pending.finish();
        }
    }
}
