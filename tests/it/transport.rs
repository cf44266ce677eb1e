//! The connections that all threads of a client share: drops, observers, slow servers, and too few connections.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Event, Redlock};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, open, patient, servers};

use crate::logged::{listen, said_of};
use crate::observer::Calls;
use crate::rig::{for_each, until_older};

const SOON: Duration = Duration::from_secs(30);

/// A client, and how often one of its servers went down.
fn counting_downs(url: String) -> (Redlock, Arc<AtomicUsize>) {
    let downs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&downs);
    let observer = move |event: &Event<'_>| {
        _ = counted.fetch_add(usize::from(matches!(event, Event::NodeDown { .. })), Ordering::SeqCst);
    };
    (patient().node(url).observer(Calls(observer)).build().unwrap(), downs)
}

/// The first reply after an outage changes the status of the server. The observer that is told locks something by this
/// client. So the thread that tells it must not have the reading half.
#[test]
fn an_observer_locks_when_a_server_is_back() {
    let server = Server::start();
    let itself: Arc<OnceLock<Redlock>> = Arc::default();
    let (client, locked) = (Arc::clone(&itself), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&locked);
    let observer = move |event: &Event<'_>| {
        if let (Event::NodeUp { .. }, Some(locks)) = (event, client.get()) {
            let other = locks.mutex("of the observer").lock();
            count.fetch_add(usize::from(other.is_ok()), Ordering::SeqCst);
        }
    };
    let locks = patient().node(server.url()).observer(Calls(observer)).build().unwrap();
    drop(itself.set(locks.clone()));
    locks.mutex("warm").lock().unwrap().unlock().unwrap();
    for round in 1..=3 {
        server.kill();
        assert!(locks.mutex("a").try_lock().is_err());
        server.restart();
        // Half of the replies that find the server back belong to drops.
        eventually("the lock is acquired", SOON, || locks.mutex("a").try_lock().is_ok());
        eventually("the observer has locked", SOON, || locked.load(Ordering::SeqCst) >= round);
    }
}

/// An observer that does not return blocks the thread of the background, and not the one that reads for drops.
#[test]
fn a_slow_observer_does_not_stop_the_drain_thread() {
    let server = Server::start();
    let (is_blocked, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (blocked, free) = (Arc::clone(&is_blocked), Arc::clone(&goes_on));
    let observer = move |event: &Event<'_>| {
        if matches!(event, Event::Released { .. }) && !blocked.swap(true, Ordering::SeqCst) {
            eventually("the observer may return", SOON, || free.load(Ordering::SeqCst));
        }
    };
    let locks = patient().node(server.url()).observer(Calls(observer)).build().unwrap();
    drop(locks.mutex("a").lock().unwrap());
    eventually("the observer blocks", SOON, || is_blocked.load(Ordering::SeqCst));
    let held = locks.mutex("b").lock().unwrap();
    let () = server.ask(cmd("SCRIPT").arg("FLUSH"));
    drop(held);
    // The server does not know the release. Its reply must be read, and the source sent.
    eventually("the lock is free", SOON, || server.get("b").is_none());
    assert!(!goes_on.swap(true, Ordering::SeqCst));
}

/// The server has forgotten its scripts. A drop sends the source with the reply, and nothing is logged.
#[test]
fn a_drop_after_the_scripts_were_flushed() {
    listen();
    let server = Server::start();
    let locks = open(server.url());
    let key = "logged:flushed";
    for _ in 0..3 {
        let guard = locks.mutex(key).lock().unwrap();
        let () = server.ask(cmd("SCRIPT").arg("FLUSH"));
        drop(guard);
        eventually("it is free", SOON, || server.get(key).is_none());
    }
    locks.shutdown(Duration::ZERO).unwrap();
    assert_eq!(said_of(key), []);
}

/// The server has closed the idle connections. A drop notices it, and the lock does not wait for its lease.
#[test]
fn a_drop_after_the_server_closed_the_connections() {
    let server = Server::start();
    let locks = open(server.url());
    for _ in 0..5 {
        let guard = locks.mutex("a").lease(SOON * 10).lock().unwrap();
        let _: i64 = server.ask(cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes"));
        drop(guard);
        eventually("it is free", SOON, || server.get("a").is_none());
    }
}

/// The server allows one connection of the client. All keys use it, and the server counts as healthy.
#[test]
fn a_server_that_allows_one_connection() {
    let server = Server::start();
    let (locks, downs) = counting_downs(server.url());
    locks.mutex("warm").lock().unwrap().unlock().unwrap();
    let clients: usize = server.info("connected_clients").unwrap().parse().unwrap();
    server.config("maxclients", &clients.to_string());
    thread::scope(|scope| {
        for t in 0..8 {
            let locks = &locks;
            scope.spawn(move || {
                for n in 0..20 {
                    let mutex = locks.mutex(format!("k{t}:{n}"));
                    mutex.lock().unwrap().unlock().unwrap();
                    drop(mutex.lock().unwrap());
                    mutex.lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    let refused: usize = server.info("rejected_connections").unwrap().parse().unwrap();
    assert!(refused > 0, "the client has tried to make a second connection");
    assert_eq!(downs.load(Ordering::SeqCst), 0);
    server.config("maxclients", "100");
    locks.shutdown(Duration::ZERO).unwrap();
    eventually("nothing is left", SOON, || server.keys().is_empty());
}

/// One of three servers is far. A lock and its unlock do not wait for it, wherever it is in the list.
#[test]
fn a_slow_server_does_not_set_the_pace() {
    const FAR: Duration = Duration::from_secs(2);
    for_each("is far", &[0, 1, 2], |place| {
        let servers = servers(3);
        let proxy = Proxy::start(&servers[place]);
        let urls = (0..3).map(|n| if n == place { proxy.url() } else { servers[n].url() });
        let locks = patient().nodes(urls).node_timeout(FAR * 4).build().unwrap();
        locks.mutex("warm").lock().unwrap().unlock().unwrap();
        proxy.latency(FAR / 2);
        let start = Stopwatch::start();
        for _ in 0..5 {
            locks.mutex("a").lock().unwrap().unlock().unwrap();
        }
        assert!(start.elapsed() < FAR * 5, "place {place}: {:?}", start.elapsed());
        eventually("nothing is left", SOON, || servers.iter().all(|server| server.get("a").is_none()));
    });
}

/// One of three servers is farther than the others, so its yes to the attempt counts for nothing. The renewals give it
/// its vote. So the lock outlives a near server that loses its data.
#[test]
fn a_far_server_is_a_spare_vote_after_the_renewals() {
    const LEASE: Duration = Duration::from_secs(3);
    let servers = servers(3);
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let locks = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).lease(LEASE).build().unwrap();
    proxies[2].latency(Duration::from_millis(5));
    let guard = locks.mutex("a").lock().unwrap();
    let lease = guard.id().as_str().to_owned();
    for proxy in &proxies {
        proxy.wait_count("extend", 4, SOON);
    }
    servers[0].kill();
    servers[0].restart();
    proxies[2].wait_count("extend", proxies[2].count("extend") + 2, SOON);
    guard.check().unwrap();
    let holders = servers.iter().filter(|server| server.get("a").as_ref() == Some(&lease)).count();
    assert!(holders >= 2, "{holders}");
    guard.unlock().unwrap();
}

/// One of three servers is slow, and another one has just restarted, so its yes does not count. A round waits for the
/// slow one, since its vote decides.
#[test]
fn a_slow_server_decides_while_another_one_has_no_vote() {
    const LEASE: Duration = Duration::from_secs(60);
    // The servers that do not restart must be older than the longest lease of the client by then.
    const SHORT: Duration = Duration::from_millis(1500);
    let servers = servers(3);
    let proxy = Proxy::start(&servers[2]);
    let urls = [servers[0].url(), servers[1].url(), proxy.url()];
    let locks = patient().nodes(urls).lease(SHORT).node_timeout(SHORT / 2).build().unwrap();
    until_older(&servers, 2 * SHORT);
    eventually("the servers vote", LEASE, || locks.mutex("warm").try_lock().is_ok());
    proxy.latency(Duration::from_millis(150));
    // One call waits for it, and marks it as slow.
    for _ in 0..3 {
        drop(locks.mutex("a").lock().unwrap());
    }
    proxy.latency(Duration::from_millis(20));
    servers[1].kill();
    servers[1].restart();
    let mut calls = 0;
    eventually("the server that restarted is asked", LEASE, || {
        let guard = locks.mutex("a").try_lock();
        let asked = guard.as_ref().ok().map(|guard| guard.id().as_str().to_owned());
        calls += usize::from(asked.is_some());
        let told = guard.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(!told.contains("casts no vote"), "after {calls} calls: {told}");
        asked.is_some() && servers[1].get("a") == asked
    });
}

/// One of three servers is slow, and the connection to another one breaks. The call is sent there once more, and the
/// slow server is not waited for.
#[test]
fn a_slow_server_beside_a_connection_that_breaks() {
    const FAR: Duration = Duration::from_secs(3);
    let servers = servers(3);
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let locks = patient().nodes(proxies.iter().map(Proxy::url)).node_timeout(FAR * 4).build().unwrap();
    locks.mutex("warm").lock().unwrap().unlock().unwrap();
    proxies[2].latency(FAR / 2);
    // One call waits for it, and marks it as slow.
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    for name in ["acquire", "release"] {
        let fault = proxies[0].on(name, Act::ResetAfter);
        let start = Stopwatch::start();
        locks.mutex("b").fenced(true).lock().unwrap().unlock().unwrap();
        assert!(start.elapsed() < FAR, "{name}: {:?}", start.elapsed());
        assert_eq!(fault.hits(), 1, "{name}");
    }
    eventually("nothing is left", SOON, || servers.iter().all(|server| server.get("b").is_none()));
}

/// A server that logs clients in, and executes no call, makes no connection. So it stays left out, and gets no call.
#[test]
fn a_server_that_executes_nothing_is_left_out() {
    let servers = servers(3);
    let proxy = Proxy::start(&servers[0]);
    let urls = [proxy.url(), servers[1].url(), servers[2].url()];
    let locks = Redlock::builder().nodes(urls).node_timeout(Duration::from_millis(500)).build().unwrap();
    let works = || drop(locks.mutex("a").try_lock());
    eventually("the servers are old enough", SOON, || locks.mutex("a").try_lock().is_ok());
    let () = servers[0].ask(cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE"));
    eventually("a login fails", SOON, || {
        works();
        proxy.count("EVAL") > 2
    });
    proxy.clear_log();
    eventually("the client has tried to log in again", SOON, || {
        works();
        proxy.count("EVAL") > 2
    });
    assert_eq!(proxy.count("acquire"), 0);
    let () = servers[0].ask(cmd("CLIENT").arg("UNPAUSE"));
    eventually("the server has a vote again", SOON, || {
        works();
        proxy.count("acquire") > 0
    });
}

/// One login that breaks costs no call: the client dials again at once.
#[test]
fn a_login_that_breaks_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let broken = proxy.on("INFO", Act::ResetBefore);
    let (locks, downs) = counting_downs(proxy.url());
    locks.mutex("a").try_lock().unwrap().unlock().unwrap();
    assert_eq!(broken.hits(), 1);
    assert_eq!(downs.load(Ordering::SeqCst), 0);
}

/// All connections break at once, and the server accepts others. No call fails, and the server is not down.
#[test]
fn all_connections_break_at_once() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (locks, downs) = counting_downs(proxy.url());
    let (calls, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..10 {
            let (locks, calls, is_over) = (&locks, &calls, &is_over);
            scope.spawn(move || {
                let mutex = locks.mutex(format!("k{thread}"));
                while !is_over.load(Ordering::SeqCst) {
                    mutex.lock().unwrap().unlock().unwrap();
                    calls.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..25 {
            let before = calls.load(Ordering::SeqCst);
            eventually("all threads go on", SOON, || calls.load(Ordering::SeqCst) > before + 50);
            proxy.drop_connections();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(downs.load(Ordering::SeqCst), 0);
}
