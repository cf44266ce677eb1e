//! Tests of one lease without its renewal thread, against real servers. The test requests each round and sets the
//! clock.

mod passing;
mod pending;

use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_tests::{Act, Proxy, Server, servers};

use super::*;
use crate::clock::Clock;
use crate::handover::thread_queue::{QueueOutcome, ThreadQueues};
use crate::lease::Pending;
use crate::options::ClientOptions;
use crate::protocol::{Exclusive, Protocol};
use crate::tests::{Sleeper, quorum};
use crate::token::{TokenSource, random_part};

const KEY: &str = "k";
const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(3);
/// The real time that a test may take.
const SLACK: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(10);

struct Rig {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    clock: Arc<Sleeper>,
    quorum: Arc<Quorum>,
    tokens: TokenSource,
    pending: Arc<Pending>,
}

impl Rig {
    fn start(n: usize) -> Rig {
        let servers = servers(n);
        // All scripts are loaded, so each call is one request.
        for server in &servers {
            for script in crate::protocol::script::all() {
                server.ask::<()>(redis::cmd("SCRIPT").arg("LOAD").arg(&script.source));
            }
        }
        let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
        let clock = Arc::new(Sleeper::default());
        let settings = ClientOptions { node_timeout: TIMEOUT, restart_guard: false, ..ClientOptions::default() };
        let quorum = quorum(proxies.iter().map(Proxy::url), settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let quorum = Arc::new(quorum);
        Rig { servers, proxies, clock, pending: Pending::new(&quorum), quorum, tokens: TokenSource::new() }
    }

    fn start_of(&self, id: LockId, options: LockOptions) -> LeaseStart {
        let key = Key::new("", KEY).unwrap();
        let protocol = Arc::new(Protocol::Mutex(Exclusive { key: key.clone() }));
        let (quorum, process) = (Arc::clone(&self.quorum), ForkGuard::new());
        LeaseStart { quorum, protocol, key, id, options: options.into(), process, wait: None }
    }

    fn start_for(&self, name: &str, options: LockOptions) -> LeaseStart {
        let key = Key::new("", name).unwrap();
        let protocol = Arc::new(Protocol::Mutex(Exclusive { key: key.clone() }));
        LeaseStart { protocol, key, ..self.start_of(self.tokens.fresh(None).unwrap(), options) }
    }

    /// Acquires the lock.
    fn lease(&self, options: LockOptions) -> Arc<LeaseInner> {
        self.acquire(self.start_for(KEY, options))
    }

    fn acquire(&self, start: LeaseStart) -> Arc<LeaseInner> {
        let ballot = self.attempt(&start);
        assert!(ballot.won(), "{ballot:?}");
        Arc::new(LeaseInner::won(start, &ballot))
    }

    fn release(&self, inner: &Arc<LeaseInner>) -> Result<(), Error> {
        inner.release(SECOND, &self.pending)
    }

    /// Releases again, as for an attempt that finds the lock held by a pending token. False if there is none.
    fn release_again(&self) -> bool {
        self.pending.release_again(&KEY.into(), |_| true, Vec::new())
    }

    fn attempt(&self, start: &LeaseStart) -> Ballot<Acquired> {
        let fence = start.options.fenced.then_some(0);
        let lease = LeaseInner::first_lease(&start.options);
        let attempt =
            AcquireArgs { id: &start.id, lease, fence, wait: None, policy: QueuePolicy::None, take_over: &[] };
        let call = start.protocol.lock().unwrap().acquire(&attempt);
        self.quorum.round(&call, self.quorum.round_deadline())
    }

    fn extensions(&self) -> usize {
        self.proxies[0].count("extend")
    }

    fn time_to_live(&self, node: usize) -> Duration {
        Duration::from_millis(self.servers[node].ask(redis::cmd("PTTL").arg(KEY)))
    }

    /// The time from now until `due`.
    fn wait(&self, due: Tick) -> Duration {
        assert_ne!(due, Tick::NEVER, "it is over");
        due.since(self.quorum.now())
    }
}

fn granted() -> LockId {
    LockId::granted(&random_part().unwrap(), "redlock-sync:1/1")
}

fn options() -> LockOptions {
    LockOptions { lease: LEASE, ..LockOptions::default() }
}

/// Returns true if `seen` is at most `wanted`, and less only by the time that the test takes.
fn is_about(seen: Duration, wanted: Duration) -> bool {
    seen <= wanted && seen + SLACK > wanted
}

fn reason(inner: &LeaseInner) -> Option<LostReason> {
    inner.check().unwrap_err().lost_reason()
}

#[test]
fn a_renewal_is_due_at_a_third_and_renews_the_whole_lease() {
    let rig = Rig::start(1);
    let inner = rig.lease(options());
    assert!(is_about(rig.wait(inner.first_due()), LEASE / 3));
    rig.clock.sleep_through(LEASE / 2);
    assert!(is_about(inner.remaining(), LEASE / 2));
    assert!(is_about(rig.wait(inner.tick()), LEASE / 3));
    assert!(is_about(inner.remaining(), LEASE) && inner.state() == LeaseState::Held);
    assert_eq!(rig.extensions(), 1);
}

#[test]
fn a_lease_that_is_not_renewed_is_looked_at_when_it_ends() {
    let rig = Rig::start(1);
    let inner = rig.lease(LockOptions { renew: false, ..options() });
    assert!(is_about(rig.wait(inner.first_due()), LEASE));
    assert!(is_about(rig.wait(inner.tick()), LEASE));
    rig.clock.sleep_through(LEASE);
    assert_eq!(reason(&inner), Some(LostReason::Expired));
    assert_eq!((inner.tick(), inner.remaining(), rig.extensions()), (Tick::NEVER, Duration::ZERO, 0));
}

#[test]
fn renewals_end_when_they_are_used_up() {
    let rig = Rig::start(1);
    let inner = rig.lease(LockOptions { max_renewals: Some(1), ..options() });
    assert!(is_about(rig.wait(inner.tick()), LEASE / 3));
    rig.clock.sleep_through(LEASE / 2);
    assert!(is_about(rig.wait(inner.tick()), LEASE / 2));
    assert_eq!(rig.extensions(), 1);
    rig.clock.sleep_through(LEASE / 2);
    assert_eq!(reason(&inner), Some(LostReason::MaxHold));
}

#[test]
fn nothing_extends_a_lease_beyond_its_longest_hold() {
    let rig = Rig::start(1);
    let inner = rig.lease(LockOptions { max_hold: Some(LEASE * 3 / 2), ..options() });
    inner.tick();
    assert!(is_about(inner.remaining(), LEASE));
    rig.clock.sleep_through(LEASE);
    assert_eq!(reason(&inner), Some(LostReason::Expired), "it was not renewed, and could have been");
    assert!(rig.servers[0].del(KEY));
    let inner = rig.lease(LockOptions { max_hold: Some(LEASE / 2), ..options() });
    assert!(is_about(rig.time_to_live(0), LEASE / 2));
    rig.clock.sleep_through(LEASE / 2 - SECOND * 10);
    let extensions = rig.extensions();
    inner.tick();
    assert!(inner.remaining() <= SECOND * 10 && rig.extensions() == extensions + 1);
    rig.clock.sleep_through(SECOND * 10);
    assert_eq!(reason(&inner), Some(LostReason::MaxHold));
}

#[test]
fn a_rest_too_short_for_a_lease_is_not_asked_for() {
    let rig = Rig::start(1);
    let inner = rig.lease(LockOptions { max_hold: Some(LEASE), ..options() });
    let rest = inner.state.lock().hold_end.since(rig.quorum.now());
    rig.clock.sleep_through(rest.saturating_sub(MIN_LEASE / 2));
    inner.tick();
    assert_eq!(rig.extensions(), 0);
}

#[test]
fn a_grant_is_renewed_at_a_third_of_its_age() {
    let rig = Rig::start(1);
    let since = rig.quorum.now();
    rig.clock.sleep_through(LEASE / 6);
    let inner = LeaseInner::granted(rig.start_of(granted(), options()), None, since);
    assert!(is_about(inner.remaining(), LEASE * 5 / 6), "{:?}", inner.remaining());
    assert!(is_about(rig.wait(inner.first_due()), LEASE / 6));
}

#[test]
fn it_is_known_when_a_hold_surely_ends() {
    let rig = Rig::start(1);
    let ends = |options: LockOptions| {
        let inner = rig.lease(options);
        assert!(rig.servers[0].del(KEY));
        inner.surely_ends().map(|end| end.since(rig.quorum.now()))
    };
    assert_eq!(ends(options()), None);
    for (options, after) in [
        (LockOptions { renew: false, ..options() }, LEASE),
        (LockOptions { max_renewals: Some(0), ..options() }, LEASE),
        (LockOptions { max_renewals: Some(2), ..options() }, LEASE * 3),
        (LockOptions { max_hold: Some(LEASE * 5), ..options() }, LEASE * 5 + drift(LEASE)),
    ] {
        let end = ends(options.clone()).unwrap();
        assert!(is_about(end, after), "{end:?} with {options:?}");
    }
}

#[test]
fn without_an_answer_a_renewal_is_tried_again_soon_and_then_lost() {
    let rig = Rig::start(1);
    let inner = rig.lease(options());
    rig.proxies[0].refuse();
    let wait = rig.wait(inner.tick());
    assert!(wait <= retry_pause(LEASE), "{wait:?}");
    assert_eq!(inner.state(), LeaseState::Suspended);
    inner.check().unwrap();
    rig.clock.sleep_through(LEASE);
    assert_eq!(reason(&inner), Some(LostReason::Unreachable));
}

#[test]
fn a_lock_that_was_taken_and_one_that_was_deleted_are_told_apart() {
    let rig = Rig::start(3);
    for (nth, wanted) in [LostReason::Deleted, LostReason::Taken].into_iter().enumerate() {
        let inner = rig.lease(options());
        for server in &rig.servers[nth..nth + 2] {
            assert!(server.del(KEY));
        }
        if wanted == LostReason::Taken {
            rig.servers[1].set(KEY, "other");
        }
        assert_eq!(inner.tick(), Tick::NEVER);
        assert_eq!(reason(&inner), Some(wanted));
        assert!(inner.remaining().is_zero());
        assert!(rig.release(&inner).is_err());
        rig.servers[1].del(KEY);
    }
}

#[test]
fn a_renewal_that_comes_back_after_the_end_is_too_late() {
    let rig = Rig::start(1);
    let inner = rig.lease(options());
    let held = rig.proxies[0].on("extend", Act::HoldReply);
    std::thread::scope(|scope| {
        let tick = scope.spawn(|| inner.tick());
        held.wait_hit(SOON);
        rig.clock.sleep_through(LEASE * 2);
        held.release();
        assert_eq!(tick.join().unwrap(), Tick::NEVER);
    });
    assert_eq!(reason(&inner), Some(LostReason::Expired));
}

#[test]
fn handlers_of_a_loss_are_called_once() {
    let rig = Rig::start(1);
    let inner = rig.lease(options());
    let calls = Arc::new(AtomicUsize::new(0));
    let count = || {
        let calls = Arc::clone(&calls);
        move |error: Error| {
            assert!(error.is_lost());
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    inner.on_lost(0, Box::new(count()));
    inner.on_lost(0, Box::new(|_| std::panic::resume_unwind(Box::new("a handler's own"))));
    inner.on_lost(0, Box::new(count()));
    inner.state();
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    rig.clock.sleep_through(LEASE);
    assert_eq!(inner.state(), LeaseState::Lost(LostReason::Expired));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    inner.on_lost(0, Box::new(count()));
    inner.check().unwrap_err();
    assert_eq!(calls.load(Ordering::SeqCst), 3, "it was lost already");
}

#[test]
fn a_node_that_forgot_is_filled_again() {
    let rig = Rig::start(3);
    let inner = rig.lease(options());
    inner.tick();
    assert_eq!(rig.proxies[2].count("acquire"), 1, "nothing had to be filled");
    assert!(rig.servers[2].del(KEY));
    inner.tick();
    assert_eq!(rig.servers[2].get(KEY).as_deref(), Some(inner.id.as_str()));
    assert!(is_about(rig.time_to_live(2), LEASE));
    assert_eq!(rig.proxies[0].count("acquire"), 1, "a node that has it is not asked");
    assert_eq!(rig.servers[2].keys(), [KEY], "no fence was asked for");
}

#[test]
fn a_node_that_forgot_gets_the_fence_too() {
    let rig = Rig::start(3);
    let inner = rig.lease(options());
    let fence = inner.fencing_token().unwrap();
    rig.servers[2].ask::<()>(&redis::cmd("FLUSHALL"));
    inner.tick();
    let stored: u64 = rig.servers[2].get("{k}:fence").unwrap().parse().unwrap();
    assert!(stored >= fence, "{stored} < {fence}");
}

#[test]
fn a_fence_round_that_finds_a_node_without_the_lock_brings_the_end_nearer() {
    let rig = Rig::start(3);
    let inner = rig.lease(options());
    rig.clock.sleep_through(LEASE / 2);
    rig.proxies[2].refuse();
    inner.tick();
    assert!(is_about(inner.remaining(), LEASE), "two nodes were renewed");
    rig.proxies[2].heal();
    assert!(rig.servers[0].del(KEY));
    redlock_tests::eventually("the third node is asked again", SOON, || {
        let found = inner.fencing_token().is_ok();
        found && rig.proxies[2].count("fence") > 0
    });
    assert!(inner.remaining() <= LEASE / 2, "only the third node's older lease is left: {:?}", inner.remaining());
}

#[test]
fn a_lease_that_misses_a_node_is_looked_at_soon() {
    let rig = Rig::start(3);
    rig.proxies[2].refuse();
    let inner = rig.lease(options());
    assert!(rig.wait(inner.first_due()) <= retry_pause(LEASE));
}

#[test]
fn a_minimum_hold_outlives_the_release() {
    let rig = Rig::start(1);
    let inner = rig.lease(LockOptions { min_hold: LEASE / 2, ..options() });
    rig.clock.sleep_through(LEASE / 4);
    assert_eq!((rig.release(&inner), rig.release_again()), (Ok(()), false));
    assert!(is_about(rig.time_to_live(0), LEASE / 4));
    let other = rig.servers[0].del(KEY).then(|| rig.lease(LockOptions { min_hold: LEASE / 2, ..options() })).unwrap();
    rig.clock.sleep_through(LEASE / 2);
    assert_eq!(rig.release(&other), Ok(()));
    assert_eq!(rig.servers[0].get(KEY), None, "the minimum hold was over");
}

#[test]
fn what_a_release_finds_is_told() {
    let rig = Rig::start(3);
    let deleted = rig.lease(options());
    for server in &rig.servers {
        assert!(server.del(KEY));
    }
    let told = Arc::new(AtomicUsize::new(0));
    let count = || {
        let told = Arc::clone(&told);
        Box::new(move |_| _ = told.fetch_add(1, Ordering::SeqCst))
    };
    deleted.on_lost(0, count());
    assert_eq!(rig.release(&deleted).unwrap_err().lost_reason(), Some(LostReason::Deleted));
    assert_eq!(told.load(Ordering::SeqCst), 1, "the handlers too");
    assert!(deleted.take_handlers(0).is_empty(), "they were called");
    let held = rig.lease(options());
    held.on_lost(0, count());
    assert_eq!(held.take_handlers(0).len(), 1);
    held.on_lost(0, count());
    rig.proxies[0].refuse();
    assert_eq!((rig.release(&held), rig.release_again()), (Ok(()), true), "a majority is enough, but one may have it");
    assert_eq!(told.load(Ordering::SeqCst), 1, "it was not lost");
    rig.proxies[0].heal();
    rig.servers[0].del(KEY);
    let unanswered = rig.lease(options());
    rig.proxies[1..].iter().for_each(Proxy::refuse);
    match rig.release(&unanswered) {
        Err(Error::Unconfirmed { confirmed: 0 | 1, of: 3, nodes, .. }) => assert!(nodes.len() >= 2, "{nodes:?}"),
        other => panic!("{other:?}"),
    }
}

/// Otherwise each key of a client would have a pending token while one server is down.
#[test]
fn a_node_that_was_down_all_the_time_keeps_no_token() {
    let rig = Rig::start(3);
    rig.proxies[2].refuse();
    assert_eq!((rig.release(&rig.lease(options())), rig.release_again()), (Ok(()), false));
}

#[test]
fn a_release_does_not_wait_for_ever_for_a_round_under_way() {
    let rig = Rig::start(1);
    let inner = rig.lease(options());
    let rounds = inner.rounds.lock();
    let release = || std::thread::scope(|scope| scope.spawn(|| inner.release(SECOND / 10, &rig.pending)).join());
    let released = release().unwrap();
    assert!(matches!(released, Err(Error::Unconfirmed { confirmed: 0, of: 1, .. })), "{released:?}");
    assert!(!rig.release_again(), "the round under way may set it once more");
    drop(rounds);
    assert!(rig.release_again());
    assert_eq!(inner.state(), LeaseState::Released);
    redlock_tests::eventually("it is released", SOON, || rig.servers[0].get(KEY).is_none());
    let lost = rig.lease(options());
    let rounds = lost.rounds.lock();
    rig.clock.sleep_through(LEASE);
    let release = || std::thread::scope(|scope| scope.spawn(|| lost.release(SECOND / 10, &rig.pending)).join());
    assert_eq!(release().unwrap().unwrap_err().lost_reason(), Some(LostReason::Expired));
    drop(rounds);
}
