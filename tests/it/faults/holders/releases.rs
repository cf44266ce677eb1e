//! Releases that no server confirms at first, and releases of many locks at once.

use std::thread;
use std::time::Duration;

use redlock_sync::{Error, LostReason, Redlock};
use redlock_tests::{Act, Proxy, Stopwatch, eventually, patient};

use crate::faults::rig::{KEY, MORE_SLACK, Rig, SOON, for_sizes, ms};

const NODE_TIMEOUT: Duration = ms(300);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn client(urls: &[String]) -> Redlock {
    Redlock::builder().nodes(urls).restart_guard(false).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// How a guard's hold ends while no server is reachable.
#[derive(Debug, Clone, Copy)]
enum End {
    Unlock,
    Drop,
    UnlockAll,
}

/// Another client must get the lock soon after the network is back, not only when the lease has ended.
fn a_release_is_repeated(rig: &Rig, end: End, cut: fn(&Proxy)) {
    let (locks, other) = (client(&rig.proxy_urls()), patient().nodes(rig.urls()).restart_guard(false).build().unwrap());
    let guard = locks.mutex(KEY).lease(DAY).lock().unwrap();
    rig.proxies.iter().for_each(cut);
    let start = Stopwatch::start();
    match end {
        End::Unlock => assert!(matches!(guard.unlock(), Err(Error::Unconfirmed { .. }))),
        End::Drop => drop(guard),
        End::UnlockAll => assert_eq!(locks.unlock_all().unwrap().unconfirmed, 1),
    }
    assert!(start.elapsed() < NODE_TIMEOUT * 4 + MORE_SLACK, "{end:?} took {:?}", start.elapsed());
    let healed = Stopwatch::start();
    rig.proxies.iter().for_each(Proxy::heal);
    let lock = other.mutex(KEY);
    eventually("another client gets the lock", SOON, || match lock.try_lock() {
        Ok(guard) => guard.unlock().is_ok(),
        Err(error) => !error.is_busy() && !error.is_unavailable() && panic!("{error}"),
    });
    assert!(healed.elapsed() < ms(3000) + MORE_SLACK, "{end:?}: after {:?}", healed.elapsed());
}

#[test]
fn a_release_lost_in_a_partition_is_repeated_until_it_is_confirmed() {
    thread::scope(|scope| {
        for end in [End::Unlock, End::Drop, End::UnlockAll] {
            for cut in [Proxy::refuse, Proxy::black_hole] {
                scope.spawn(move || for_sizes(&[1, 3], |rig| a_release_is_repeated(rig, end, cut)));
            }
        }
    });
}

/// A failed attempt can set a key although its reply never came. The client must remove that key too.
#[test]
fn what_a_failed_attempt_set_is_taken_back_when_the_network_is_back() {
    for_sizes(&[1, 3], |rig| {
        let (locks, other) = (client(&rig.proxy_urls()), client(&rig.urls()));
        locks.mutex("warm-up").lock().unwrap().unlock().unwrap();
        for proxy in &rig.proxies {
            proxy.on_each("acquire", Act::ResetAfter);
            proxy.on_each("release", Act::ResetBefore);
        }
        let attempt = thread::scope(|scope| {
            let attempt = scope.spawn(|| locks.mutex(KEY).lease(DAY).try_lock().map(drop));
            eventually("a server has the key", SOON, || rig.holding(KEY) > 0);
            rig.proxies.iter().for_each(Proxy::refuse);
            attempt.join().unwrap()
        });
        attempt.unwrap_err();
        rig.proxies.iter().for_each(Proxy::heal);
        eventually("the lock is free", SOON, || other.mutex(KEY).try_lock().is_ok_and(|g| g.unlock().is_ok()));
    });
}

#[test]
fn many_locks_are_given_up_together() {
    for is_close in [false, true] {
        for_sizes(&[1, 3], |rig| {
            let locks = Redlock::builder().nodes(rig.urls()).restart_guard(false).build().unwrap();
            let names: Vec<_> = (0..100).map(|i| format!("many:{i}")).collect();
            let guards: Vec<_> = names.iter().map(|name| locks.mutex(name).lock().unwrap()).collect();
            rig.servers.iter().for_each(redlock_tests::Server::stop);
            let start = Stopwatch::start();
            let ended = if is_close { locks.shutdown(Duration::ZERO) } else { locks.unlock_all() };
            let took = start.elapsed();
            let start = Stopwatch::start();
            let are_lost = guards.iter().all(|guard| guard.check().is_err_and(|error| error.is_lost()))
                && guards.into_iter().all(|guard| guard.unlock().is_err_and(|error| error.is_lost()));
            let ends = start.elapsed();
            rig.servers.iter().for_each(redlock_tests::Server::cont);
            let ended = ended.unwrap();
            assert_eq!((ended.given_up.len(), ended.unconfirmed), (100, 100));
            assert!(took < ms(2 * 250) + MORE_SLACK, "took {took:?}");
            assert!(are_lost && ends < MORE_SLACK, "are lost: {are_lost}, the guards took {ends:?}");
            // The servers execute the releases that were written to them once they continue.
            eventually("all are free", SOON, || names.iter().all(|name| rig.holding(name) == 0));
        });
    }
}

/// The lease is lost before its guard ends. The key stays as long as an extension asked for, whose reply never came.
#[test]
fn the_release_of_a_lost_lease_is_repeated_too() {
    for_sizes(&[1, 3], |rig| {
        let (locks, other) = (client(&rig.proxy_urls()), client(&rig.urls()));
        let guard = locks.mutex(KEY).lease(ms(900)).renew(false).lock().unwrap();
        let held: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on("extend", Act::HoldReply)).collect();
        guard.extend(Duration::from_secs(60 * 60)).unwrap_err();
        eventually("the loss is noticed", SOON, || guard.check().is_err());
        rig.proxies.iter().for_each(Proxy::refuse);
        guard.unlock().unwrap_err();
        drop(held);
        rig.proxies.iter().for_each(Proxy::heal);
        eventually("the lock is free", SOON, || other.mutex(KEY).try_lock().is_ok_and(|g| g.unlock().is_ok()));
    });
}

/// The release of a drop has a whole node timeout, so a slow node is not left out.
#[test]
fn a_drop_over_a_slow_line_is_a_release_like_any_other() {
    for_sizes(&[1, 3], |rig| {
        let locks =
            Redlock::builder().nodes(rig.proxy_urls()).restart_guard(false).node_timeout(ms(1000)).build().unwrap();
        for _ in 0..3 {
            drop(locks.mutex(KEY).lock().unwrap());
        }
        rig.proxies.iter().for_each(|proxy| proxy.latency(ms(320)));
        for _ in 0..2 {
            drop(locks.mutex(KEY).try_lock_for(SOON).unwrap());
            eventually("the lock is released", SOON, || rig.holding(KEY) == 0);
        }
    });
}

/// Each drop costs as much as one attempt to connect. The client repeats the releases in the background.
#[test]
fn guards_dropped_while_servers_refuse_connections_end_soon() {
    for_sizes(&[1, 3], |rig| {
        let locks = Redlock::builder().nodes(rig.proxy_urls()).restart_guard(false).build().unwrap();
        let guards: Vec<_> = (0..50).map(|i| locks.mutex(format!("dropped:{i}")).lock().unwrap()).collect();
        rig.proxies.iter().for_each(Proxy::refuse);
        let start = Stopwatch::start();
        drop(guards);
        assert!(start.elapsed() < ms(3000), "took {:?}", start.elapsed());
        rig.proxies.iter().for_each(Proxy::heal);
        eventually("all are free", SOON, || (0..50).all(|i| rig.holding(&format!("dropped:{i}")) == 0));
    });
}

/// One of three nodes never had the lock and does not answer, and another one has lost it.
#[test]
fn a_node_that_never_had_the_lock_does_not_count_for_it_at_the_release() {
    let rig = Rig::start(3);
    rig.proxies[2].refuse();
    let locks = patient().nodes(rig.proxy_urls()).restart_guard(false).build().unwrap();
    let guard = locks.mutex(KEY).renew(false).lock().unwrap();
    assert!(rig.servers[1].del(KEY));
    let lost = guard.unlock().unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LostReason::Deleted, .. }), "{lost}");
}
