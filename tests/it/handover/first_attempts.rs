//! The first attempt of a client that knows of no wait for the lock.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::Redlock;
use redlock_tests::{Act, Proxy, Server, eventually, open};

use super::rig::{KEY, SOON};

/// A key of this client for which no process waits, so its next attempt can be a plain `SET NX`.
fn uncontended(locks: &Redlock, key: &str) {
    locks.mutex(key).lock().unwrap().unlock().unwrap();
}

/// The release grants the lock on the server. So the next attempt of this client, a plain `SET NX`, finds it taken.
#[test]
fn a_wait_comes_before_the_next_attempt_of_a_client_that_knew_of_no_wait() {
    let server = Server::start();
    let (locks, other) = (open(server.url()), open(server.url()));
    uncontended(&locks, KEY);
    let guard = locks.mutex(KEY).lock().unwrap();
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            let guard = other.mutex(KEY).lock().unwrap();
            assert!(ended.recv().is_err());
            guard.unlock().unwrap();
        });
        let queue = format!("{{{KEY}}}:waits");
        eventually("a wait is in the queue", SOON, || {
            server.ask::<usize>(cmd("ZCOUNT").arg(&queue).arg(1).arg("+inf")) == 1
        });
        drop(guard);
        let refused = locks.mutex(KEY).try_lock().unwrap_err();
        assert!(refused.is_busy(), "{refused}");
        drop(end);
    });
}

/// A release within the minimum hold offers the lock to no wait, so it does not tell whether one is there.
#[test]
fn a_lock_with_a_minimum_hold_is_not_taken_ahead_of_a_wait() {
    let server = Server::start();
    let locks = open(server.url());
    uncontended(&locks, KEY);
    let guard = locks.mutex(KEY).min_hold(Duration::from_secs(3)).lock().unwrap();
    server.ask::<()>(cmd("ZADD").arg(format!("{{{KEY}}}:waits")).arg(1).arg("-another 1f"));
    guard.unlock().unwrap();
    eventually("the minimum hold is over", SOON, || server.get(KEY).is_none());
    let refused = locks.mutex(KEY).try_lock().unwrap_err();
    assert!(refused.is_busy(), "{refused}");
}

/// A round trip takes more than half of the node timeout, so there is no time for a second one.
#[test]
fn a_held_lock_far_away_is_busy() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(10)).build().unwrap();
    uncontended(&locks, KEY);
    let _held = open(server.url()).mutex(KEY).lock().unwrap();
    for name in ["acquire", "set"] {
        proxy.on_each(name, Act::Delay(Duration::from_secs(6)));
    }
    let refused = locks.mutex(KEY).try_lock().unwrap_err();
    assert!(refused.is_busy(), "{refused}");
}
