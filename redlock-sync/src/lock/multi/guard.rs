//! The guard of several mutexes. The loss of one ends all.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Error;
use crate::inner::ClientInner;
use crate::lease::{Lease, LeaseInner, OnLost, Pending, call_handler, log_end, release_all, revoke};
use crate::lock::mutex::{GuardNoSend, GuardSend, MutexGuard};
use crate::quorum::Quorum;

/// Mutexes that are held, in the order in which they were taken. Released in the reverse order.
pub(super) struct HeldMutexes<M = GuardNoSend> {
    pub(super) guards: Vec<MutexGuard<M>>,
    pub(super) quorum: Arc<Quorum>,
}

impl HeldMutexes {
    fn into_send(mut self) -> HeldMutexes<GuardSend> {
        let guards = std::mem::take(&mut self.guards).into_iter().map(MutexGuard::into_send).collect();
        HeldMutexes { guards, quorum: Arc::clone(&self.quorum) }
    }
}

impl<M> HeldMutexes<M> {
    fn release(&mut self) -> Result<(), Error> {
        let leases: Vec<Lease> = std::mem::take(&mut self.guards).into_iter().rev().map(|guard| guard.lease).collect();
        release_all(&self.quorum, &leases)
    }

    /// Releases the mutexes, for a call that did not get all. When it returns, it holds none of them.
    pub(super) fn roll_back(&mut self) {
        log_end(&self.release());
    }
}

impl<M> Drop for HeldMutexes<M> {
    /// Waits for renewals that are under way, half a node timeout at most for all together.
    fn drop(&mut self) {
        let until = self.quorum.now().after(self.quorum.settings.half_round());
        while let Some(guard) = self.guards.pop() {
            guard.release_detached_within(until.since(self.quorum.now()));
        }
    }
}

/// All keys are held while this lives; dropping it releases them, the last key first.
///
/// **If one key is lost, all are lost:** [`check`](MultiLockGuard::check) is an error from then on, and the other keys
/// are released.
///
/// [`unlock`](MultiLockGuard::unlock) releases all keys in one round trip to each node, and returns what went wrong.
/// The drop does not wait for the servers, like that of a [`MutexGuard`](crate::MutexGuard). The guard cannot leave its
/// thread, unless it is made [sendable](MultiLockGuard::into_send):
///
/// ```compile_fail,E0277
/// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/").unwrap();
/// let guard = locks.multi_lock(["a", "b"]).lock().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "if unused the locks are released at once; `let _ = …` releases them at once too, so bind the guard: `let guard = …`"]
pub struct MultiLockGuard<M = GuardNoSend> {
    /// Dropped before `held`, so that no release counts as a loss.
    tracker: TrackerHandle,
    held: HeldMutexes<M>,
}

impl MultiLockGuard {
    pub(super) fn new(client: &Arc<ClientInner>, held: HeldMutexes) -> MultiLockGuard {
        let leases = held.guards.iter().map(|guard| Arc::downgrade(guard.inner())).collect();
        let pending = Arc::clone(&client.pending);
        let tracker = Arc::new(LossTracker { pending, leases, state: parking_lot::Mutex::default() });
        for guard in &held.guards {
            let tracker = Arc::downgrade(&tracker);
            guard.on_lost(move |error| {
                if let Some(tracker) = tracker.upgrade() {
                    tracker.record_loss(&error);
                }
            });
        }
        MultiLockGuard { tracker: TrackerHandle(tracker), held }
    }

    /// Lets the guard change threads, to be unlocked or used on another one. From then on, a thread that locks one of
    /// the keys again waits for this guard.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).lock()?.into_send();
    /// std::thread::spawn(move || guard.unlock()).join().unwrap()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn into_send(self) -> MultiLockGuard<GuardSend> {
        MultiLockGuard { tracker: self.tracker, held: self.held.into_send() }
    }
}

impl<M> MultiLockGuard<M> {
    /// `Ok` while all keys are certainly held. No I/O: see [`Lease::check`].
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost), with the key that was lost first, from then on
    /// - [`Closed`](Error::Closed) in a forked child
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).lock()?;
    /// guard.check()?;
    /// locks.unlock_all()?;
    /// assert!(guard.check().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.tracker.0.check()?;
        self.leases().try_for_each(Lease::check)
    }

    /// How long all keys are held without a further renewal; zero when one is lost.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).lock()?;
    /// assert!(guard.remaining() > Duration::from_secs(25)); // of 30 s
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.check() {
            Ok(()) => self.leases().map(Lease::remaining).min().unwrap_or_default(),
            Err(_) => Duration::ZERO,
        }
    }

    /// The keys on the server, with the client's prefix, in their order.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["b", "a", "b"]).lock()?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), ["a", "b"]);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.held.guards.iter().map(|guard| guard.key())
    }

    /// The lease of each key, in their order: for [`fencing_token`](Lease::fencing_token) and
    /// [`extend`](Lease::extend). Only [`check`](MultiLockGuard::check) says whether all keys are held.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).lock()?;
    /// for lease in guard.leases() {
    ///     println!("UPDATE … WHERE id = '{}' AND fence <= {}", lease.key(), lease.fencing_token()?);
    /// }
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn leases(&self) -> impl ExactSizeIterator<Item = &Lease> {
        self.held.guards.iter().map(|guard| &**guard)
    }

    /// Calls `handler` once when a key is lost: at once if one is lost already, never for a normal release. As
    /// [`Lease::on_lost`]; the other keys are being released when it is called.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::sync::mpsc;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.multi_lock(["a", "b"]).lock()?;
    /// let (tell, told) = mpsc::channel();
    /// guard.on_lost(move |error| tell.send(error).unwrap());
    /// locks.unlock_all()?;
    /// assert!(told.recv().unwrap().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn on_lost(&self, handler: impl FnOnce(Error) + Send + 'static) {
        self.tracker.0.on_lost(Box::new(handler));
        // Notices a loss that no thread has noticed yet.
        drop(self.check());
    }

    /// Releases all keys, the last one first, and reports how that went: `Ok` once a majority of the nodes confirmed it
    /// for each of them.
    ///
    /// # Errors
    /// [`Lost`](Error::Lost) if one of them was not held any more; else the first error of a key, as for
    /// [`MutexGuard::unlock`]. This guard holds no key after any of these.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// locks.multi_lock(["a", "b"]).lock()?.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn unlock(mut self) -> Result<(), Error> {
        let held = self.check();
        self.tracker.0.end();
        let released = self.held.release();
        held.and(released)
    }
}

impl<M> fmt::Debug for MultiLockGuard<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.leases()).finish()
    }
}

/// The guard's reference to its tracker. Its drop ends the tracking, so that a normal release calls no handler and
/// revokes nothing.
struct TrackerHandle(Arc<LossTracker>);

impl Drop for TrackerHandle {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Makes the loss of one lease the loss of all leases of a guard.
struct LossTracker {
    pending: Arc<Pending>,
    leases: Vec<Weak<LeaseInner>>,
    state: parking_lot::Mutex<LossState>,
}

/// No code of users runs while the state is locked, so a panic in it leaves no state half changed.
impl RefUnwindSafe for LossTracker {}

#[derive(Default)]
struct LossState {
    /// The first loss.
    lost: Option<Error>,
    /// The guard releases its locks, so further losses are ignored.
    has_ended: bool,
    handlers: Vec<OnLost>,
}

impl LossTracker {
    fn check(&self) -> Result<(), Error> {
        self.state.lock().lost.clone().map_or(Ok(()), Err)
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        let handlers = std::mem::take(&mut state.handlers);
        drop(state);
        // Dropped with the state unlocked: the destructors of the handlers are code of users.
        drop(handlers);
    }

    fn on_lost(&self, handler: OnLost) {
        let mut state = self.state.lock();
        match state.lost.clone() {
            None => state.handlers.push(handler),
            Some(error) => {
                drop(state);
                call_handler(handler, error, "a multi-lock");
            }
        }
    }

    /// Records the loss of one lease. Called on the thread that noticed it.
    fn record_loss(self: &Arc<Self>, error: &Error) {
        let mut state = self.state.lock();
        if state.has_ended || state.lost.is_some() {
            return;
        }
        state.lost = Some(error.clone());
        let handlers = std::mem::take(&mut state.handlers);
        drop(state);
        self.release_the_rest();
        for handler in handlers {
            call_handler(handler, error.clone(), "a multi-lock");
        }
    }

    /// Releases the other leases in the background: the thread that noticed the loss may only have called `check`.
    fn release_the_rest(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.pending.quorum.nodes.background().after(Duration::ZERO, move || {
            let held = this.leases.iter().filter_map(Weak::upgrade).collect();
            if let Some(error) = revoke(&this.pending, held).unconfirmed.first() {
                log::warn!("{error}; the call is repeated in the background");
            }
        });
    }
}
