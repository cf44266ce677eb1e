//! Models of a lease from an acquire to its end: the library's `lease` with its renewal threads, its pending tokens and the
//! thread queues. One server answers, which executes a posted release whenever the scheduler wants.
//!
//! After each model, these must be true:
//!
//! 1. A release was sent for each token, and nothing else of it after that. It was sent again only for an attempt that
//!    found the lock held by the token.
//! 2. After the end of a lease or a loss, `check` was never `Ok`.
//! 3. A handler of a loss was called once for a loss, and not for an orderly end.
//! 4. The place of the queue head was released, and no thread waits.

mod guard;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

pub(crate) use self::guard::Guard;
use crate::clock::{Clock, Tick};
use crate::error::LostReason;
use crate::fork::ForkGuard;
use crate::handover::thread_queue::{QueueOutcome, ThreadQueues};
use crate::key::Key;
use crate::lease::{Lease, LeaseInner, LeaseStart, LeaseState, Leases, Pending, revoke};
use crate::node::{Nodes, Sent, Server};
use crate::observer::{Event, Observer};
use crate::options::{ClientOptions, LockOptions, RENEW_DIVISOR};
use crate::protocol::reply::Vote;
use crate::protocol::{AcquireArgs, Exclusive, LeaseCalls, Protocol, QueuePolicy};
use crate::queue::{all, unexpected};
use crate::quorum::Quorum;
use crate::sync::{AtomicBool, AtomicUsize, Mutex};
use crate::token::{LockId, TokenSource, random_part_of};
use crate::world::{self, ModelClock};

/// A client with one key.
#[derive(Clone)]
pub(crate) struct Rig {
    quorum: Arc<Quorum>,
    queues: Arc<ThreadQueues<Lease>>,
    pending: Arc<Pending>,
    pub(crate) leases: Arc<Leases>,
    tokens: Arc<TokenSource>,
    key: Key,
    protocol: Arc<Protocol>,
    pub(crate) options: Arc<LockOptions>,
    /// All leases there were.
    watches: Arc<Mutex<Vec<Arc<Watch>>>>,
    losses: Arc<Losses>,
    /// The tokens whose release was sent again, since an attempt found the lock held by them.
    released_again: Arc<Mutex<Vec<String>>>,
    /// True while a thread relies on the lock.
    is_held: Arc<Mutex<bool>>,
}

/// The losses that observers were told of.
struct Losses(AtomicUsize);

impl Observer for Losses {
    fn event(&self, event: &Event<'_>) {
        if let Event::Lost { .. } = event {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// What is known of a lease.
struct Watch {
    inner: Arc<LeaseInner>,
    /// How often its handler was called.
    told: Arc<AtomicUsize>,
    /// The end of the lease was returned by a call.
    is_over: AtomicBool,
    /// That call succeeded, and was a release or a drop.
    is_orderly: AtomicBool,
}

impl Watch {
    fn told(&self) -> usize {
        self.told.load(Ordering::SeqCst)
    }

    /// Checks the lease, as a thread does to which it was lent.
    fn check(&self) {
        let is_over = self.is_over.load(Ordering::SeqCst) || self.told() > 0 || self.is_final();
        let checked = self.inner.check();
        assert!(checked.is_err() || !is_over, "`check` is `Ok` after the end");
        assert!(checked.is_ok() || self.is_final(), "{:?} comes after {checked:?}", self.inner.state());
    }

    fn is_released(&self) -> bool {
        self.inner.state() == LeaseState::Released
    }

    fn is_final(&self) -> bool {
        matches!(self.inner.state(), LeaseState::Lost(_) | LeaseState::Released)
    }

    fn over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.check();
    }
}

impl Rig {
    pub(crate) fn new(options: LockOptions) -> Rig {
        let clock: Arc<dyn Clock> = Arc::new(ModelClock);
        let losses = Arc::new(Losses(AtomicUsize::new(0)));
        let mut settings = ClientOptions::default();
        settings.observers.add(Arc::clone(&losses) as Arc<dyn Observer>);
        let quorum = Arc::new(Quorum::new(Nodes::new(), Arc::clone(&clock), settings));
        let queues = ThreadQueues::new(clock);
        let pending = Pending::new(&quorum);
        let key = Key::new("", "key").unwrap();
        Rig {
            leases: Leases::new(&queues, &pending),
            quorum,
            queues,
            pending,
            tokens: Arc::new(TokenSource::new()),
            protocol: Arc::new(Protocol::Mutex(Exclusive { key: key.clone() })),
            key,
            options: options.into(),
            watches: Arc::default(),
            losses,
            released_again: Arc::default(),
            is_held: Arc::default(),
        }
    }

    /// The same client with another key, and with other options.
    pub(crate) fn with(&self, name: &str, options: LockOptions) -> Rig {
        let key = Key::new("", name).unwrap();
        let protocol = Arc::new(Protocol::Mutex(Exclusive { key: key.clone() }));
        Rig { key, protocol, options: options.into(), is_held: Arc::default(), ..self.clone() }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.quorum.nodes.server
    }

    pub(crate) fn spawn(&self, run: impl FnOnce(Rig) + Send + 'static) -> JoinHandle<()> {
        let rig = self.clone();
        thread::spawn(move || run(rig))
    }

    /// Takes the lock, as `acquire.rs` does.
    pub(crate) fn lock(&self) -> Guard {
        let kind = self.protocol.kind();
        let mut lease = match self.queues.enqueue(self.key.name(), Tick::NEVER, kind, &self.options) {
            QueueOutcome::Head(head) => {
                let lease = self.attempts();
                lease.inner().keep_head(head);
                lease
            }
            QueueOutcome::Handed(lease) => lease,
            other => unexpected(&other),
        };
        lease.acquired(world::now());
        let (inner, told) = (Arc::clone(lease.inner()), Arc::new(AtomicUsize::new(0)));
        let [is_over, is_orderly] = [false; 2].map(AtomicBool::new);
        let watch = Arc::new(Watch { inner, told: Arc::clone(&told), is_over, is_orderly });
        lease.on_lost(move |error| {
            assert!(error.is_lost());
            told.fetch_add(1, Ordering::SeqCst);
        });
        self.watches.lock().push(Arc::clone(&watch));
        let rounds = self.server().rounds(lease.inner().id.as_str()).len();
        Guard { rig: self.clone(), lease, watch, rounds }
    }

    fn attempts(&self) -> Lease {
        loop {
            let id = self.tokens.fresh(None).unwrap();
            let attempt = AcquireArgs {
                id: &id,
                lease: LeaseInner::first_lease(&self.options),
                fence: None,
                wait: None,
                policy: QueuePolicy::None,
                take_over: &[],
            };
            let ballot = self.quorum.quick_round_of_voters(&self.protocol.acquire(&attempt), Tick::NEVER);
            match &ballot.votes[0] {
                Vote::Yes(_) => {
                    let inner = Arc::new(LeaseInner::won(self.start(id), &ballot));
                    return self.leases.hold(&inner).unwrap();
                }
                Vote::Taken { token, .. } => {
                    let is_holder = |id: &LockId| random_part_of(id.as_str()) == random_part_of(token);
                    if self.leases.release_again(self.key.name(), is_holder) {
                        self.released_again.lock().push(token.clone());
                    } else {
                        world::pass(Duration::from_millis(10));
                    }
                    thread::yield_now();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn start(&self, id: LockId) -> LeaseStart {
        LeaseStart {
            quorum: Arc::clone(&self.quorum),
            protocol: self.protocol.clone(),
            key: self.key.clone(),
            id,
            options: Arc::clone(&self.options),
            process: ForkGuard::new(),
            wait: None,
        }
    }

    fn unlock_all(&self) {
        let given_up = revoke(&self.pending, self.leases.live());
        assert!(given_up.keys.len() <= 1, "one lease has the lock: {given_up:?}");
    }

    /// Lets time pass in which leases are renewed.
    fn time_passes(&self) -> JoinHandle<()> {
        let third = self.options.lease / RENEW_DIVISOR;
        thread::spawn(move || {
            for _ in 0..2 {
                world::pass(third);
            }
        })
    }

    /// The end of a model. For at most this many tokens, no release was sent.
    pub(crate) fn end(self, unreleased: usize) {
        self.leases.renewer.close();
        world::until_all_threads_ended();
        let sent = self.server().sent();
        let acquired = sent.iter().filter(|sent| matches!(sent, Sent::Acquire(_)));
        let mut without = 0;
        for token in acquired.map(Sent::token).filter(|token| self.has_had(token)) {
            let of_token: Vec<&Sent> = sent.iter().filter(|sent| sent.token() == token).collect();
            let releases = of_token.iter().filter(|sent| matches!(sent, Sent::Release(_))).count();
            without += usize::from(releases == 0);
            let is_again = self.released_again.lock().iter().any(|again| again == token);
            assert!(releases <= 1 || is_again, "released twice: {sent:?}");
            let of_token = of_token.iter().skip_while(|sent| !matches!(sent, Sent::Release(_)));
            assert!(of_token.copied().all(|sent| matches!(sent, Sent::Release(_))), "after the release: {sent:?}");
        }
        assert!(without <= unreleased, "not released: {sent:?}");
        let queues = format!("{:?}", self.queues);
        assert!(queues.contains("by_key: {}"), "left over: {queues}");
        for watch in &*self.watches.lock() {
            watch.check();
            let is_lost = matches!(watch.inner.state(), LeaseState::Lost(_));
            let is_orderly = watch.is_orderly.load(Ordering::SeqCst);
            assert!(!is_orderly || watch.told() == 0, "a loss was told of a lease that ended in an orderly way");
            assert!(watch.told() <= 1, "a handler was called twice");
            assert!(is_lost || watch.is_released(), "it did not end");
        }
    }

    /// Asserts that no renewal came before it was due. For models in which only renewal threads extend leases.
    pub(crate) fn assert_no_early_renewals(&self) {
        for watch in &*self.watches.lock() {
            let rounds = self.server().rounds(watch.inner.id.as_str());
            let third = watch.inner.options.lease / RENEW_DIVISOR;
            assert!(rounds.windows(2).all(|pair| pair[1].since(pair[0]) >= third), "before it was due: {rounds:?}");
        }
    }

    /// False for a token of an attempt that was not won.
    fn has_had(&self, token: &str) -> bool {
        self.watches.lock().iter().any(|watch| watch.inner.id.as_str() == token)
    }
}

fn options() -> LockOptions {
    LockOptions { lease: Duration::from_secs(3), ..LockOptions::default() }
}

/// A guard is unlocked, dropped or left held while its lease is due for a renewal.
pub fn ended_while_it_is_renewed() {
    let rig = Rig::new(options());
    let guard = rig.lock();
    let threads = vec![guard.watch(), rig.time_passes()];
    guard.hold();
    let mut left_held = 0;
    if thread_rng().gen_range(0..3) == 0 && guard.lease.leave_held().is_ok() {
        guard.watch.over();
        left_held = 1;
    }
    guard.end();
    all(threads);
    rig.end(left_held);
}

/// A guard ends while `unlock_all` takes its lock away, and is renewed. One of the two releases it.
pub fn revoked_while_it_ends() {
    let rig = Rig::new(options());
    let guard = rig.lock();
    let watch = Arc::clone(&guard.watch);
    let revoker = Arc::clone(&watch);
    let threads = vec![
        guard.watch(),
        rig.time_passes(),
        rig.spawn(move |rig| {
            rig.unlock_all();
            revoker.over();
        }),
        rig.spawn(|rig| rig.unlock_all()),
    ];
    guard.end();
    all(threads);
    let is_revoked = watch.inner.state() == LeaseState::Lost(LostReason::Revoked);
    assert_eq!(watch.told(), usize::from(is_revoked));
    rig.end(0);
}

/// The key is deleted. A renewal, a check, or the release notices it.
pub fn lost_while_it_ends() {
    let rig = Rig::new(options());
    let guard = rig.lock();
    let watch = Arc::clone(&guard.watch);
    let (deletes, asked) = (rig.spawn(|rig| rig.server().delete_key()), Arc::clone(&watch));
    let asks = thread::spawn(move || asked.inner.check_on_servers(Tick::NEVER));
    let threads = vec![guard.watch(), rig.time_passes(), deletes, asks];
    let is_told_lost = if thread_rng().r#gen() {
        guard.drop();
        false
    } else {
        guard.unlock().is_err_and(|error| error.is_lost())
    };
    all(threads);
    rig.end(0);
    // Another thread may have called the handler a little later.
    assert!(!is_told_lost || watch.told() == 1 || watch.inner.state() == LeaseState::Released);
}

/// The key is deleted, and no renewal is due. The look of any renewal thread notices it. Then no more time has to pass:
/// the thread of the lease is woken, and calls the handler.
pub fn noticed_by_a_look() {
    let rig = Rig::new(LockOptions { renew: false, ..options() });
    let guard = rig.lock();
    rig.server().delete_key();
    world::pass(Duration::from_secs(1));
    while rig.server().missed.load(Ordering::SeqCst) == 0 {
        rig.leases.renewer.look(Tick::NEVER);
    }
    while guard.watch.told() == 0 {
        thread::yield_now();
    }
    guard.end();
    rig.end(1);
}

/// A lease that is not renewed runs out while threads check it and add handlers. Each handler is called once.
pub fn expired_while_handlers_are_added() {
    let rig = Rig::new(LockOptions { renew: false, ..options() });
    let guard = rig.lock();
    let watch = Arc::clone(&guard.watch);
    let added = Arc::new(AtomicUsize::new(0));
    let guard = Arc::new(guard);
    let adding = [(); 2].map(|()| {
        let (guard, added) = (Arc::clone(&guard), Arc::clone(&added));
        thread::spawn(move || guard.lease.on_lost(move |_| _ = added.fetch_add(1, Ordering::SeqCst)))
    });
    let mut threads = vec![guard.watch(), thread::spawn(|| world::pass(Duration::from_secs(3)))];
    threads.extend(adding);
    all(threads);
    watch.check();
    let guard = Arc::into_inner(guard).expect("all threads have ended");
    guard.end();
    // The server has forgotten the token.
    rig.end(1);
    assert_eq!((watch.told(), added.load(Ordering::SeqCst)), (1, 2));
}

/// Renewals are not answered, and the lease may run out. It is suspended meanwhile.
pub fn renewed_without_answers() {
    let rig = Rig::new(options());
    let guard = rig.lock();
    rig.server().is_unreliable.store(true, Ordering::SeqCst);
    let threads = vec![guard.watch(), rig.time_passes(), rig.time_passes()];
    guard.end();
    all(threads);
    // The server has forgotten the token if the lease is over.
    rig.end(1);
}

/// Threads hand the lock to each other, or release it, while it is renewed. In some runs they wait for a renewal, which
/// comes when it is due, whichever thread has the lease.
pub fn from_hand_to_hand() {
    let rig = Rig::new(options());
    let mut threads: Vec<_> = (0..3)
        .map(|_| {
            rig.spawn(|rig| {
                let mut guard = rig.lock();
                guard.hold();
                if thread_rng().r#gen() {
                    guard.renewed();
                }
                guard.end();
            })
        })
        .collect();
    threads.push(thread::spawn(|| {
        for _ in 0..2 {
            world::pass(options().lease / RENEW_DIVISOR / 2);
        }
    }));
    all(threads);
    rig.end(0);
}

/// The same, while `unlock_all` takes away whatever lock there is. A thread that lost it ends beside the next holder.
pub fn from_hand_to_hand_while_all_are_revoked() {
    let rig = Rig::new(options());
    let mut threads: Vec<_> = (0..3).map(|_| rig.spawn(|rig| rig.lock().end())).collect();
    threads.push(rig.spawn(|rig| rig.unlock_all()));
    threads.push(rig.time_passes());
    all(threads);
    rig.end(0);
}

/// Guards are dropped, and attempts of the same client come before their releases. What the servers then reply to these
/// releases is not a loss.
pub fn a_drop_that_is_overtaken() {
    let rig = Rig::new(options());
    let threads = (0..2).map(|_| {
        rig.spawn(|rig| {
            for _ in 0..2 {
                let guard = rig.lock();
                guard.hold();
                guard.drop();
            }
        })
    });
    all(threads.collect());
    assert!(rig.watches.lock().iter().all(|watch| watch.is_released()));
    let losses = Arc::clone(&rig.losses);
    rig.end(0);
    assert_eq!(losses.0.load(Ordering::SeqCst), 0);
}

/// A guard ends before its minimum hold. Attempts of the same client do not get the lock before that, also if they
/// come before the release of the dropped guard.
pub fn a_minimum_hold() {
    let min_hold = Duration::from_millis(100);
    let rig = Rig::new(LockOptions { min_hold, ..options() });
    let threads = (0..2).map(|_| {
        rig.spawn(move |rig| {
            let guard = rig.lock();
            rig.server().keep(world::now().after(min_hold));
            guard.hold();
            guard.end();
        })
    });
    all(threads.collect());
    let losses = Arc::clone(&rig.losses);
    rig.end(0);
    assert_eq!(losses.0.load(Ordering::SeqCst), 0);
}

/// The server is asked whether the lock is still held, and a thread to which the lease was lent extends it, while the
/// guard ends. Nothing is sent after the release.
pub fn asked_for_while_it_ends() {
    let rig = Rig::new(options());
    let guard = rig.lock();
    let (inner, asked) = (Arc::clone(&guard.watch.inner), Arc::clone(&guard.watch.inner));
    let lease = rig.options.lease;
    let extend = move || inner.extend(lease).map_or_else(|error| assert!(error.is_lost(), "{error}"), |()| ());
    let threads = vec![thread::spawn(move || asked.check_on_servers(Tick::NEVER)), thread::spawn(extend)];
    guard.end();
    all(threads);
    rig.end(0);
}
