//! Tests of clients against real servers, on a clock that the test moves. They show a machine that sleeps (fault 13 of
//! `guarantees.md`).

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redlock_tests::{Act, Fault, Proxy, Server, eventually, servers};

use crate::clock::{Clock, SystemClock, Tick};
use crate::node::{NodeUrl, Nodes};
use crate::options::ClientOptions;
use crate::quorum::Quorum;
use crate::{Error, Lease, LeaseState, LostReason, Mutex, MutexGuard, Redlock, ReentrantMutex, ReentrantMutexGuard};

const KEY: &str = "order:42";
const SOON: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(60);
/// A time that is too short for a request to a server that answers after [`SOON`] or never.
const NO_IO: Duration = Duration::from_millis(300);

/// The clock of a machine that has slept. It is ahead by the time of the sleep.
#[derive(Debug, Default)]
pub(crate) struct Sleeper(AtomicU64);

impl Sleeper {
    /// Lets the machine sleep for this time. In real time, the sleep takes no time, and no thread of the machine
    /// notices it.
    pub(crate) fn sleep_through(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Sleeper {
    fn now(&self) -> Tick {
        SystemClock.now().after(Duration::from_nanos(self.0.load(Ordering::SeqCst)))
    }

    fn sleep(&self, d: Duration) {
        SystemClock.sleep(d);
    }
}

/// The nodes at these URLs, for tests of one layer.
pub(crate) fn quorum(urls: impl Iterator<Item = String>, settings: ClientOptions, clock: Arc<dyn Clock>) -> Quorum {
    let urls: Vec<_> = urls.map(|url| NodeUrl::parse(&url).unwrap()).collect();
    Quorum::new(Nodes::new(&urls, &settings, &clock).unwrap(), clock, settings)
}

/// The part of the guard contract that these tests need.
trait Kind {
    type Guard: Deref<Target = Lease> + Debug;

    fn try_lock(locks: &Redlock) -> Result<Self::Guard, Error>;
    fn unlock(guard: Self::Guard) -> Result<(), Error>;
}

macro_rules! kind {
    ($handle:ty, $guard:ty, $open:ident) => {
        impl Kind for $handle {
            type Guard = $guard;

            fn try_lock(locks: &Redlock) -> Result<$guard, Error> {
                locks.$open(KEY).try_lock()
            }
            fn unlock(guard: $guard) -> Result<(), Error> {
                guard.unlock().map(drop)
            }
        }
    };
}

kind!(Mutex, MutexGuard, mutex);
kind!(ReentrantMutex, ReentrantMutexGuard, reentrant_mutex);

/// Servers, each behind a proxy, and a client of them on a machine that can sleep.
struct Rig {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    machine: Arc<Sleeper>,
    locks: Redlock,
}

impl Rig {
    fn start(n: usize) -> Rig {
        let servers = servers(n);
        let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
        let machine = Arc::new(Sleeper::default());
        let clock = Arc::clone(&machine);
        let locks = settings(proxies.iter().map(Proxy::url)).build_by(clock).unwrap();
        Rig { servers, proxies, machine, locks }
    }

    /// A client on another machine.
    fn elsewhere(&self) -> Redlock {
        settings(self.servers.iter().map(Server::url)).build().unwrap()
    }

    /// The number of calls that the sleeping machine sent. The calls of a new connection do not count, since one can be
    /// made at any time.
    fn calls(&self) -> usize {
        self.proxies.iter().flat_map(Proxy::seen).filter(|call| !["INFO", "EVAL"].contains(&&*call.name)).count()
    }

    fn has(&self, token: &str) -> bool {
        self.servers.iter().all(|server| server.get(KEY).as_deref() == Some(token))
    }

    fn is_free(&self) -> bool {
        self.servers.iter().all(|server| server.get(KEY).is_none())
    }
}

fn settings(urls: impl Iterator<Item = String>) -> crate::Builder {
    Redlock::builder().nodes(urls).restart_guard(false).lease(LEASE).node_timeout(SOON)
}

fn for_sizes(sizes: &[usize], test: impl Fn(&Rig) + Sync) {
    thread::scope(|scope| {
        for &n in sizes {
            let test = &test;
            scope.spawn(move || test(&Rig::start(n)));
        }
    });
}

fn lost_reason<T: Debug>(result: Result<T, Error>) -> Option<LostReason> {
    result.unwrap_err().lost_reason()
}

fn fault_13_a_machine_sleeps_longer_than_its_lease<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        let guard = K::try_lock(&rig.locks).unwrap();
        let fence = guard.fencing_token().unwrap();
        // On the servers, the lease ends, and another client acquires the lock.
        rig.machine.sleep_through(LEASE);
        assert!(rig.servers.iter().all(|server| server.del(KEY)));
        let other = rig.elsewhere();
        let other = K::try_lock(&other).unwrap();
        assert!(other.fencing_token().unwrap() > fence, "a resource refuses the sleeper's writes");
        // The machine wakes up when no server can be asked.
        rig.proxies.iter().for_each(Proxy::black_hole);
        let calls = rig.calls();
        let asked = SystemClock.now();
        assert_eq!(lost_reason(guard.check()), Some(LostReason::Expired));
        assert_eq!(lost_reason(guard.fencing_token()), Some(LostReason::Expired));
        assert_eq!(lost_reason(guard.extend(LEASE)), Some(LostReason::Expired));
        let took = SystemClock.now().since(asked);
        assert!(took < NO_IO, "{took:?}");
        assert_eq!(rig.calls(), calls, "the loss was told before any I/O");
        assert!(guard.remaining().is_zero());
        rig.proxies.iter().for_each(Proxy::heal);
        assert_eq!(lost_reason(K::unlock(guard)), Some(LostReason::Expired));
        assert!(rig.has(other.id().as_str()), "the new holder's key is left alone");
        other.check().unwrap();
        K::unlock(other).unwrap();
        assert!(rig.is_free());
    });
}

/// The sleep ends before the lease. The renewal that is due is then made.
fn fault_13_a_machine_sleeps_for_a_part_of_its_lease<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        let guard = K::try_lock(&rig.locks).unwrap();
        rig.machine.sleep_through(LEASE / 2);
        guard.check().unwrap();
        assert!(guard.remaining() < LEASE / 2);
        eventually("the lease is renewed", SOON, || guard.remaining() > LEASE * 9 / 10);
        assert_eq!(guard.state(), LeaseState::Held);
        K::unlock(guard).unwrap();
        // Some servers may not count. If a spare connection was being made during the sleep, it has timed out, and its
        // node is left out for a moment.
        let free = rig.servers.iter().filter(|server| server.get(KEY).is_none()).count();
        assert!(free > rig.servers.len() / 2, "free on {free}");
        K::unlock(K::try_lock(&rig.elsewhere()).unwrap()).unwrap();
    });
}

/// The vote was given before the sleep and is read after it, so it does not count.
fn fault_13_a_machine_sleeps_within_an_acquire<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        // The connections exist already, so the proxies hold back only the replies.
        K::unlock(K::try_lock(&rig.locks).unwrap()).unwrap();
        let held: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on("acquire", Act::HoldReply)).collect();
        thread::scope(|scope| {
            let attempt = scope.spawn(|| K::try_lock(&rig.locks).map(drop).unwrap_err());
            for fault in &held {
                fault.wait_hit(SOON);
            }
            rig.machine.sleep_through(LEASE);
            held.iter().for_each(Fault::release);
            let error = attempt.join().unwrap();
            assert!(error.is_unavailable(), "{error}");
        });
        eventually("nothing is left behind", SOON, || rig.is_free());
        K::unlock(K::try_lock(&rig.locks).unwrap()).unwrap();
    });
}

macro_rules! each_kind {
    ($($test:ident),+ $(,)?) => {
        mod mutex {
            $(#[test] fn $test() { super::$test::<crate::Mutex>() })+
        }
        mod reentrant_mutex {
            $(#[test] fn $test() { super::$test::<crate::ReentrantMutex>() })+
        }
    };
}

each_kind!(
    fault_13_a_machine_sleeps_longer_than_its_lease,
    fault_13_a_machine_sleeps_for_a_part_of_its_lease,
    fault_13_a_machine_sleeps_within_an_acquire,
);
