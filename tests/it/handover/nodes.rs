//! Several nodes, one of which is down or stopped, and clients that cannot listen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::{Act, Server, Took};

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
            let locks: Redlock = settings(&rig.proxy_urls()).connections(1).build().unwrap();
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
