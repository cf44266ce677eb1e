//! N servers, each behind its own proxy.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Builder, Error, Lease, LostReason, Redlock};
use redlock_tests::{Proxy, Seen, Server, Stopwatch, Took, poll, servers};

/// The longest wait for an event that must happen. It suffices on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);
/// The time that a busy machine may add to a bounded duration.
pub(super) const SLACK: Duration = Duration::from_secs(3);
/// The node timeout is longer than the library's default, so that a busy machine does not make a node look dead.
pub(super) const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
/// The lease is long enough for renewals on a busy machine, and short enough for a test to wait for its end.
pub(super) const LEASE: Duration = Duration::from_millis(4500);
pub(super) const KEY: &str = "order:42";

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Servers and their proxies. A proxy records the traffic and can inject faults.
pub(super) struct Rig {
    pub(super) servers: Vec<Server>,
    pub(super) proxies: Vec<Proxy>,
}

impl Rig {
    pub(super) fn start(n: usize) -> Rig {
        let servers = servers(n);
        let proxies = servers.iter().map(Proxy::start).collect();
        Rig { servers, proxies }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// A builder whose nodes are the proxies. The restart guard is off because these servers have just started, at
    /// slightly different times.
    pub(super) fn builder(&self) -> Builder {
        Redlock::builder().nodes(self.urls()).restart_guard(false).node_timeout(NODE_TIMEOUT)
    }

    pub(super) fn client(&self) -> Redlock {
        self.builder().build().unwrap()
    }

    /// A client that connects to the servers directly.
    pub(super) fn other_client(&self) -> Redlock {
        let direct = Redlock::builder().nodes(self.servers.iter().map(Server::url));
        direct.restart_guard(false).node_timeout(NODE_TIMEOUT).build().unwrap()
    }

    pub(super) fn majority(&self) -> &[Server] {
        &self.servers[..=self.servers.len() / 2]
    }

    /// The number of servers that may keep a key although the lock is not held.
    pub(super) fn minority(&self) -> usize {
        self.servers.len() - self.majority().len()
    }

    /// The number of script calls that the proxies received.
    pub(super) fn calls(&self) -> usize {
        let scripts = ["acquire", "extend", "release", "fence", "inspect"];
        self.proxies.iter().map(|proxy| scripts.iter().map(|name| proxy.count(name)).sum::<usize>()).sum()
    }

    /// The time until a majority of the servers is free without renewals.
    pub(super) fn free_in(&self, key: &str) -> Duration {
        let mut left: Vec<_> = self.servers.iter().map(|server| server.pttl(key).unwrap_or_default()).collect();
        left.sort_unstable();
        left[self.majority().len() - 1]
    }

    /// All calls with this token after its `unlock` returned, except releases. The client repeats a release until every
    /// node has confirmed it.
    pub(super) fn sent_after(&self, token: &str, returned: Instant) -> Vec<Seen> {
        let mut sent = self.sent_for(token);
        sent.retain(|seen| seen.at > returned && seen.name != "release");
        sent
    }

    /// Whether a majority of the servers has this token under the key.
    pub(super) fn is_held_by(&self, key: &str, token: &str) -> bool {
        let has = |server: &&Server| server.holder(key).as_deref() == Some(token);
        self.servers.iter().filter(has).count() >= self.majority().len()
    }

    /// The number of servers that have the key.
    pub(super) fn holding(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| exists(server, key)).count()
    }

    pub(super) fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    /// All calls for this token.
    pub(super) fn sent_for(&self, token: &str) -> Vec<Seen> {
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

pub(super) fn exists(server: &Server, key: &str) -> bool {
    server.ask::<bool>(cmd("EXISTS").arg(key))
}

/// Runs the test for all numbers of servers in parallel, because the tests mostly wait.
pub(super) fn for_sizes(sizes: &[usize], test: impl Fn(&Rig) + Sync) {
    thread::scope(|scope| {
        for &n in sizes {
            let test = &test;
            thread::Builder::new().name(format!("N = {n}")).spawn_scoped(scope, move || test(&Rig::start(n))).unwrap();
        }
    });
}

/// Returns the result of `work` and how long it took.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let start = Stopwatch::start();
    (work(), start.elapsed())
}

pub(super) fn err<T>(result: Result<T, Error>) -> Error {
    result.map(drop).unwrap_err()
}

/// Waits until the lease is lost. Returns the reason, and when `check` first returned it.
pub(super) fn lost(lease: &Lease) -> (LostReason, Instant) {
    let found = poll(SOON, || lease.check().err().map(|error| (error, Instant::now())));
    let (error, at) = found.expect("the lock is never lost");
    (error.lost_reason().unwrap_or_else(|| panic!("{error}")), at)
}

/// Asserts that the condition holds throughout the time `long`.
pub(super) fn stays(what: &str, long: Duration, mut holds: impl FnMut() -> bool) {
    let broken = poll(long, || (!holds()).then_some(()));
    assert!(broken.is_none(), "this did not hold for {long:?}: {what}");
}
