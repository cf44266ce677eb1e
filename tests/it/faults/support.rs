//! What the fault tests share: servers behind proxies, clients of them, and the measure of a loss.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use redlock_sync::{Builder, Error, LeaseState, LostReason, Redlock};
use redlock_tests::{Proxy, Server, Stopwatch, eventually, poll, servers};

use crate::kinds::Kind;

/// For conditions that come in milliseconds, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Renewed each 1.5 s; long enough for a machine that stutters, short enough to wait for its end.
pub(crate) const LEASE: Duration = Duration::from_millis(4500);
/// For a lease that has to last while servers start again, which can take seconds where five tests start servers at a time; renewed each three seconds.
pub(crate) const ROOMY: Duration = Duration::from_secs(9);
/// A lease that no test waits for: what goes before its end was not its end.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// More than the client's default: a stutter of the machine is no fault of a node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
/// What the machine may add to a bounded wait.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

/// N servers, each behind a proxy.
pub(crate) struct Rig {
    pub(crate) servers: Vec<Server>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Rig {
    pub(crate) fn start(n: usize) -> Rig {
        Rig::of(servers(n))
    }

    pub(crate) fn of(servers: Vec<Server>) -> Rig {
        let proxies = servers.iter().map(Proxy::start).collect();
        Rig { servers, proxies }
    }

    /// Settings of a client by way of the proxies. Without the restart guard: a server of a test is younger than its leases.
    pub(crate) fn builder(&self) -> Builder {
        Redlock::builder()
            .nodes(self.proxies.iter().map(Proxy::url))
            .restart_guard(false)
            .lease(LEASE)
            .node_timeout(NODE_TIMEOUT)
    }

    pub(crate) fn open(&self) -> Redlock {
        self.builder().build().unwrap()
    }

    /// A client that has connections to all nodes already, whose servers know the scripts.
    pub(crate) fn open_warm<K: Kind>(&self) -> Redlock {
        let locks = self.open();
        warm::<K>(&locks, LEASE);
        locks
    }

    /// A client that no proxy injures.
    pub(crate) fn open_direct(&self) -> Redlock {
        let urls = self.servers.iter().map(Server::url);
        Redlock::builder().nodes(urls).restart_guard(false).lease(LEASE).node_timeout(NODE_TIMEOUT).build().unwrap()
    }

    /// As many nodes as make a majority.
    pub(crate) fn need(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// As many nodes as can be missed.
    pub(crate) fn spare(&self) -> usize {
        self.servers.len() - self.need()
    }

    /// How many commands of that name came to all nodes.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.proxies.iter().map(|proxy| proxy.count(name)).sum()
    }

    /// How many releases of this token came to all nodes. Others can come at any time: what went unconfirmed is repeated.
    pub(crate) fn releases_of(&self, token: &str) -> usize {
        let all = self.proxies.iter().flat_map(Proxy::seen);
        all.filter(|seen| seen.name == "release" && seen.args.iter().any(|arg| arg == token)).count()
    }

    /// How many nodes have this token at the key.
    pub(crate) fn holding(&self, key: &str, token: &str) -> usize {
        self.servers.iter().filter(|server| server.holder(key).as_deref() == Some(token)).count()
    }

    /// No node has the key.
    pub(crate) fn is_free(&self, key: &str) -> bool {
        self.servers.iter().all(|server| server.holder(key).is_none())
    }
}

/// Uses a lock of its own, with all its calls: then there are connections to all nodes, and the servers know the scripts.
pub(crate) fn warm<K: Kind>(locks: &Redlock, lease: Duration) {
    let guard = K::new(locks, "warm-up").lease(lease).lock().unwrap();
    guard.extend(lease).unwrap();
    guard.fencing_token().unwrap();
    K::new(locks, "warm-up").is_locked().unwrap();
    K::unlock(guard).unwrap();
    // The acquire that raises the fence is another script.
    K::unlock(K::new(locks, "warm-up").fenced(true).lease(lease).lock().unwrap()).unwrap();
}

/// Runs the test for each number of nodes at the same time: most of it is waiting.
pub(crate) fn for_each_n(ns: &[usize], test: impl Fn(usize) + Sync) {
    for_each("nodes", ns, test);
}

/// Runs the test for each of several things at the same time.
pub(crate) fn for_each<T: Clone + Send + Debug>(what: &str, all: &[T], test: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        let test = &test;
        let spawn = |one: &T| {
            let one = one.clone();
            scope.spawn(move || test(one))
        };
        let threads: Vec<_> = all.iter().map(spawn).collect();
        for (one, thread) in all.iter().zip(threads) {
            if let Err(panic) = thread.join() {
                eprintln!("… with {one:?} {what}");
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Runs `work` and asserts that it took no longer than that, plus what the machine may add.
pub(crate) fn within<T>(limit: Duration, what: &str, work: impl FnOnce() -> T) -> T {
    let start = Stopwatch::start();
    let result = work();
    let took = start.elapsed();
    assert!(took <= limit + SLACK, "{what} took {took:?}, more than {limit:?}");
    result
}

/// No renewal succeeds any more. Waits for the loss as in [`lost_at_deadline`], from the first renewal that failed.
pub(crate) fn lost_at_own_deadline<K: Kind>(guard: &K::Guard) -> (Instant, LostReason) {
    eventually("a renewal has failed", SOON, || guard.state() == LeaseState::Suspended);
    lost_at_deadline::<K>(guard)
}

/// The lease's deadline cannot move any more. Waits for the loss and asserts that `check()` is Ok until that deadline and not a moment
/// longer, and that `on_lost` is called then. The deadline and the reason.
pub(crate) fn lost_at_deadline<K: Kind>(guard: &K::Guard) -> (Instant, LostReason) {
    let (tell, told) = std::sync::mpsc::channel();
    guard.on_lost(move |_| _ = tell.send(Instant::now()));
    // The deadline lies between the two.
    let early = Instant::now();
    let left = guard.remaining();
    let late = Instant::now() + left;
    let early = early + left;
    let reason = loop {
        let asked = Instant::now();
        match guard.check() {
            Ok(()) => assert!(asked < late, "check() was Ok after the lease's own deadline"),
            Err(error) => {
                assert!(Instant::now() >= early, "lost before the lease's own deadline");
                break error.lost_reason().unwrap_or_else(|| panic!("{error}"));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let heard = told.recv_timeout(SOON).expect("on_lost is called");
    assert!(heard <= late + SLACK, "on_lost came {:?} after the deadline", heard - late);
    assert!(matches!(guard.state(), LeaseState::Lost(_)) && guard.remaining().is_zero());
    (late, reason)
}

/// Waits for a loss that the next renewal finds: a third of the lease after the fault at the latest, and what its requests take. The reason.
pub(crate) fn lost_by_renewal<K: Kind>(guard: &K::Guard, lease: Duration, fault: Instant) -> LostReason {
    let lost = poll(SOON, || guard.check().err()).expect("lost");
    let took = fault.elapsed();
    assert!(took <= lease / 3 + NODE_TIMEOUT + SLACK, "lost {took:?} after the fault, and not by the next renewal");
    lost.lost_reason().unwrap_or_else(|| panic!("{lost}"))
}

/// The names and addresses of all nodes for which the error brings a message.
pub(crate) fn nodes_named(error: &Error) -> Vec<(usize, String)> {
    match error {
        Error::Unavailable { nodes, .. } | Error::Unconfirmed { nodes, .. } => {
            nodes.iter().map(|node| (node.node, node.message.clone())).collect()
        }
        other => panic!("no error of nodes: {other}"),
    }
}

/// Fails unless this is a `Config` error that names the node and says what it said; `|` parts what the servers' makers call it.
pub(crate) fn assert_misuse(error: &Error, address: &str, said: &str) {
    let Error::Config { message } = error else { panic!("Config expected, but: {error}") };
    let is_said = said.split('|').any(|said| message.contains(said));
    assert!(message.contains(address) && is_said, "`{message}` lacks `{address}` or `{said}`");
}

/// Asserts that a lock is not to be had, at once and not at some deadline, by none of the ways to ask for it.
pub(crate) fn refused_at_once<K: Kind>(locks: &Redlock) -> Error {
    let lock = K::new(locks, "a");
    let first = within(NODE_TIMEOUT, "lock()", || lock.lock().err().unwrap());
    let second = within(NODE_TIMEOUT, "try_lock_for()", || lock.try_lock_for(SOON).err().unwrap());
    let third = within(NODE_TIMEOUT, "try_lock()", || lock.try_lock().err().unwrap());
    let config = |error: &Error| matches!(error, Error::Config { .. });
    assert!(config(&first) && config(&second) && config(&third), "{first}; {second}; {third}");
    first
}
