//! Requests and replies are lost, late or slow.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, LeaseState, Redlock};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, servers};

use crate::faults::rig::{
    LEASE, LONG, NODE_TIMEOUT, Rig, SLACK, SOON, for_each, for_each_n, nodes_named, warm, within,
};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_05_reset_on_the_reply_to_an_acquire,
    fault_05_reset_twice_on_the_reply_to_an_acquire,
    fault_06_reset_on_the_reply_to_a_release,
    fault_06_every_release_is_reset,
    fault_07_reset_on_the_reply_to_an_extend,
    fault_08_an_acquire_arrives_after_its_release,
    fault_08_a_late_acquire_and_a_server_that_does_not_know_the_release,
    fault_08_a_late_vote_of_a_round_that_was_won,
    fault_09_a_black_hole_among_the_nodes,
    fault_09_a_slow_node,
    fault_09_slow_nodes_are_asked_at_the_same_time,
    fault_09_a_slow_server_at_the_first_connection,
);

/// The tokens in all calls of this name, in order.
fn tokens_sent(proxy: &Proxy, name: &str) -> Vec<String> {
    let of_name = |seen: &&redlock_tests::Seen| seen.name == name;
    // In a plain command, the token follows the key.
    let token = |seen: &redlock_tests::Seen| match seen.args[1].parse::<usize>() {
        Ok(keys) => seen.args.get(2 + keys).cloned(),
        Err(_) => Some(seen.args[1].clone()),
    };
    proxy.seen().iter().filter(of_name).filter_map(token).collect()
}

/// The outcome is unknown. The client repeats the acquire with the same token, and the server says yes.
fn fault_05_reset_on_the_reply_to_an_acquire<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        rig.proxies[0].clear_log();
        let fault = rig.proxies[0].on("acquire", Act::ResetAfter);
        let guard = K::new(&locks, "a").lease(LONG).try_lock().unwrap();
        assert_eq!(fault.hits(), 1);
        assert_eq!(rig.having("a", guard.id().as_str()), n);
        assert_eq!(tokens_sent(&rig.proxies[0], "acquire"), [guard.id().as_str(); 2]);
        K::unlock(guard).unwrap();
        assert!(rig.is_free("a"));
    });
}

fn fault_05_reset_twice_on_the_reply_to_an_acquire<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let lock = K::new(&locks, "a").lease(LONG);
        let struck = &rig.proxies[..rig.need()];
        let faults: Vec<_> = struck.iter().map(|proxy| proxy.on_each("acquire", Act::ResetAfter)).collect();
        let releases = rig.count("release");
        let error = lock.try_lock().err().unwrap();
        assert!(error.is_unavailable(), "{error}");
        assert!(faults.iter().all(|fault| fault.hits() >= 1), "the acquire was executed");
        assert!(rig.is_free("a"), "no release removed the key");
        assert!(rig.count("release") > releases);
        faults.iter().for_each(redlock_tests::Fault::release);
        let guard = lock.try_lock_for(SOON).unwrap();
        assert_ne!(rig.having("a", guard.id().as_str()), 0);
        K::unlock(guard).unwrap();
        assert!(rig.is_free("a"));
    });
}

fn fault_06_reset_on_the_reply_to_a_release<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let guard = K::new(&locks, "a").lease(LONG).lock().unwrap();
        let faults: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on("release", Act::ResetAfter)).collect();
        within(2 * NODE_TIMEOUT, "unlock()", || K::unlock(guard))
            .expect("`not held` after an unknown outcome is success");
        assert!(faults.iter().all(|fault| fault.hits() == 1));
        assert!(rig.is_free("a"));
        let again = K::new(&locks, "a").try_lock_for(SOON).unwrap();
        K::unlock(again).unwrap();
    });
}

fn fault_06_every_release_is_reset<K: Kind>() {
    for_each("", &[Act::ResetAfter, Act::ResetBefore], |act| {
        let rig = Rig::start(1);
        let locks = rig.open_warm::<K>();
        let guard = K::new(&locks, "a").lease(LONG).lock().unwrap();
        let sent = rig.count("release");
        let fault = rig.proxies[0].on_each("release", act.clone());
        let error = within(2 * NODE_TIMEOUT, "unlock()", || K::unlock(guard).unwrap_err());
        assert!(matches!(error, Error::Unconfirmed { confirmed: 0, of: 1, .. }), "{error}");
        assert!(rig.count("release") >= sent + 3, "the release was not repeated");
        assert_eq!(rig.is_free("a"), act == Act::ResetAfter);
        // The client that may have left the key can still take the lock.
        fault.release();
        let again = K::new(&locks, "a").try_lock_for(SOON).unwrap();
        K::unlock(again).unwrap();
        assert!(rig.is_free("a"));
    });
}

fn fault_07_reset_on_the_reply_to_an_extend<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let lease = 2 * LEASE;
        let guard = K::new(&locks, "a").lease(lease).lock().unwrap();
        let deadline = Instant::now() + guard.remaining();
        let struck = &rig.proxies[..rig.need()];
        let faults: Vec<_> = struck.iter().map(|proxy| proxy.on_each("extend", Act::ResetAfter)).collect();
        eventually("a renewal has failed", SOON, || guard.state() == LeaseState::Suspended);
        assert!(Instant::now() < deadline);
        guard.check().unwrap();
        faults.iter().for_each(redlock_tests::Fault::release);
        eventually("a renewal has succeeded", SOON, || guard.state() == LeaseState::Held);
        eventually("the renewal prolongs the lease", SOON, || {
            Instant::now() + guard.remaining() > deadline + LEASE / 2
        });
        guard.check().unwrap();
        assert_eq!(rig.releases_of(guard.id().as_str()), 0, "a failed extend never deletes");
        assert_eq!(rig.having("a", guard.id().as_str()), n);
        // The client recovers from a single reset without a failed renewal. On a busy machine, a round may skip that
        // server for a moment.
        let fault = rig.proxies[0].on("extend", Act::ResetAfter);
        eventually("an extension was struck", SOON, || guard.extend(lease).map(|()| fault.hits() == 1).unwrap());
        eventually("the lock is held", SOON, || guard.state() == LeaseState::Held);
        K::unlock(guard).unwrap();
    });
}

/// The fence key shows that the server executed the late acquire. The lease is so long that only the release can have
/// removed the lock's key.
fn fault_08_an_acquire_arrives_after_its_release<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let held: Vec<_> = rig.proxies[..rig.need()].iter().map(|proxy| proxy.on("acquire", Act::Hold)).collect();
        let lock = K::new(&locks, "a").fenced(true).lease(LONG);
        let error = within(2 * NODE_TIMEOUT, "try_lock()", || lock.try_lock().err().unwrap());
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(nodes_named(&error).len(), rig.need());
        eventually("no node has the key", SOON, || rig.is_free("a"));
        held.iter().for_each(redlock_tests::Fault::release);
        let late = &rig.servers[..rig.need()];
        eventually("the late acquires are applied", SOON, || late.iter().all(|s| s.get("{a}:fence").is_some()));
        eventually("no key stays", SOON, || rig.is_free("a"));
        let guard = K::new(&rig.open_direct(), "a").lock().unwrap();
        K::unlock(guard).unwrap();
    });
}

fn fault_08_a_late_acquire_and_a_server_that_does_not_know_the_release<K: Kind>() {
    let rig = Rig::start(1);
    let locks = rig.open();
    // The server now has the script of this acquire.
    let other = K::new(&locks, "other").fenced(true).lease(LONG).lock().unwrap();
    let held = rig.proxies[0].on("acquire", Act::Hold);
    assert!(K::new(&locks, "a").fenced(true).lease(LONG).try_lock().is_err());
    held.release();
    eventually("the late acquire is applied", SOON, || rig.servers[0].get("{a}:fence").is_some());
    eventually("no key stays", SOON, || rig.is_free("a"));
    K::unlock(other).unwrap();
}

/// A node's vote arrives after the round was won without it and the lock was released.
fn fault_08_a_late_vote_of_a_round_that_was_won<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let held = rig.proxies[0].on("acquire", Act::Hold);
        let guard = K::new(&locks, "a").fenced(true).lease(LONG).try_lock().unwrap();
        assert_eq!(rig.having("a", guard.id().as_str()), n - 1);
        K::unlock(guard).unwrap();
        held.release();
        eventually("the late acquire is applied", SOON, || rig.servers[0].get("{a}:fence").is_some());
        eventually("no key stays", SOON, || rig.is_free("a"));
    });
}

fn fault_09_a_black_hole_among_the_nodes<K: Kind>() {
    for_each("nodes and silent ones", &[(3, 1), (5, 1), (5, 2)], |(n, silent)| {
        let timeout = 2 * SLACK;
        let rig = Rig::start(n);
        let open = || rig.builder().node_timeout(timeout).lease(LONG).build().unwrap();
        let warmed = open();
        warm::<K>(&warmed, LONG);
        rig.proxies[..silent].iter().for_each(Proxy::black_hole);
        for (locks, what) in [(warmed, "a client with connections"), (open(), "a fresh client")] {
            let lock = K::new(&locks, "a");
            let guard = within(timeout, what, || lock.try_lock().unwrap());
            within(Duration::ZERO, "a release after that", || K::unlock(guard).unwrap());
            let forty_operations = || {
                let start = Stopwatch::start();
                for _ in 0..10 {
                    let guard = lock.try_lock().unwrap();
                    guard.fencing_token().unwrap();
                    guard.extend(LONG).unwrap();
                    K::unlock(guard).unwrap();
                }
                start.elapsed()
            };
            // If the machine is busy, they take that long all the same. So they are repeated.
            let are_fast = (0..5).any(|_| forty_operations() < timeout);
            assert!(are_fast, "{what}: 40 operations without the node took {timeout:?} or longer, five times");
        }
        rig.proxies.iter().for_each(Proxy::heal);
        eventually("no key stays", SOON, || rig.is_free("a"));
    });
}

/// Some calls use all connections and wait for the hanging server, and other calls wait for a connection. These calls
/// must have enough time left to ask the other servers.
#[test]
fn fault_09_a_server_begins_to_hang_under_a_crowd() {
    // If the machine stalls for that time, calls fail all the same. So the test is repeated.
    let failed: Vec<usize> =
        (0..5).map(|_| failed_beside_a_server_that_hangs()).take_while(|failed| *failed > 0).collect();
    assert!(failed.len() < 5, "calls failed in each run although two of three servers answered: {failed:?}");
}

fn failed_beside_a_server_that_hangs() -> usize {
    let servers = servers(3);
    let locks = Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(3 * SLACK).build().unwrap();
    let (locked, failed, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for i in 0..12 {
            let lock = locks.mutex(format!("key {i}"));
            let (locked, failed, is_over) = (&locked, &failed, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let outcome = lock.try_lock().and_then(redlock_sync::MutexGuard::unlock);
                    let count = if outcome.is_ok() { locked } else { failed };
                    count.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let go_on = |what| {
            let before = locked.load(Ordering::SeqCst);
            eventually(what, SOON, || locked.load(Ordering::SeqCst) > before + 100);
        };
        go_on("all threads get locks");
        failed.store(0, Ordering::SeqCst);
        servers[0].stop();
        go_on("the threads get locks without the server");
        is_over.store(true, Ordering::SeqCst);
        servers[0].cont();
    });
    failed.into_inner()
}

/// A slow node replies within the node timeout. Only one call waits for it, and not for long. It executes all calls.
fn fault_09_a_slow_node<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let trip = Duration::from_millis(150);
        let rig = Rig::start(n);
        let locks = rig.builder().node_timeout(Duration::from_secs(1)).lease(LONG).build().unwrap();
        warm::<K>(&locks, LONG);
        rig.proxies[..rig.spare()].iter().for_each(|proxy| proxy.latency(trip / 2));
        let start = Stopwatch::start();
        let guard = K::new(&locks, "a").try_lock().unwrap();
        // The lease counts from before the first byte was sent, less 1 % for drift. A lease counted from the reply
        // would end half a round trip after this limit.
        let end = guard.remaining() + start.elapsed().by_clock();
        assert!(end + LONG / 100 <= LONG + trip / 2, "the lease ends {end:?} after the call");
        let id = guard.id().as_str().to_owned();
        eventually("all nodes have the lock", SOON, || rig.having("a", &id) == n);
        guard.extend(LONG).unwrap();
        K::unlock(guard).unwrap();
        let took = start.elapsed();
        assert!(took < 3 * trip + SLACK, "three operations took {took:?}");
        eventually("no key stays", SOON, || rig.is_free("a"));
    });
}

/// Sequential requests would take one round trip per node.
fn fault_09_slow_nodes_are_asked_at_the_same_time<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let trip = Duration::from_millis(500);
        let rig = Rig::start(n);
        let locks = rig.builder().node_timeout(Duration::from_secs(2)).lease(LONG).build().unwrap();
        warm::<K>(&locks, LONG);
        rig.proxies.iter().for_each(|proxy| proxy.latency(trip / 2));
        let guard = within(trip, "try_lock()", || K::new(&locks, "a").try_lock().unwrap());
        assert_eq!(rig.having("a", guard.id().as_str()), n);
        within(trip, "extend()", || guard.extend(LONG).unwrap());
        within(trip, "unlock()", || K::unlock(guard).unwrap());
        assert!(rig.is_free("a"));
    });
}

/// A slow first connection makes no call fail, because the call has the whole node timeout for it.
fn fault_09_a_slow_server_at_the_first_connection<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        rig.proxies.iter().for_each(|proxy| proxy.latency(Duration::from_millis(15)));
        let locks = rig.open();
        let guard = K::new(&locks, "a").try_lock().unwrap();
        assert_eq!(rig.having("a", guard.id().as_str()), n);
        K::unlock(guard).unwrap();
    });
}
