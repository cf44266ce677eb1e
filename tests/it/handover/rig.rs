//! Servers behind proxies, and clients that act like separate processes.

use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::Redlock;
use redlock_tests::eventually;

pub(crate) use crate::rig::{Rig, for_sizes, ms, settings, this_thread, timed, until_asleep};

pub(crate) const KEY: &str = "order:42";
/// The longest wait for an event that must happen. It suffices on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The time that a busy machine may add to a bounded duration.
pub(crate) const SLACK: Duration = Duration::from_secs(3);
/// The time after the end of a lease within which a waiter must have noticed it. A client checks once a second.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_secs(5);

impl Rig {
    /// A client that connects through the proxies.
    pub(crate) fn watched(&self) -> Redlock {
        settings(self.proxy_urls()).build().unwrap()
    }

    /// A client that connects to the servers directly.
    pub(crate) fn client(&self) -> Redlock {
        settings(self.urls()).build().unwrap()
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
