//! Keys without a time-to-live, which `take_over_keys_without_ttl` takes over.

use std::slice::from_ref;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, MutexGuard, Redlock};
use redlock_tests::{Server, eventually, servers};

use crate::rig::for_each;

const KEY: &str = "order:42";
const SOON: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);
/// A waiter takes a key over once the key has stood unchanged for a lease.
const LEASE: Duration = Duration::from_secs(3);

/// A client with a short lease, and so a short wait before it takes over a key.
fn patient(servers: &[Server]) -> Redlock {
    let nodes = servers.iter().map(Server::url);
    Redlock::builder().nodes(nodes).node_timeout(LEASE / 3).lease(LEASE).build().unwrap()
}

/// The key has a token of the library but no expiry. No notification will tell of its end.
#[test]
fn a_token_without_an_end_is_taken_over_by_a_thread_that_waits_for_ever() {
    let server = Server::start();
    let locks = patient(from_ref(&server));
    server.set(KEY, "0123456789abcdef0123456789abcdef:dead");
    let order = locks.mutex(KEY).take_over_keys_without_ttl(true);
    let waiter = thread::spawn(move || order.lock().map(MutexGuard::into_send));
    eventually("the key is taken over", SOON, || waiter.is_finished());
    waiter.join().unwrap().unwrap().unlock().unwrap();
}

#[test]
fn a_key_that_never_ends_is_taken_over_on_request_and_only_by_those_that_wait() {
    for_each("nodes", &[1, 3], |nodes| {
        let servers = servers(nodes);
        let locks = patient(&servers);
        servers.iter().enumerate().for_each(|(i, server)| server.set(KEY, &format!("left behind {}", i % 2)));
        let order = locks.mutex(KEY).take_over_keys_without_ttl(true);
        assert!(order.try_lock().unwrap_err().is_busy());
        assert!(locks.mutex(KEY).try_lock_for(2 * LEASE).unwrap_err().is_busy(), "the default took the key over");
        let began = std::time::Instant::now();
        let guard = order.try_lock_for(SOON).unwrap();
        assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
        guard.check().unwrap();
        guard.unlock().unwrap();
        order.try_lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn a_key_that_changes_or_ends_or_is_no_lock_is_not_taken_over() {
    let server = Server::start();
    let order = patient(from_ref(&server)).mutex(KEY).take_over_keys_without_ttl(true);
    let waiter = |order: redlock_sync::Mutex| thread::spawn(move || order.try_lock_for(2 * LEASE).map(drop));
    // The value changes every 100 ms, so its program is alive.
    server.set(KEY, "0");
    let waiting = waiter(order.clone());
    for n in (1..).take_while(|_| !waiting.is_finished()) {
        server.set(KEY, &n.to_string());
        thread::sleep(100 * MS);
    }
    assert!(waiting.join().unwrap().unwrap_err().is_busy());
    // The key has a long time-to-live.
    server.ask::<()>(redis::cmd("SET").arg(KEY).arg("theirs").arg("PX").arg(60_000));
    assert!(waiter(order.clone()).join().unwrap().unwrap_err().is_busy());
    assert_eq!(server.get(KEY).as_deref(), Some("theirs"));
    // The key has another type.
    server.ask::<()>(redis::cmd("DEL").arg(KEY));
    server.ask::<()>(redis::cmd("LPUSH").arg(KEY).arg("x"));
    assert!(matches!(waiter(order).join().unwrap().unwrap_err(), Error::WrongType { .. }));
}

/// The test calls the script directly. Otherwise the key would have to change between two attempts of a wait.
#[test]
fn a_key_that_never_ended_stands_for_no_other_one_that_begins_like_it() {
    let server = Server::start();
    redlock_tests::open(server.url()).mutex("other").lock().unwrap().unlock().unwrap();
    let scripts = redlock_sync::__private::scripts();
    let digest = &scripts.iter().find(|script| script.file == "acquire").unwrap().sha;
    let mut acquire = redis::cmd("EVALSHA");
    acquire.arg(digest).arg(3).arg(KEY).arg("{order:42}:waits").arg("{order:42}:fence");
    acquire.arg("token").arg(30_000).arg(0).arg("").arg(0).arg(-1).arg(0).arg(1000).arg("!left");
    for (value, ends, stays) in [("!left behind", true, true), ("left", true, true), ("left", false, false)] {
        server.ask::<()>(redis::cmd("DEL").arg(KEY));
        server.set(KEY, value);
        if ends {
            server.ask::<()>(redis::cmd("PEXPIRE").arg(KEY).arg(60_000));
        }
        server.ask::<redis::Value>(&acquire);
        assert_eq!(server.get(KEY).unwrap() == value, stays, "{value} {ends}");
    }
}
