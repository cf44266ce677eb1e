//! What all locks of a client share, from its first lock to its end.

use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::Tick;
use crate::error::Error;
use crate::handover::grant;
use crate::handover::listener::{Listener, UnclaimedGrant};
use crate::handover::queue::WaitQueues;
use crate::handover::queued::Queued;
use crate::handover::rules::Chain;
use crate::key::Key;
use crate::lease::{Backlog, Core, GivenUp, Lease, LeaseStart, Leases, Origin, PendingRelease, revoke};
use crate::node::Priority;
use crate::options::CLOSING;
use crate::protocol::{Exclusive, Grant, Next, Protocol, ReleaseArgs, Request};
use crate::quorum::{Outages, Quorum};
use crate::token::{LockId, TokenSource, random_part};

#[derive(Debug)]
pub(crate) struct ClientInner {
    /// Tells the clients of a process apart.
    pub(crate) id: u64,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) queues: Arc<WaitQueues<Lease>>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) tokens: TokenSource,
    pub(crate) outages: Outages,
    pub(crate) backlog: Arc<Backlog>,
    leases: Arc<Leases>,
    /// How many threads are in an acquire.
    competing: AtomicUsize,
    /// It has given up everything.
    is_over: AtomicBool,
}

/// No code of users runs under a lock in here, so a panic of theirs leaves nothing half done.
impl RefUnwindSafe for ClientInner {}

/// A thread is in an acquire for as long as this lives.
pub(crate) struct Competing<'a>(&'a ClientInner);

impl Drop for Competing<'_> {
    fn drop(&mut self) {
        self.0.competing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ClientInner {
    pub(crate) fn new(quorum: Quorum) -> Arc<ClientInner> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let quorum = Arc::new(quorum);
        let clock = Arc::clone(&quorum.clock);
        let queues = WaitQueues::new(Arc::clone(&clock));
        let backlog = Backlog::new(&quorum);
        let client = Arc::new(ClientInner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            listener: Listener::new(Arc::clone(&quorum)),
            quorum,
            leases: Leases::new(&queues, &backlog, &clock),
            backlog,
            queues,
            tokens: TokenSource::new(),
            outages: Outages::default(),
            competing: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let this = Arc::downgrade(&client);
        client.listener.on_unclaimed_grant(Box::new(move |grant| {
            if let Some(client) = this.upgrade() {
                client.give_back_unclaimed(grant);
            }
        }));
        client
    }

    /// `Closed` once the client takes no more locks, and in a forked child, which shares the sockets of its parent and
    /// has none of its threads.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        if self.tokens.home().is_left() || self.queues.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// As `ready`, for what holders need until their end: it goes on while the client shuts down.
    pub(crate) fn serves(&self) -> Result<(), Error> {
        if self.tokens.home().is_left() || self.is_over.load(Ordering::SeqCst) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Counted before the thread looks whether the client is closed: `close` looks the other way round, so that one of
    /// the two sees the other.
    pub(crate) fn competes(&self) -> Competing<'_> {
        self.competing.fetch_add(1, Ordering::SeqCst);
        Competing(self)
    }

    /// What a lease for this request is made from.
    pub(crate) fn start(&self, request: &Request, id: LockId, origin: Origin) -> LeaseStart {
        LeaseStart {
            quorum: Arc::clone(&self.quorum),
            backlog: Arc::clone(&self.backlog),
            protocol: Arc::clone(&request.protocol),
            key: request.key.clone(),
            id,
            options: Arc::clone(&request.options),
            home: self.tokens.home().clone(),
            origin,
        }
    }

    /// Gives a lock that is held its renewal thread.
    pub(crate) fn lease(&self, core: &Arc<Core>) -> Result<Lease, Error> {
        self.leases.hold(core).map_err(|spawn| Error::Unavailable {
            op: "acquire",
            key: core.key.as_str().to_owned(),
            of: self.quorum.len(),
            nodes: vec![self.quorum.node_error(0, format!("no renewal thread could be started: {spawn}"))],
        })
    }

    /// Asks the servers whether this client still holds the lock, for a thread that waits for it: nothing else tells of
    /// a key that was deleted by hand before the next renewal, and without renewals nothing does. It lengthens nothing.
    /// If the lock is lost, the next thread goes on.
    pub(crate) fn look_after(&self, key: &Arc<str>) {
        let holders = self.leases.registry.live().into_iter().filter(|core| core.key.name() == key);
        holders.for_each(|core| core.check_on_servers());
    }

    /// Those of these tokens whose guards were dropped, and whose releases are not known to be executed: the next attempt takes the lock from them. What the
    /// servers say to the releases then is no loss.
    pub(crate) fn supersede_dropped(&self, tokens: &[&str]) -> Vec<LockId> {
        if tokens.is_empty() {
            return Vec::new();
        }
        let all = self.leases.registry.live().into_iter();
        all.filter(|core| tokens.contains(&core.id.as_str()) && core.supersede()).map(|core| core.id.clone()).collect()
    }

    // --- what is left of an acquire -----------------------------------------------------------------------------------

    /// An attempt that was taken back may have left its token on one of these nodes: the next attempt may take the lock
    /// from it, and its release is repeated.
    pub(crate) fn left_token(&self, request: &Request, id: &LockId, ends: Tick, at: Vec<bool>) {
        self.queues.add_leftover_token(request.key.name(), id.clone(), ends);
        let protocol = Arc::clone(&request.protocol);
        self.backlog.add(PendingRelease::of_token(protocol, id.clone(), ends, at));
    }

    /// An adoption that failed may have left its token on one of these nodes: it is given back there, as soon as the
    /// servers answer.
    pub(crate) fn left_adoption(&self, request: &Request, id: &LockId, former: &LockId, ends: Tick, at: Vec<bool>) {
        let of_token = PendingRelease::of_token(Arc::clone(&request.protocol), id.clone(), ends, at);
        self.backlog.add_adoption(of_token, id.clone(), former.clone());
    }

    /// Gives back what may be granted to a wait although it is over: what was granted by now, as soon as the servers
    /// answer; what a late attempt brings, when it is pushed.
    ///
    /// Never called for a wait that holds the lock by its grant: such a wait had all its attempts answered
    /// (`GrantEvidence`), and does not linger.
    pub(crate) fn left_wait(self: &Arc<Self>, request: &Request, queued: &Queued, wait: &Arc<str>) {
        self.backlog.add(PendingRelease::of_wait(&request.protocol, wait, &self.quorum));
        if queued.polls() {
            return;
        }
        let (client, request, wait) = (Arc::downgrade(self), request.clone(), Arc::clone(wait));
        self.listener.watch_ended(
            queued.listener.number(),
            Box::new(move |pushed| {
                if let (Some(client), Some(random)) = (client.upgrade(), &pushed.random) {
                    client.give_back(&request, LockId::granted(random, &wait));
                }
            }),
        );
    }

    /// Gives back what was granted to a wait that is over, in the background.
    fn give_back(self: &Arc<Self>, request: &Request, id: LockId) {
        let (this, request) = (Arc::clone(self), request.clone());
        self.quorum.nodes.background().after(Duration::ZERO, move || {
            let Ok(random) = random_part() else { return };
            let next = grant::next_grant(&this.quorum, &request, &random, &Chain::default());
            this.grant_to_next(&*request.protocol, &id, next);
        });
    }

    /// Gives back what was granted to a wait that this client has forgotten, unless that is a lock which it holds.
    fn give_back_unclaimed(&self, grant: &UnclaimedGrant) {
        let UnclaimedGrant { key, random, wait, span, with_fence } = grant;
        let id = LockId::granted(random, wait);
        let (Ok(key), Ok(random)) = (Key::new("", key, key.len()), random_part()) else { return };
        if self.leases.registry.live().iter().all(|core| core.id != id) {
            let next = Grant {
                random: &random,
                span: *span,
                age: Duration::ZERO,
                pauses: 0,
                with_fence: *with_fence,
                several: self.quorum.len() > 1,
            };
            self.grant_to_next(&Protocol::Mutex(Exclusive { key }), &id, next);
        }
    }

    /// Gives up a lock that was granted, to the next wait.
    fn grant_to_next(&self, protocol: &Protocol, id: &LockId, next: Grant<'_>) {
        let (quorum, random) = (&self.quorum, next.random);
        let release = ReleaseArgs { id: Some(id), keep: Duration::ZERO, wait: None, next: Next::First(next) };
        let by = quorum.round_deadline();
        let ballot = quorum.round(&protocol.release(&release), Priority::High, by, &|_| true);
        grant::unreserve(quorum, protocol, &ballot, random, by);
    }

    // --- the end of a client ------------------------------------------------------------------------------------------

    /// Ends all waits with `Closed`, for good, and gives up what is still held after the grace.
    pub(crate) fn end(&self, grace: Duration) -> Result<GivenUp, Error> {
        if self.tokens.home().is_left() {
            return Err(Error::Closed);
        }
        let until = self.quorum.now().after(grace);
        self.queues.close();
        self.listener.close();
        self.wait_until(until, || {
            !self.is_competing() && self.leases.registry.live().iter().all(|core| core.is_lost())
        });
        self.is_over.store(true, Ordering::SeqCst);
        // What guards released that were dropped just now: if it is not confirmed, it is repeated below with all else.
        self.backlog.settle();
        let by = self.quorum.now().after(CLOSING);
        let mut given_up = revoke(&self.backlog, self.leases.registry.live(), self.backlog.close());
        // In a loop: a thread may have looked before the client was closed, and start to wait only now.
        self.wait_until(by, || !self.is_competing());
        // What a thread got after the first look.
        given_up.add(revoke(&self.backlog, self.leases.registry.live(), Vec::new()));
        Ok(given_up)
    }

    /// Asked before the registry: what a thread got before it stopped to compete is there.
    fn is_competing(&self) -> bool {
        self.competing.load(Ordering::SeqCst) > 0
    }

    fn wait_until(&self, until: Tick, so: impl Fn() -> bool) {
        while self.quorum.now() < until && !so() {
            self.quorum.clock.sleep(Duration::from_millis(2));
        }
    }

    /// The lock that has this token was taken away: its guard reports it lost at once if it is one of this client, and
    /// the next thread in the queue goes on.
    pub(crate) fn taken_away(&self, id: &LockId) {
        for core in self.leases.registry.live().into_iter().filter(|core| core.id == *id) {
            core.revoke();
            core.tell_loss();
        }
    }

    /// Gives up one lock that this client holds.
    pub(crate) fn give_up(&self, core: &Arc<Core>) {
        revoke(&self.backlog, vec![Arc::clone(core)], Vec::new());
    }

    /// Gives up every lock that this client holds.
    pub(crate) fn unlock_all(&self) -> Result<GivenUp, Error> {
        self.serves()?;
        Ok(revoke(&self.backlog, self.leases.registry.live(), Vec::new()))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        if !self.tokens.home().is_left() {
            self.leases.renewer.close();
        }
    }
}
