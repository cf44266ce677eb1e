//! Servers behind proxies, and clients that act as processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Proxy, Server, Stopwatch, Took, eventually, servers};

pub(crate) const KEY: &str = "order:42";
/// The longest wait where something must happen, however busy the machine is.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// What a busy machine may add to a time that is bounded.
pub(crate) const SLACK: Duration = Duration::from_secs(3);
/// The library's longest wait for a notification is drawn from its half to this.
pub(crate) const LONGEST_NAP: Duration = Duration::from_secs(5);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// N servers, each behind a proxy.
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

    /// A client by way of the proxies.
    pub(crate) fn watched(&self) -> Redlock {
        settings(&self.proxy_urls()).build().unwrap()
    }

    /// A client that goes straight to the servers.
    pub(crate) fn client(&self) -> Redlock {
        settings(&self.urls()).build().unwrap()
    }

    /// How many waits a node has in its queues.
    pub(crate) fn blocked(&self, node: usize) -> usize {
        let keys: Vec<String> = self.servers[node].ask(cmd("KEYS").arg("*:queue"));
        let waits = |key: &String| -> Vec<String> { self.servers[node].ask(cmd("ZRANGE").arg(key).arg(0).arg(-1)) };
        keys.iter().flat_map(waits).filter(|wait| !wait.starts_with('*')).count()
    }

    pub(crate) fn until_blocked(&self, node: usize, n: usize) {
        eventually(&format!("{n} clients wait for a push"), SOON, || self.blocked(node) == n);
    }

    /// On how many servers the key is.
    pub(crate) fn holding(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| server.ask::<bool>(cmd("EXISTS").arg(key))).count()
    }

    /// On how many servers the key has that value.
    pub(crate) fn having(&self, key: &str, token: &str) -> usize {
        self.servers.iter().filter(|server| server.get(key).as_deref() == Some(token)).count()
    }

    /// Fails unless the lock can be had at once, whatever is left of holders that died: it ends by itself.
    pub(crate) fn assert_to_be_had(&self, key: &str) {
        for server in &self.servers {
            for left in server.keys() {
                let is_there = || server.ask::<bool>(cmd("EXISTS").arg(&left));
                assert!(server.pttl(&left).is_some() || !is_there(), "{left} never ends");
            }
        }
        self.client().mutex(key).try_lock().expect("the lock is to be had").unlock().unwrap();
    }

    /// Fails unless nothing is left but helper keys that expire, and the lock can be had at once.
    pub(crate) fn assert_free(&self, key: &str) {
        self.assert_free_but(key, &[]);
    }

    /// As that, with other keys that may be there.
    pub(crate) fn assert_free_but(&self, key: &str, others: &[&str]) {
        // On several nodes a grant can come to one of them after its taker was there, which can do without that one.
        let spare = (self.servers.len() - 1) / 2;
        assert!(self.holding(key) <= spare, "the lock is still taken on {} nodes", self.holding(key));
        for server in &self.servers {
            for left in server.keys().into_iter().filter(|left| !others.contains(&left.as_str())) {
                let is_helper = [":fence", ":queue"].iter().any(|end| left.ends_with(end));
                assert!(is_helper || self.holding(&left) <= spare, "{left} is left");
                // It can have expired since the keys were listed.
                let is_there = || server.ask::<bool>(cmd("EXISTS").arg(&left));
                assert!(server.pttl(&left).is_some() || !is_there(), "{left} never ends");
            }
        }
        self.client().mutex(key).try_lock().expect("the lock is free").unlock().unwrap();
    }
}

/// Without the guard against restarts, since these servers started just now; with a long node timeout, since the machine is busy.
pub(crate) fn settings(urls: &[String]) -> Builder {
    Redlock::builder().nodes(urls).restart_guard(false).node_timeout(Duration::from_secs(2))
}

/// For short leases.
pub(crate) fn brisk(urls: &[String], lease: Duration) -> Redlock {
    Redlock::builder()
        .nodes(urls)
        .restart_guard(false)
        .node_timeout((lease / 3).max(ms(400)).min(ms(2000)))
        .lease(lease)
        .build()
        .unwrap()
}

/// Uses a lock of its own with all its calls: the servers know the scripts then, so that each call is one command.
pub(crate) fn warm(locks: &Redlock) {
    let lock = locks.mutex("warm-up");
    let guard = lock.lock().unwrap();
    guard.fencing_token().unwrap();
    guard.extend(Duration::from_secs(60)).unwrap();
    assert!(lock.is_locked().unwrap());
    thread::scope(|scope| {
        // With a waiter, so that there is a grant.
        let waiter = scope.spawn(|| lock.try_lock_for(ms(5)).map(drop));
        drop(waiter.join().unwrap());
    });
    guard.unlock().unwrap();
}

/// Runs the test for each number of servers at the same time: most of it is waiting.
pub(crate) fn for_sizes(sizes: &[usize], test: impl Fn(&Rig) + Sync) {
    thread::scope(|scope| {
        for &n in sizes {
            let test = &test;
            thread::Builder::new().name(format!("N = {n}")).spawn_scoped(scope, move || test(&Rig::start(n))).unwrap();
        }
    });
}

/// How long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let start = Stopwatch::start();
    (work(), start.elapsed())
}

/// Tells which thread this is, for [`until_asleep`].
pub(crate) fn this_thread() -> PathBuf {
    fs::read_link("/proc/thread-self").unwrap()
}

/// Waits until a thread sleeps, and is seen asleep time and again: then it stands in the queue, as there is no I/O before that.
pub(crate) fn until_asleep(thread: &Path) {
    let stat = Path::new("/proc").join(thread).join("stat");
    let mut calm = 0;
    eventually("the thread stands in the queue", SOON, || {
        let text = fs::read_to_string(&stat).unwrap();
        let sleeps = text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        calm = if sleeps { calm + 1 } else { 0 };
        calm >= 10
    });
}
