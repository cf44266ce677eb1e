use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock};
use redlock_tests::{Proxy, eventually};

use crate::handover::rig::{Rig, SLACK, SOON, for_sizes, ms};

const NODE_TIMEOUT: Duration = ms(300);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn client(urls: &[String]) -> Redlock {
    Redlock::builder().nodes(urls).restart_guard(false).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// How a guard ends while no server can be reached.
#[derive(Debug, Clone, Copy)]
enum End {
    Unlock,
    Drop,
    UnlockAll,
}

/// The lock is to be had soon after the network is back, and not when the lease has ended.
fn a_release_is_repeated(rig: &Rig, end: End, cut: fn(&Proxy)) {
    let (locks, other) = (client(&rig.proxy_urls()), client(&rig.urls()));
    let guard = locks.mutex("order:42").lease(DAY).lock().unwrap();
    rig.proxies.iter().for_each(cut);
    let start = Instant::now();
    match end {
        End::Unlock => assert!(matches!(guard.unlock(), Err(Error::Unconfirmed { .. }))),
        End::Drop => drop(guard),
        End::UnlockAll => assert!(matches!(locks.unlock_all(), Err(Error::Unconfirmed { .. }))),
    }
    assert!(start.elapsed() < NODE_TIMEOUT * 4 + SLACK, "{end:?} took {:?}", start.elapsed());
    let healed = Instant::now();
    rig.proxies.iter().for_each(Proxy::heal);
    let lock = other.mutex("order:42");
    eventually("somebody else gets the lock", SOON, || match lock.try_lock() {
        Ok(guard) => guard.unlock().is_ok(),
        Err(error) => !error.is_busy() && panic!("{error}"),
    });
    assert!(healed.elapsed() < ms(3000) + SLACK, "{end:?}: after {:?}", healed.elapsed());
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

/// Also what an attempt set whose answer never came.
#[test]
fn what_a_failed_attempt_set_is_taken_back_when_the_network_is_back() {
    for_sizes(&[1, 3], |rig| {
        let (locks, other) = (client(&rig.proxy_urls()), client(&rig.urls()));
        locks.mutex("warm-up").lock().unwrap().unlock().unwrap();
        for proxy in &rig.proxies {
            proxy.on_each("acquire", redlock_tests::Act::ResetAfter);
            proxy.on_each("release", redlock_tests::Act::ResetBefore);
        }
        let attempt = thread::scope(|scope| {
            let attempt = scope.spawn(|| locks.mutex("order:42").lease(DAY).try_lock().map(drop));
            eventually("it was set", SOON, || rig.holding("order:42") > 0);
            rig.proxies.iter().for_each(Proxy::refuse);
            attempt.join().unwrap()
        });
        attempt.unwrap_err();
        rig.proxies.iter().for_each(Proxy::heal);
        eventually("nothing is left", SOON, || other.mutex("order:42").try_lock().is_ok_and(|g| g.unlock().is_ok()));
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
            let start = Instant::now();
            let given_up = if is_close { locks.close() } else { locks.unlock_all() };
            let took = start.elapsed();
            rig.servers.iter().for_each(redlock_tests::Server::cont);
            assert!(matches!(given_up, Err(Error::Unconfirmed { .. })), "{given_up:?}");
            assert!(took < ms(2 * 250) + SLACK, "took {took:?}");
            assert!(guards.iter().all(|guard| guard.check().is_err_and(|error| error.is_lost())));
            // What was written to the servers is executed when they go on.
            eventually("all are free", SOON, || names.iter().all(|name| rig.holding(name) == 0));
        });
    }
}
