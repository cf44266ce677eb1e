//! A drop of a guard sends the release and does not wait for the servers (faults 42 to 49).

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use redlock_sync::{Event, MutexGuard};
use redlock_tests::{Act, eventually};

use super::processes::holding;
use crate::faults::rig::{KEY, LEASE, NODE_TIMEOUT, Rig, SOON, for_sizes, timed};
use crate::kinds::{Kind, each_kind, name_of_kind};
use crate::observer::Calls;
use crate::process::Process;

/// A lease that outlasts every test. If the lock becomes free, then a release has freed it.
const LONG: Duration = Duration::from_secs(120);

fn fault_42_a_process_ends_right_after_a_drop<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        for word in ["drop", "drop and return"] {
            let (mut agent, token) = holding::<K>(rig, word, LONG);
            assert!(rig.servers.iter().all(|server| server.holder(word).as_deref() == Some(&token)));
            agent.tell(word);
            assert!(agent.wait().success());
            eventually("the lock is free", SOON, || rig.holding(word) == 0);
        }
    });
}

fn fault_43_a_server_hangs_at_a_drop_and_goes_on<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let guard = K::new(&locks, KEY).lease(LONG).lock().unwrap();
        rig.servers[0].stop();
        let ((), took) = timed(|| drop(guard));
        rig.servers[0].cont();
        assert!(took < NODE_TIMEOUT, "{took:?}");
        eventually("the lock is free", SOON, || rig.holding(KEY) == 0);
        // The second hang is longer than a call waits. The server executes the release afterwards, and the client
        // repeats it.
        let guard = K::new(&locks, KEY).lease(LONG).lock().unwrap();
        rig.servers[0].stop();
        drop(guard);
        thread::sleep(NODE_TIMEOUT * 2);
        rig.servers[0].cont();
        eventually("the lock is free", SOON, || rig.holding(KEY) == 0);
        eventually("the client can take it", SOON, || {
            K::new(&locks, KEY).try_lock().is_ok_and(|guard| K::unlock(guard).is_ok())
        });
    });
}

#[test]
fn fault_44_five_hundred_guards_are_dropped_while_a_server_hangs() {
    let rig = Rig::start(1);
    let locks = rig.through();
    let lock = |n: usize| locks.mutex(format!("{n}")).renew(false).lease(LONG);
    let guards: Vec<_> = (0..500).map(|n| lock(n).lock().unwrap()).collect();
    let connections = rig.proxies[0].connections();
    rig.servers[0].stop();
    let ((), took) = timed(|| drop(guards));
    assert!(took < NODE_TIMEOUT, "{took:?}");
    // The drops opened no connections and started no threads.
    assert!(rig.proxies[0].connections() <= connections + 2, "{connections}");
    thread::sleep(NODE_TIMEOUT * 2);
    rig.servers[0].cont();
    eventually("all are free", SOON, || (0..500).all(|n| rig.servers[0].get(&format!("{n}")).is_none()));
}

/// The client has released nothing before, so the server may not know the script. The client has no proxy, which would
/// read everything: the socket of the server that hangs can be full.
#[test]
fn fault_44_a_new_client_drops_a_thousand_guards_while_its_server_hangs() {
    let rig = Rig::start(1);
    let timeout = Duration::from_secs(5);
    let locks = redlock_sync::Redlock::builder().node(rig.servers[0].url()).node_timeout(timeout).build().unwrap();
    let lock = |n: usize| locks.mutex(format!("{n}")).renew(false).lease(LONG);
    let guards: Vec<_> = (0..1000).map(|n| lock(n).lock().unwrap()).collect();
    rig.servers[0].stop();
    let ((), took) = timed(|| drop(guards));
    rig.servers[0].cont();
    assert!(took < timeout, "{took:?}");
    eventually("all are free", SOON, || (0..1000).all(|n| rig.servers[0].get(&format!("{n}")).is_none()));
}

fn fault_45_a_dropped_lock_is_free_for_each_thread_of_its_client<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lock = K::new(&rig.through(), KEY).lease(LONG);
        K::unlock(lock.lock().unwrap()).unwrap();
        for _ in 0..50 {
            drop(lock.try_lock().unwrap());
            // The proxy gets the release before it sends a reply. The attempt follows the release on the same
            // connection.
            drop(lock.try_lock().unwrap());
            thread::scope(|scope| scope.spawn(|| drop(lock.try_lock().unwrap())).join().unwrap());
        }
        // Another client of this process can find the lock taken only until the release arrives.
        let other = K::new(&rig.other_client(), KEY);
        drop(lock.try_lock().unwrap());
        eventually("another client gets it", SOON, || other.try_lock().is_ok_and(|guard| K::unlock(guard).is_ok()));
    });
}

/// The attempt uses another connection and finds the token of the dropped guard.
fn fault_45_a_release_that_is_stuck_does_not_keep_its_client_out<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        // The server returns only the beginning of a long token.
        let long = "a".repeat(200);
        for (act, name) in [(Act::Hold, ""), (Act::HoldReply, ""), (Act::Hold, &*long), (Act::HoldReply, &*long)] {
            let lock = K::new(&locks, KEY).lease(LONG);
            let lock = if name.is_empty() { lock } else { lock.holder_name(name) };
            for waits in [false, true] {
                let guard = lock.lock().unwrap();
                let stuck: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on("release", act.clone())).collect();
                drop(guard);
                // After this time the client regards a connection as slow.
                thread::sleep(NODE_TIMEOUT * 3 / 10);
                // Sooner than the background repeats the release.
                let guard = if waits { lock.try_lock_for(NODE_TIMEOUT / 2) } else { lock.try_lock() }.unwrap();
                stuck.iter().for_each(redlock_tests::Fault::release);
                guard.check().unwrap();
                K::unlock(guard).unwrap();
            }
        }
    });
}

/// The release fails at once on one server, and another server does not answer it. A majority of the nodes has freed
/// the lock, or can grant it.
#[test]
fn fault_46_a_release_that_failed_on_one_of_three_servers() {
    let rig = Rig::start(3);
    let lock = rig.through().mutex(KEY).lease(LONG);
    for _ in 0..5 {
        let guard = lock.lock().unwrap();
        rig.proxies[0].on("release", Act::ResetBefore);
        let stuck = rig.proxies[2].on("release", Act::HoldReply);
        drop(guard);
        // One attempt can spend all its time on the server that does not answer.
        let guard = lock.try_lock_for(SOON).unwrap();
        stuck.release();
        guard.unlock().unwrap();
    }
}

#[test]
fn fault_46_all_connections_break_around_a_drop() {
    let rig = Rig::start(1);
    let lock = rig.through().mutex(KEY).lease(LONG);
    for _ in 0..100 {
        let guard = lock.try_lock_for(SOON).unwrap();
        rig.proxies[0].drop_connections();
        drop(guard);
        // This test allows an attempt to fail because it could not connect.
        match lock.try_lock() {
            Ok(guard) => drop(guard.unlock()),
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
}

fn fault_46_the_connection_breaks_after_a_drop<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        for act in [Act::ResetBefore, Act::ResetAfter, Act::CutReply(1)] {
            let lock = K::new(&rig.through(), KEY).lease(LONG);
            let guard = lock.lock().unwrap();
            let faults: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on("release", act.clone())).collect();
            drop(guard);
            // Only the token of the dropped guard can be under the key, and the client recognizes it as its own.
            K::unlock(lock.try_lock().unwrap()).unwrap();
            for fault in faults {
                fault.wait_hit(SOON);
            }
            let guard = lock.lock().unwrap();
            let faults: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on("release", act.clone())).collect();
            drop(guard);
            for fault in faults {
                fault.wait_hit(SOON);
            }
            eventually("the lock is free", SOON, || rig.holding(KEY) == 0);
        }
    });
}

fn fault_47_a_process_forks_right_after_a_drop<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let mut agent = Process::start(&["fork-after-drop", name_of_kind::<K>(), KEY], &rig.proxy_urls());
        assert!(agent.wait().success());
        assert_eq!(rig.holding(KEY), 0);
    });
}

#[test]
fn fault_48_a_guard_is_dropped_by_the_destructor_of_a_thread_local() {
    thread_local! {
        static HELD: RefCell<Option<MutexGuard>> = const { RefCell::new(None) };
    }
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let hold = || {
            let guard = locks.mutex(KEY).lease(LONG).lock().unwrap();
            HELD.set(Some(guard));
        };
        thread::scope(|scope| scope.spawn(hold).join().unwrap());
        eventually("the lock is free", SOON, || rig.holding(KEY) == 0);
    });
}

#[test]
fn fault_49_the_servers_report_a_loss_to_the_release_of_a_dropped_guard() {
    for_sizes(&[1, 3], |rig| {
        let (tell, told) = mpsc::channel();
        // Reports losses and releases.
        let observer = move |event: &Event<'_>| {
            let word = match event {
                Event::Released { confirmed: true, .. } => "released",
                Event::Released { .. } => "unconfirmed",
                Event::Lost { .. } => "lost",
                _ => return,
            };
            _ = tell.send(word);
        };
        let locks = rig.builder().observer(Calls(observer)).build().unwrap();
        let next = || told.recv_timeout(SOON).unwrap();
        drop(locks.mutex(KEY).lease(LONG).lock().unwrap());
        assert_eq!(next(), "released");
        let guard = locks.mutex(KEY).lease(LONG).lock().unwrap();
        let (call, called) = mpsc::channel();
        guard.on_lost(move |_| call.send(()).unwrap());
        rig.servers.iter().for_each(|server| server.set(KEY, "another"));
        drop(guard);
        assert_eq!(next(), "lost");
        // The handler was dropped with the guard, without a call.
        assert_eq!(called.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected));
        rig.servers.iter().for_each(|server| _ = server.del(KEY));
        let guard = locks.mutex(KEY).lease(LEASE).renew(false).lock().unwrap();
        rig.servers.iter().for_each(redlock_tests::Server::stop);
        drop(guard);
        let ended = next();
        rig.servers.iter().for_each(redlock_tests::Server::cont);
        assert_eq!(ended, "unconfirmed");
    });
}

/// The drop waits for the renewal, and the shutdown for the drop. The lock is given up, whichever of them comes first.
#[test]
fn a_client_is_closed_while_a_drop_waits_for_a_renewal() {
    let lease = Duration::from_secs(12);
    thread::scope(|scope| {
        for pause in [0, 1, 10, 30] {
            scope.spawn(move || {
                let rig = Rig::start(1);
                let locks = rig.builder().build().unwrap();
                let renewal = rig.proxies[0].on("extend", Act::Hold);
                let guard = locks.mutex(KEY).lease(lease).lock().unwrap().into_send();
                renewal.wait_hit(lease);
                thread::scope(|scope| {
                    scope.spawn(move || drop(guard));
                    thread::sleep(Duration::from_millis(pause));
                    locks.shutdown(Duration::ZERO).unwrap();
                });
                renewal.release();
                let mut left = lease;
                eventually("the key is gone", lease, || {
                    let now = rig.servers[0].pttl(KEY);
                    left = now.unwrap_or(left);
                    now.is_none()
                });
                assert!(left > lease / 6, "it ended with its lease");
            });
        }
    });
}

/// Otherwise the background thread, which also repeats releases, falls behind without a limit.
#[test]
fn drops_wait_for_a_slow_observer() {
    let (rig, reported) = (Rig::start(1), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&reported);
    let slow = move |event: &Event<'_>| {
        if matches!(event, Event::Released { .. }) {
            thread::sleep(Duration::from_millis(2));
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let locks = rig.builder().observer(Calls(slow)).build().unwrap();
    let lock = |name: &str| locks.mutex(name).lease(LONG).lock().unwrap();
    (0..500).for_each(|n| drop(lock(&n.to_string())));
    let behind = 500 - reported.load(Ordering::SeqCst);
    assert!(behind < 80, "{behind} releases are not reported");
    let guard = lock(KEY);
    let lost = rig.proxies[0].on("release", Act::ResetBefore);
    drop(guard);
    lost.wait_hit(SOON);
    eventually("the release is repeated", SOON, || rig.holding(KEY) == 0);
}

each_kind!(all:
    fault_42_a_process_ends_right_after_a_drop,
    fault_43_a_server_hangs_at_a_drop_and_goes_on,
    fault_45_a_dropped_lock_is_free_for_each_thread_of_its_client,
    fault_45_a_release_that_is_stuck_does_not_keep_its_client_out,
    fault_46_the_connection_breaks_after_a_drop,
    fault_47_a_process_forks_right_after_a_drop,
);
