//! Several nodes, one of which is down or stopped, a node that hangs while a thread waits, and clients that cannot
//! listen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Redlock, Retry};
use redlock_tests::{Act, Server, Took, eventually, patient, servers};

use super::rig::{KEY, Rig, SLACK, SOON, brisk, for_sizes, ms, settings, timed};

/// The lease of the holder, and so the longest wait for its notification.
const LEASE: Duration = Duration::from_millis(4500);
/// The node timeout of these clients.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// A client waits on the first node. That node is killed or stopped, and then the holder releases. Returns how long the
/// wait took from then on.
fn injured_while_waiting(rig: &Rig, injure: fn(&Server)) -> Duration {
    let held = brisk(&rig.urls(), LEASE).mutex(KEY).lock().unwrap();
    let locks = brisk(&rig.urls(), LEASE);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = locks.mutex(KEY).try_lock_for(SOON).unwrap();
            let at = Instant::now();
            guard.check().unwrap();
            let others = rig.servers[1..].iter().filter(|s| s.get(KEY).as_deref() == Some(guard.id().as_str()));
            assert!(others.count() > rig.servers.len() / 2);
            (guard.unlock(), at)
        });
        rig.until_blocked(0, 1);
        injure(&rig.servers[0]);
        let injured = Instant::now();
        held.unlock().unwrap();
        let (unlocked, at) = waiter.join().unwrap();
        unlocked.unwrap();
        at - injured
    })
}

#[test]
fn the_node_waited_on_is_killed() {
    for_sizes(&[3, 5], |rig| {
        let took = injured_while_waiting(rig, Server::kill);
        assert!(took <= 2 * TIMEOUT + SLACK, "{took:?}");
    });
}

/// The client does not learn that the stopped node will not answer. Its wait ends with the holder's lease.
#[test]
fn the_node_waited_on_is_stopped() {
    for_sizes(&[3, 5], |rig| {
        let took = injured_while_waiting(rig, Server::stop);
        assert!(took <= LEASE + 4 * TIMEOUT + SLACK, "{took:?}");
        rig.servers[0].cont();
    });
}

/// The first node is down. Three clients listen on another node and pass the lock to each other, and none waits for
/// long.
#[test]
fn hand_over_works_with_a_dead_node() {
    for_sizes(&[3, 5], |rig| {
        const EACH: usize = 40;
        rig.servers[0].kill();
        let inside = AtomicUsize::new(0);
        let (longest, took) = timed(|| {
            thread::scope(|scope| {
                let all: Vec<_> = (0..3)
                    .map(|_| {
                        let (lock, inside) = (brisk(&rig.proxy_urls(), Duration::from_secs(10)).mutex(KEY), &inside);
                        scope.spawn(move || {
                            let mut longest = Took::default();
                            for _ in 0..EACH {
                                let (guard, took) = timed(|| lock.try_lock_for(SOON).unwrap());
                                longest = longest.max(took);
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "the lock had two holders");
                                // The pause gives the other clients time to wait.
                                thread::sleep(ms(2));
                                guard.check().unwrap();
                                inside.fetch_sub(1, Ordering::SeqCst);
                                guard.unlock().unwrap();
                            }
                            longest
                        })
                    })
                    .collect();
                all.into_iter().map(|thread| thread.join().unwrap()).reduce(Took::max).unwrap()
            })
        });
        let listened = rig.proxies[1..].iter().map(|proxy| proxy.count("SUBSCRIBE")).sum::<usize>();
        assert!(listened >= 3, "{listened} listened on another node");
        assert!(longest < ms(2000) && took < Duration::from_secs(10), "longest wait {longest:?}, all {took:?}");
        let rest: Vec<_> = rig.servers[1..].iter().filter_map(|server| server.get(KEY)).collect();
        assert!(rest.len() < rig.servers.len() / 2, "keys are left: {rest:?}");
    });
}

/// One client waits for several locks over one notification connection, and does not poll. If the server refuses
/// `SUBSCRIBE`, then all waits poll, and each gets its lock.
#[test]
fn waits_share_a_connection_or_poll() {
    for is_refused in [false, true] {
        for_sizes(&[1, 3], |rig| {
            for proxy in rig.proxies.iter().filter(|_| is_refused) {
                proxy.on_each("SUBSCRIBE", Act::Error("NOPERM no channels".into()));
            }
            let holder = rig.client();
            let keys: Vec<String> = (0..5).map(|i| format!("{KEY}:{i}")).collect();
            let held: Vec<_> = keys.iter().map(|key| holder.mutex(key).lock().unwrap().into_send()).collect();
            let locks: Redlock = settings(rig.proxy_urls()).connections(1).build().unwrap();
            thread::scope(|scope| {
                let all: Vec<_> = keys
                    .iter()
                    .map(|key| {
                        let lock = locks.mutex(key);
                        scope.spawn(move || {
                            let guard = lock.lock().unwrap();
                            let at = Instant::now();
                            guard.unlock().unwrap();
                            at
                        })
                    })
                    .collect();
                rig.until_blocked(0, keys.len());
                rig.proxies[0].clear_log();
                thread::sleep(ms(700));
                let asked = rig.proxies[0].count("acquire");
                assert_eq!(asked >= 3 * keys.len(), is_refused, "{asked} attempts");
                // With several nodes, a wait makes about one attempt per second.
                let most = if rig.proxies.len() == 1 { 0 } else { 2 * keys.len() };
                assert!(is_refused || asked <= most, "{asked} attempts");
                let released = Instant::now();
                for guard in held {
                    guard.unlock().unwrap();
                }
                for thread in all {
                    let took = thread.join().unwrap().saturating_duration_since(released);
                    assert!(took < ms(300) + SLACK, "{took:?}");
                }
            });
            rig.assert_free(KEY);
        });
    }
}

fn take_for(server: &Server, ms: u64) {
    server.ask::<()>(redis::cmd("SET").arg(KEY).arg("another").arg("PX").arg(ms));
}

/// The lock is free once two nodes are free. A short lease of another holder on one node must not shorten the pauses.
#[test]
fn counted_attempts_last_until_a_majority_is_free() {
    let servers = servers(3);
    let settings = Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(Duration::from_secs(2));
    let locks = settings.restart_guard(false).build().unwrap();
    // The servers load the scripts here.
    locks.mutex("warm-up").lock().unwrap().unlock().unwrap();
    let attempts = Retry::every(Duration::from_millis(600)).jitter(0.0).max_attempts(4);
    take_for(&servers[0], 100);
    servers[1..].iter().for_each(|server| take_for(server, 1600));
    locks.mutex(KEY).retry(attempts).lock().expect("three pauses are longer than that").unlock().unwrap();
}

/// The wait has slept until the end of the holder's lease, and found the lease renewed. From then on it relies on
/// notifications and on the checks of its client. A server that hangs sends neither.
#[test]
fn a_wait_that_relies_on_notifications_notices_that_the_server_hangs() {
    let server = Server::start();
    let lease = Duration::from_secs(3);
    let holder = Redlock::builder().node(server.url()).node_timeout(lease / 3).build().unwrap();
    let guard = holder.mutex(KEY).lease(lease).lock().unwrap();
    let settings = patient().node(server.url()).unavailable_after(Duration::from_secs(1));
    let locks = settings.build().unwrap();
    let waiter = thread::spawn(move || locks.mutex(KEY).lock().map(drop));
    let relies = std::time::Instant::now() + 2 * lease;
    eventually("the wait relies on notifications", SOON, || std::time::Instant::now() > relies);
    guard.check().unwrap();
    server.stop();
    eventually("the waiter returns", SOON, || waiter.is_finished());
    let error = waiter.join().unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    server.cont();
}

/// `try_lock_for` takes at most one node timeout longer than its limit, also if the server stops answering meanwhile.
#[test]
fn a_wait_with_a_deadline_ends_in_time_though_the_server_hangs() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    let locks = Redlock::builder().node(rig.urls()[0].clone()).build().unwrap();
    let lock = locks.mutex(KEY);
    let took = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let start = Instant::now();
            drop(lock.try_lock_for(Duration::from_secs(1)));
            start.elapsed()
        });
        rig.until_blocked(0, 1);
        rig.servers[0].stop();
        waiter.join().unwrap()
    });
    rig.servers[0].cont();
    drop(held);
    assert!(took < ms(1000 + 250) + SLACK, "took {took:?}");
}
