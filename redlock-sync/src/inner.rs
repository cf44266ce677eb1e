//! The state that all locks of a client share, from its creation to its end.

use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::error::Error;
use crate::fork::ForkGuard;
use crate::handover::listener::{Listener, ListenerWait, Notification};
use crate::handover::thread_queue::ThreadQueues;
use crate::key::Key;
use crate::lease::{
    GivenUp, Lease, LeaseInner, LeaseStart, Leases, Pending, PendingRelease, notify_losses, release_revoked, revoke,
};
use crate::node::is_about_permission;
use crate::options::{CLOSING, LockOptions};
use crate::protocol::{Exclusive, LeaseCalls, Protocol, Request};
use crate::quorum::{Outages, Quorum};
use crate::token::{LockId, TokenSource};

/// The state that all handles and guards of one client share.
#[derive(Debug)]
pub(crate) struct ClientInner {
    /// A number that is unique among the clients of this process.
    pub(crate) id: u64,
    /// The process in which the client was made.
    pub(crate) process: ForkGuard,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) queues: Arc<ThreadQueues<Lease>>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) tokens: TokenSource,
    pub(crate) outages: Outages,
    pub(crate) pending: Arc<Pending>,
    pub(crate) leases: Arc<Leases>,
    /// The number of threads that acquire or wait, and may get a lock.
    active_calls: AtomicUsize,
    /// True while a call of `end` releases locks. The other calls wait for it. `release_all` sets and clears it, and
    /// pairs with itself. Otherwise a call could return before the releases of another one. The wait has a limit.
    is_releasing: AtomicBool,
    /// Set once the client has been shut down and its grace is over.
    ///
    /// `end` cancels it before it reads `active_calls` again. Pairs with `ClientInner::check_not_ended`, which some
    /// calls read after `begin_call`. All are `SeqCst`, so at least one of the two threads sees the other. Otherwise
    /// `end` would not wait for such a call.
    pub(crate) ended: Cancel,
}

/// No code of users runs while a lock of this type is held, so a panic in it leaves no state half changed.
impl RefUnwindSafe for ClientInner {}

/// Counts one call of a thread until it is dropped.
pub(crate) struct ActiveCall<'a>(&'a ClientInner);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        // After the lease of the call is in the registry. Pairs with `ClientInner::has_active_calls`.
        self.0.active_calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ClientInner {
    pub(crate) fn new(quorum: Quorum) -> Arc<ClientInner> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let quorum = Arc::new(quorum);
        let queues = ThreadQueues::new(Arc::clone(&quorum.clock));
        let pending = Pending::new(&quorum);
        Arc::new_cyclic(|this: &Weak<ClientInner>| {
            let this = this.clone();
            let on_late_grant = Box::new(move |wait: &str, grant: &Notification| {
                if let Some(client) = this.upgrade() {
                    client.add_late_grant(wait, grant);
                }
            });
            ClientInner {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                process: ForkGuard::new(),
                listener: Listener::new(Arc::clone(&quorum), on_late_grant),
                quorum,
                leases: Leases::new(&queues, &pending),
                pending,
                queues,
                tokens: TokenSource::new(),
                outages: Outages::default(),
                active_calls: AtomicUsize::new(0),
                is_releasing: AtomicBool::new(false),
                ended: Cancel::new(),
            }
        })
    }

    /// Returns `Closed` once the client takes no more locks. Also in a forked child, which shares the sockets of its
    /// parent but has none of its threads.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.process.is_forked_child() || self.queues.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Like `check_open`, but for calls that holders need until their end: those go on while the client shuts down.
    pub(crate) fn check_not_ended(&self) -> Result<(), Error> {
        if self.process.is_forked_child() || self.ended.is_cancelled() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Counts a call. Each call is counted before it checks whether the client is closed; `end` closes the client
    /// before it reads the count. So at least one of the two notices the other.
    pub(crate) fn begin_call(&self) -> ActiveCall<'_> {
        // Pairs with `ThreadQueues::close` and `has_active_calls`. Without `SeqCst`, the two could miss each other.
        self.active_calls.fetch_add(1, Ordering::SeqCst);
        ActiveCall(self)
    }

    /// Records that an attempt for this key, which began at `tried_at`, found no majority. Returns since when that is
    /// so.
    pub(crate) fn unavailable_since(&self, key: &str, tried_at: Tick, error: &Error) -> Tick {
        let nodes = if let Error::Unavailable { nodes, .. } = error { nodes.as_slice() } else { &[] };
        // In a cluster, the servers of other keys may answer. A permission can be missing for some keys or kinds only.
        let away = nodes.iter().filter(|node| !is_about_permission(&node.message)).count();
        let others_can_succeed = self.quorum.nodes.are_in_slots() || away + self.quorum.need() <= self.quorum.len();
        let of = others_can_succeed.then_some(key);
        self.outages.since(of, tried_at, self.quorum.now(), error)
    }

    /// The values from which a lease for this request is made.
    pub(crate) fn start(&self, request: &Request, id: LockId, wait: Option<Arc<str>>) -> LeaseStart {
        let start = self.start_with(request.protocol.clone(), &request.key, &request.options, id);
        LeaseStart { wait, ..start }
    }

    /// The values from which a lease with these calls is made.
    pub(crate) fn start_with(
        &self,
        protocol: Arc<dyn LeaseCalls>,
        key: &Key,
        options: &Arc<LockOptions>,
        id: LockId,
    ) -> LeaseStart {
        LeaseStart {
            quorum: Arc::clone(&self.quorum),
            protocol,
            key: key.clone(),
            id,
            options: Arc::clone(options),
            process: self.process.clone(),
            wait: None,
        }
    }

    /// Makes the lease of a lock that is held, with its renewal thread.
    pub(crate) fn lease(&self, inner: &Arc<LeaseInner>) -> Result<Lease, Error> {
        self.leases.hold(inner).map_err(|spawn| {
            let why = format!("no renewal thread could be started: {spawn}");
            self.quorum.unavailable("acquire", inner.key.as_str().to_owned(), why)
        })
    }

    // --- tokens that a server may still have -------------------------------------------------------------------------

    /// Removes a wait that is over from the server queues. The same call releases a grant that the wait has by now. If
    /// the wait gets a grant later, the listener hands it to [`add_late_grant`](ClientInner::add_late_grant).
    ///
    /// Never called for a wait that holds the lock by its grant. Such a wait had all its attempts answered
    /// (`GrantEvidence`), so it is in no queue.
    pub(crate) fn remove_ended_wait(&self, request: &Request, ended: &ListenerWait) {
        let Some(wait) = &ended.id else { return };
        self.pending.add(PendingRelease::of_wait(request.protocol.clone(), request.key.name(), wait, &self.quorum));
        if !ended.polls() {
            ended.outlive();
        }
    }

    /// Releases a grant to a wait that is over, unless a lease of this client came from it.
    fn add_late_grant(&self, wait: &str, grant: &Notification) {
        let (Some(key), Some(random)) = (&grant.key, &grant.random) else { return };
        let id = LockId::granted(random, wait);
        let Ok(key) = Key::new("", key) else { return };
        if self.leases.live().iter().all(|inner| inner.id != id) {
            // Only a mutex is granted.
            let name = Arc::clone(key.name());
            let protocol = Arc::new(Protocol::Mutex(Exclusive { key }));
            let ends = self.quorum.now().after(grant.time);
            let may_have = vec![true; self.quorum.len()];
            self.pending.add_unsent(PendingRelease::of_token(protocol, &name, id, ends, may_have));
        }
    }

    // --- the end of a client -----------------------------------------------------------------------------------------

    /// Ends all waits with `Closed`, for good, and gives up what is still held after the grace.
    pub(crate) fn end(&self, grace: Duration) -> Result<GivenUp, Error> {
        if self.process.is_forked_child() {
            return Err(Error::Closed);
        }
        let until = self.quorum.now().after(grace);
        self.queues.close();
        self.listener.close();
        // The grace is for holders. A release that is not confirmed keeps its lease until the lease ends.
        self.wait_until(until, || !self.has_active_calls() && !self.leases.live().iter().any(|inner| inner.is_held()));
        self.ended.cancel();
        // Other threads may be about to send the releases of their guards.
        let by = self.quorum.now().after(self.quorum.settings.two_rounds()).min(until);
        self.wait_until(by, || self.leases.live().iter().all(|inner| inner.is_lost()));
        let mut given_up = self.release_all(|| self.pending.take());
        // An attempt under way can still acquire a lock, or leave a token that is to be released. So the list is closed
        // after it.
        let by = self.quorum.now().after(CLOSING.max(self.quorum.settings.two_rounds()));
        self.wait_until(by, || !self.has_active_calls());
        let late = self.release_all(|| self.pending.close());
        given_up.keys.extend(late.keys);
        given_up.unconfirmed.extend(late.unconfirmed);
        Ok(given_up)
    }

    /// Releases what is held, and the pending tokens. One thread at a time, so each call of `end` returns
    /// after the releases of the others.
    fn release_all(&self, overdue: impl FnOnce() -> Vec<PendingRelease>) -> GivenUp {
        let by = self.quorum.now().after(CLOSING.max(self.quorum.settings.two_rounds().saturating_mul(2)));
        self.wait_until(by, || !self.is_releasing.swap(true, Ordering::SeqCst));
        // From here on, no guard begins its own release. Releases that have begun are waited for. Those that are not
        // confirmed are repeated with all others.
        let held: Vec<_> = self.leases.live().into_iter().filter(|inner| inner.revoke()).collect();
        self.pending.await_outcomes();
        let given_up = release_revoked(&self.pending, &held, overdue()).0;
        // Before the handlers of the losses, since they can call `end` too.
        self.is_releasing.store(false, Ordering::SeqCst);
        notify_losses(&held);
        given_up
    }

    /// Read before the registry of leases: whatever a call acquired is in the registry before the call is no longer
    /// counted.
    fn has_active_calls(&self) -> bool {
        // Pairs with `begin_call`, and with the drop of `ActiveCall`: a lease of a call that has ended is not missed.
        self.active_calls.load(Ordering::SeqCst) > 0
    }

    fn wait_until(&self, until: Tick, is_done: impl Fn() -> bool) {
        while self.quorum.now() < until && !is_done() {
            self.quorum.clock.sleep(Duration::from_millis(2));
        }
    }

    /// Records that the lock with this token was unlocked by force. If a guard of this client has it, the guard reports
    /// the loss at once, and the next thread in the queue goes on.
    pub(crate) fn mark_force_unlocked(&self, id: &LockId) {
        for inner in self.leases.live().into_iter().filter(|inner| inner.id == *id) {
            inner.revoke();
            inner.notify_loss();
        }
    }

    /// Gives up every lock that this client holds.
    pub(crate) fn unlock_all(&self) -> Result<GivenUp, Error> {
        self.check_not_ended()?;
        Ok(revoke(&self.pending, self.leases.live()))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        if !self.process.is_forked_child() {
            self.leases.renewer.close();
        }
    }
}
