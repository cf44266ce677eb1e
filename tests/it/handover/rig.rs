//! Servers behind proxies, and clients that act like separate processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Proxy, Server, Stopwatch, Took, eventually, servers};

pub(crate) const KEY: &str = "order:42";
/// The longest wait for an event that must happen. It suffices on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The time that a busy machine may add to a bounded duration.
pub(crate) const SLACK: Duration = Duration::from_secs(3);
/// The time after the end of a lease within which a waiter must have noticed it. A client checks once a second.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_secs(5);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// N servers, each behind its own proxy.
pub(crate) struct Rig {
    pub(crate) servers: Vec<Server>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Rig {
    pub(crate) fn start(n: usize) -> Rig {
        let servers = servers(n);
        let proxies = servers.iter().map(Proxy::start).collect();
        Rig { servers, proxies }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    pub(crate) fn proxy_urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// A client that connects through the proxies.
    pub(crate) fn watched(&self) -> Redlock {
        settings(&self.proxy_urls()).build().unwrap()
    }

    /// A client that connects to the servers directly.
    pub(crate) fn client(&self) -> Redlock {
        settings(&self.urls()).build().unwrap()
    }

    /// The number of waits in a node's queues.
    pub(crate) fn blocked(&self, node: usize) -> usize {
        let keys: Vec<String> = self.servers[node].ask(cmd("KEYS").arg("*:waits"));
        let waits = |key: &String| -> Vec<String> { self.servers[node].ask(cmd("ZRANGE").arg(key).arg(0).arg(-1)) };
        keys.iter().flat_map(waits).filter(|wait| !wait.starts_with('*')).count()
    }

    pub(crate) fn until_blocked(&self, node: usize, n: usize) {
        eventually(&format!("{n} clients wait for a notification"), SOON, || self.blocked(node) == n);
    }

    /// The number of servers that have the key.
    pub(crate) fn holding(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| server.ask::<bool>(cmd("EXISTS").arg(key))).count()
    }

    /// The number of servers that have this token under the key.
    pub(crate) fn having(&self, key: &str, token: &str) -> usize {
        self.servers.iter().filter(|server| server.get(key).as_deref() == Some(token)).count()
    }

    /// Asserts that every key left by killed processes expires, and that the lock can be taken at once.
    pub(crate) fn assert_to_be_had(&self, key: &str) {
        for server in &self.servers {
            for left in server.keys() {
                let is_there = || server.ask::<bool>(cmd("EXISTS").arg(&left));
                assert!(server.pttl(&left).is_some() || !is_there(), "{left} never ends");
            }
        }
        self.client().mutex(key).try_lock().expect("the lock is to be had").unlock().unwrap();
    }

    /// Asserts that only helper keys that expire are left, and that the lock can be taken at once.
    pub(crate) fn assert_free(&self, key: &str) {
        self.assert_free_but(key, &[]);
    }

    /// Does the same as `assert_free`, but allows the keys in `others`.
    pub(crate) fn assert_free_but(&self, key: &str, others: &[&str]) {
        // With several nodes, a grant can reach one node after its waiter got the lock there. The waiter does not need
        // that node.
        let spare = (self.servers.len() - 1) / 2;
        assert!(self.holding(key) <= spare, "the lock is still taken on {} nodes", self.holding(key));
        for server in &self.servers {
            for left in server.keys().into_iter().filter(|left| !others.contains(&left.as_str())) {
                let is_helper = [":fence", ":waits"].iter().any(|end| left.ends_with(end));
                assert!(is_helper || self.holding(&left) <= spare, "{left} is left");
                // The key may have expired since the keys were listed.
                let is_there = || server.ask::<bool>(cmd("EXISTS").arg(&left));
                assert!(server.pttl(&left).is_some() || !is_there(), "{left} never ends");
            }
        }
        self.client().mutex(key).try_lock().expect("the lock is free").unlock().unwrap();
    }
}

/// Settings without the restart guard, because these servers have just started. The node timeout is long for a busy
/// machine.
pub(crate) fn settings(urls: &[String]) -> Builder {
    Redlock::builder().nodes(urls).restart_guard(false).node_timeout(Duration::from_secs(2))
}

/// A client with a short lease, and a node timeout that fits it.
pub(crate) fn brisk(urls: &[String], lease: Duration) -> Redlock {
    Redlock::builder()
        .nodes(urls)
        .restart_guard(false)
        .node_timeout((lease / 3).max(ms(400)).min(ms(2000)))
        .lease(lease)
        .build()
        .unwrap()
}

/// Calls all methods of one lock. Afterwards the servers have loaded the scripts, so each call is one command.
pub(crate) fn warm(locks: &Redlock) {
    let lock = locks.mutex("warm-up");
    let guard = lock.lock().unwrap();
    guard.fencing_token().unwrap();
    guard.extend(Duration::from_secs(60)).unwrap();
    assert!(lock.is_locked().unwrap());
    thread::scope(|scope| {
        // A waiter makes the release use its script.
        let waiter = scope.spawn(|| lock.try_lock_for(ms(5)).map(drop));
        drop(waiter.join().unwrap());
    });
    guard.unlock().unwrap();
}

/// Runs the test for all numbers of servers in parallel, because the tests mostly wait.
pub(crate) fn for_sizes(sizes: &[usize], test: impl Fn(&Rig) + Sync) {
    thread::scope(|scope| {
        for &n in sizes {
            let test = &test;
            thread::Builder::new().name(format!("N = {n}")).spawn_scoped(scope, move || test(&Rig::start(n))).unwrap();
        }
    });
}

/// Returns the result of `work` and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let start = Stopwatch::start();
    (work(), start.elapsed())
}

/// The path of this thread in `/proc`, for [`until_asleep`].
pub(crate) fn this_thread() -> PathBuf {
    fs::read_link("/proc/thread-self").unwrap()
}

/// Waits until the thread was seen asleep ten times in a row. It then waits in the queue, because it does no I/O before
/// that.
pub(crate) fn until_asleep(thread: &Path) {
    let stat = Path::new("/proc").join(thread).join("stat");
    let mut calm = 0;
    eventually("the thread waits in the queue", SOON, || {
        let text = fs::read_to_string(&stat).unwrap();
        let sleeps = text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        calm = if sleeps { calm + 1 } else { 0 };
        calm >= 10
    });
}
