//! Helpers of the fault tests: clients, and checks of when a lock is lost.

use std::time::{Duration, Instant};

use redlock_sync::{Builder, ConfigKind, Error, Lease, LeaseState, LostReason, Redlock};
use redlock_tests::{Proxy, Seen, Server, Stopwatch, eventually, poll};

use crate::kinds::Kind;
pub(crate) use crate::rig::{Rig, exists, for_each, for_sizes, ms, timed};

pub(crate) const KEY: &str = "order:42";
/// The longest wait for a condition that normally takes milliseconds. It suffices on a machine that runs other tests
/// too.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// A lease that is renewed every 1.5 s. It outlasts short stalls of the machine, and a test can wait for its end.
pub(crate) const LEASE: Duration = Duration::from_millis(4500);
/// A lease that has to last while servers restart. A restart can take seconds if five tests restart servers at once.
/// The client renews this lease every three seconds.
pub(crate) const ROOMY: Duration = Duration::from_secs(9);
/// A lease that no test waits for. If its key disappears earlier, the lease has not expired.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The node timeout is longer than the client's default, so that a stall of the machine does not look like a fault of a
/// node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time that the machine may add to a bounded wait.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// The time that the machine may add while many threads work.
pub(crate) const MORE_SLACK: Duration = Duration::from_secs(3);

impl Rig {
    /// A builder whose nodes are the proxies. The restart guard is off because the servers of a test are younger than
    /// its leases.
    pub(crate) fn builder(&self) -> Builder {
        Redlock::builder().nodes(self.proxy_urls()).restart_guard(false).node_timeout(NODE_TIMEOUT)
    }

    /// A builder whose nodes are the servers.
    pub(crate) fn direct(&self) -> Builder {
        Redlock::builder().nodes(self.urls()).restart_guard(false).node_timeout(NODE_TIMEOUT)
    }

    /// A client with the default lease.
    pub(crate) fn through(&self) -> Redlock {
        self.builder().build().unwrap()
    }

    /// A client with the lease `LEASE`.
    pub(crate) fn open(&self) -> Redlock {
        self.builder().lease(LEASE).build().unwrap()
    }

    /// A client that already has connections to all nodes. The servers have already loaded the scripts.
    pub(crate) fn open_warm<K: Kind>(&self) -> Redlock {
        let locks = self.open();
        warm::<K>(&locks, LEASE);
        locks
    }

    /// A client like that of `open`, which connects to the servers directly.
    pub(crate) fn open_direct(&self) -> Redlock {
        self.direct().lease(LEASE).build().unwrap()
    }

    /// A client like that of `through`, which connects to the servers directly.
    pub(crate) fn other_client(&self) -> Redlock {
        self.direct().build().unwrap()
    }

    /// The number of nodes in a majority.
    pub(crate) fn need(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// The number of nodes that may fail while a majority remains.
    pub(crate) fn spare(&self) -> usize {
        self.servers.len() - self.need()
    }

    pub(crate) fn majority(&self) -> &[Server] {
        &self.servers[..self.need()]
    }

    /// The number of commands with this name that all proxies together received.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.proxies.iter().map(|proxy| proxy.count(name)).sum()
    }

    /// The number of releases of this token that all proxies together received. Releases of other tokens can come at
    /// any time, because the client repeats unconfirmed ones.
    pub(crate) fn releases_of(&self, token: &str) -> usize {
        let all = self.proxies.iter().flat_map(Proxy::seen);
        all.filter(|seen| seen.name == "release" && seen.args.iter().any(|arg| arg == token)).count()
    }

    /// Whether no node has the key.
    pub(crate) fn is_free(&self, key: &str) -> bool {
        self.holding(key) == 0
    }

    /// Whether a majority of the nodes has this token under the key.
    pub(crate) fn is_held_by(&self, key: &str, token: &str) -> bool {
        self.having(key, token) >= self.need()
    }

    /// The number of script calls that the proxies received.
    pub(crate) fn calls(&self) -> usize {
        let scripts = ["acquire", "extend", "release", "fence", "inspect"];
        self.proxies.iter().map(|proxy| scripts.iter().map(|name| proxy.count(name)).sum::<usize>()).sum()
    }

    /// The time until a majority of the nodes is free without renewals.
    pub(crate) fn free_in(&self, key: &str) -> Duration {
        let mut left: Vec<_> = self.servers.iter().map(|server| server.pttl(key).unwrap_or_default()).collect();
        left.sort_unstable();
        left[self.need() - 1]
    }

    /// All calls with this token after its `unlock` returned, except releases. The client repeats a release until every
    /// node has confirmed it.
    pub(crate) fn sent_after(&self, token: &str, returned: Instant) -> Vec<Seen> {
        let mut sent = self.sent_for(token);
        sent.retain(|seen| seen.at > returned && seen.name != "release");
        sent
    }

    pub(crate) fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    /// All calls for this token.
    pub(crate) fn sent_for(&self, token: &str) -> Vec<Seen> {
        let all = self.proxies.iter().flat_map(Proxy::seen);
        all.filter(|seen| own_token(seen) == Some(token)).collect()
    }
}

/// The token of a call. In a script's call it is the first argument after the digest, the number of keys, and the keys.
fn own_token(seen: &Seen) -> Option<&str> {
    let Ok(keys) = seen.args.get(1)?.parse::<usize>() else {
        // In a plain command, the token follows the key.
        return seen.args.get(1).map(String::as_str).filter(|_| seen.name == "acquire");
    };
    seen.args.get(2 + keys).map(String::as_str)
}

/// Calls all methods of one lock. Afterwards the client has connections to all nodes, and the servers have loaded the
/// scripts.
pub(crate) fn warm<K: Kind>(locks: &Redlock, lease: Duration) {
    let guard = K::new(locks, "warm-up").lease(lease).lock().unwrap();
    guard.extend(lease).unwrap();
    guard.fencing_token().unwrap();
    K::new(locks, "warm-up").is_locked().unwrap();
    K::unlock(guard).unwrap();
    // An acquire that raises the fence counter uses another script.
    K::unlock(K::new(locks, "warm-up").fenced(true).lease(lease).lock().unwrap()).unwrap();
}

/// Runs `work`, and asserts that it took at most `limit` plus `SLACK`.
pub(crate) fn within<T>(limit: Duration, what: &str, work: impl FnOnce() -> T) -> T {
    let start = Stopwatch::start();
    let result = work();
    let took = start.elapsed();
    assert!(took <= limit + SLACK, "{what} took {took:?}, more than {limit:?}");
    result
}

/// Waits for the first failed renewal, then for the loss as in [`lost_at_deadline`]. The caller makes sure that no
/// renewal succeeds any more.
pub(crate) fn lost_at_own_deadline<K: Kind>(guard: &K::Guard) -> (Instant, LostReason) {
    eventually("a renewal has failed", SOON, || guard.state() == LeaseState::Suspended);
    lost_at_deadline::<K>(guard)
}

/// Waits for the loss of a lease whose deadline can no longer move. Asserts that `check()` returns Ok exactly until the
/// deadline, and that `on_lost` is called then. Returns the deadline and the reason.
pub(crate) fn lost_at_deadline<K: Kind>(guard: &K::Guard) -> (Instant, LostReason) {
    let (tell, told) = std::sync::mpsc::channel();
    guard.on_lost(move |_| _ = tell.send(Instant::now()));
    // The deadline lies between `early` and `late`.
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

/// Waits for a loss that the next renewal finds, and returns the reason. The renewal comes at most a third of the lease
/// after the fault.
pub(crate) fn lost_by_renewal<K: Kind>(guard: &K::Guard, lease: Duration, fault: Instant) -> LostReason {
    let lost = poll(SOON, || guard.check().err()).expect("the lock is never lost");
    let took = fault.elapsed();
    assert!(took <= lease / 3 + NODE_TIMEOUT + SLACK, "lost {took:?} after the fault, and not by the next renewal");
    lost.lost_reason().unwrap_or_else(|| panic!("{lost}"))
}

/// The numbers and messages of all nodes in the error.
pub(crate) fn nodes_named(error: &Error) -> Vec<(usize, String)> {
    match error {
        Error::Unavailable { nodes, .. } | Error::Unconfirmed { nodes, .. } => {
            nodes.iter().map(|node| (node.node, node.message.clone())).collect()
        }
        other => panic!("no error of nodes: {other}"),
    }
}

/// Asserts that this is a `Config` error of that kind, with the node's address and its message. If servers phrase the
/// message differently, then `said` lists the phrases, separated by `|`.
pub(crate) fn assert_misuse(error: &Error, wrong: ConfigKind, address: &str, said: &str) {
    let Error::Config { message, kind } = error else { panic!("Config expected, but: {error}") };
    assert_eq!(*kind, wrong, "{error}");
    let is_said = said.split('|').any(|said| message.contains(said));
    assert!(message.contains(address) && is_said, "`{message}` lacks `{address}` or `{said}`");
}

/// Asserts that the nodes refused the call with this message, and that the error counts as an outage.
pub(crate) fn assert_refused_for_now(error: &Error, said: &str) {
    assert!(error.is_unavailable(), "{error}");
    let is_said = |text: &str| said.split('|').any(|said| text.contains(said));
    assert!(nodes_named(error).iter().all(|(_, text)| is_said(text)), "{error}");
}

/// Asserts that every method of locking fails with a `Config` error at once, not at a deadline.
pub(crate) fn refused_at_once<K: Kind>(locks: &Redlock) -> Error {
    let lock = K::new(locks, "a");
    let first = within(NODE_TIMEOUT, "lock()", || lock.lock().err().unwrap());
    let second = within(NODE_TIMEOUT, "try_lock_for()", || lock.try_lock_for(SOON).err().unwrap());
    let third = within(NODE_TIMEOUT, "try_lock()", || lock.try_lock().err().unwrap());
    let config = |error: &Error| matches!(error, Error::Config { .. });
    assert!(config(&first) && config(&second) && config(&third), "{first}; {second}; {third}");
    first
}

pub(crate) fn err<T>(result: Result<T, Error>) -> Error {
    result.map(drop).unwrap_err()
}

/// Waits until the lease is lost. Returns the reason, and when `check` first returned it.
pub(crate) fn lost(lease: &Lease) -> (LostReason, Instant) {
    let found = poll(SOON, || lease.check().err().map(|error| (error, Instant::now())));
    let (error, at) = found.expect("the lock is never lost");
    (error.lost_reason().unwrap_or_else(|| panic!("{error}")), at)
}

/// Asserts that the condition holds throughout the time `long`.
pub(crate) fn stays(what: &str, long: Duration, mut holds: impl FnMut() -> bool) {
    let broken = poll(long, || (!holds()).then_some(()));
    assert!(broken.is_none(), "this did not hold for {long:?}: {what}");
}

/// Runs the test for all numbers of nodes in parallel.
pub(crate) fn for_each_n(ns: &[usize], test: impl Fn(usize) + Sync) {
    for_each("nodes", ns, test);
}
