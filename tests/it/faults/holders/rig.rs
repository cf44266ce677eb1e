//! N servers, each behind a proxy of its own.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Builder, Error, Lease, LostReason, Redlock};
use redlock_tests::{Proxy, Seen, Server, Stopwatch, Took, poll, servers};

/// The longest wait where something must happen, however busy the machine is.
pub(super) const SOON: Duration = Duration::from_secs(20);
/// What a busy machine may add to a time that is bounded.
pub(super) const SLACK: Duration = Duration::from_secs(3);
/// More than the library's default: a busy machine shall not make a node look dead.
pub(super) const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
/// A lease that a busy machine renews in time, and a test can wait for.
pub(super) const LEASE: Duration = Duration::from_millis(4500);
pub(super) const KEY: &str = "order:42";

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The servers; what goes over a proxy can be seen and injured.
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

    /// Without the guard against restarts: these servers were all started just now, some a moment before the others.
    pub(super) fn builder(&self) -> Builder {
        Redlock::builder().nodes(self.urls()).restart_guard(false).node_timeout(NODE_TIMEOUT)
    }

    pub(super) fn client(&self) -> Redlock {
        self.builder().build().unwrap()
    }

    /// A client that does not go by way of the proxies.
    pub(super) fn other_client(&self) -> Redlock {
        let direct = Redlock::builder().nodes(self.servers.iter().map(Server::url));
        direct.restart_guard(false).node_timeout(NODE_TIMEOUT).build().unwrap()
    }

    pub(super) fn majority(&self) -> &[Server] {
        &self.servers[..=self.servers.len() / 2]
    }

    /// How many servers may keep a key without it being held.
    pub(super) fn minority(&self) -> usize {
        self.servers.len() - self.majority().len()
    }

    /// How many calls of scripts came in: all that locks say.
    pub(super) fn calls(&self) -> usize {
        let scripts = ["acquire", "extend", "release", "fence", "inspect"];
        self.proxies.iter().map(|proxy| scripts.iter().map(|name| proxy.count(name)).sum::<usize>()).sum()
    }

    /// After which time a majority of the servers is free without renewals.
    pub(super) fn free_in(&self, key: &str) -> Duration {
        let mut left: Vec<_> = self.servers.iter().map(|server| server.pttl(key).unwrap_or_default()).collect();
        left.sort_unstable();
        left[self.majority().len() - 1]
    }

    /// What was sent for a token after its `unlock` returned, but for releases: those that some node has not confirmed are repeated.
    pub(super) fn sent_after(&self, token: &str, returned: Instant) -> Vec<Seen> {
        let mut sent = self.sent_for(token);
        sent.retain(|seen| seen.at > returned && seen.name != "release");
        sent
    }

    /// Whether a majority has this token at the key.
    pub(super) fn is_held_by(&self, key: &str, token: &str) -> bool {
        let has = |server: &&Server| server.holder(key).as_deref() == Some(token);
        self.servers.iter().filter(has).count() >= self.majority().len()
    }

    /// On how many servers the key is.
    pub(super) fn holding(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| exists(server, key)).count()
    }

    pub(super) fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    /// All scripts that were sent for a token; as an orphan of another attempt it can be sent later.
    pub(super) fn sent_for(&self, token: &str) -> Vec<Seen> {
        let all = self.proxies.iter().flat_map(Proxy::seen);
        all.filter(|seen| own_token(seen) == Some(token)).collect()
    }
}

/// The token of a script's call: its first argument behind the digest, the number of keys, and the keys; behind a letter, if it is for a read-write lock.
fn own_token(seen: &Seen) -> Option<&str> {
    let Ok(keys) = seen.args.get(1)?.parse::<usize>() else {
        // What is no script has the token behind the key.
        return seen.args.get(1).map(String::as_str).filter(|_| seen.name == "acquire");
    };
    seen.args.iter().skip(2 + keys).map(String::as_str).find(|word| !matches!(*word, "r" | "w"))
}

pub(super) fn exists(server: &Server, key: &str) -> bool {
    server.ask::<bool>(cmd("EXISTS").arg(key))
}

/// Runs the test for each number of servers at the same time: most of it is waiting.
pub(super) fn for_sizes(sizes: &[usize], test: impl Fn(&Rig) + Sync) {
    thread::scope(|scope| {
        for &n in sizes {
            let test = &test;
            thread::Builder::new().name(format!("N = {n}")).spawn_scoped(scope, move || test(&Rig::start(n))).unwrap();
        }
    });
}

/// How long it took.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let start = Stopwatch::start();
    (work(), start.elapsed())
}

pub(super) fn err<T>(result: Result<T, Error>) -> Error {
    result.map(drop).unwrap_err()
}

/// Waits until the lease is lost; for which reason, and when that was seen.
pub(super) fn lost(lease: &Lease) -> (LostReason, Instant) {
    let found = poll(SOON, || lease.check().err().map(|error| (error, Instant::now())));
    let (error, at) = found.expect("the lock is never lost");
    (error.lost_reason().unwrap_or_else(|| panic!("{error}")), at)
}

/// For this long the condition holds whenever one looks.
pub(super) fn stays(what: &str, long: Duration, mut holds: impl FnMut() -> bool) {
    let broken = poll(long, || (!holds()).then_some(()));
    assert!(broken.is_none(), "did not stay so for {long:?}: {what}");
}
