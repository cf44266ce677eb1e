//! Servers that are down.

use std::time::{Duration, Instant};

use redlock_sync::{Error, LeaseState, LostReason};
use redlock_tests::{Act, Server, eventually};

use crate::faults::rig::{
    LEASE, LONG, NODE_TIMEOUT, Rig, SLACK, SOON, for_each_n, lost_at_deadline, lost_at_own_deadline, nodes_named,
    within,
};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_01_server_killed_while_held,
    fault_01_unlock_after_the_kill,
    fault_01_unlock_while_a_renewal_hangs,
    fault_01_loss_is_told_in_time_though_a_renewal_hangs,
    fault_10_a_minority_is_down,
    fault_10_a_node_hangs_and_the_others_have_forgotten_the_scripts,
    fault_10_the_node_that_is_down_may_have_the_lock,
    fault_11_a_majority_is_down_while_held,
    fault_11_a_majority_is_down_at_acquire,
);

fn fault_01_server_killed_while_held<K: Kind>() {
    let rig = Rig::start(1);
    let guard = K::new(&rig.open(), "a").lock().unwrap();
    rig.servers[0].kill();
    let killed = Instant::now();
    let (deadline, reason) = lost_at_own_deadline::<K>(&guard);
    assert!(deadline <= killed + LEASE, "a renewal succeeded after the kill");
    assert_eq!(reason, LostReason::Unreachable);
    let error = within(2 * NODE_TIMEOUT, "unlock()", || K::unlock(guard).unwrap_err());
    assert_eq!(error.lost_reason(), Some(LostReason::Unreachable));
}

/// `unlock` is called while the network drops all traffic, and after the server was killed.
fn fault_01_unlock_after_the_kill<K: Kind>() {
    let rig = Rig::start(1);
    let timeout = 2 * SLACK;
    let locks = rig.builder().node_timeout(timeout).build().unwrap();
    let hold = |key| K::new(&locks, key).lease(LONG).lock().unwrap();
    let (a, b) = (hold("a"), hold("b"));
    rig.proxies[0].black_hole();
    let error = within(2 * timeout, "unlock() without answers", || K::unlock(a).unwrap_err());
    assert!(matches!(&error, Error::Unconfirmed { key, confirmed: 0, of: 1, .. } if key == "a"), "{error}");
    assert_eq!(nodes_named(&error).len(), 1);
    rig.servers[0].kill();
    rig.proxies[0].heal();
    let error = within(2 * timeout, "unlock() without a server", || K::unlock(b).unwrap_err());
    assert!(matches!(&error, Error::Unconfirmed { key, confirmed: 0, of: 1, .. } if key == "b"), "{error}");
    assert_eq!(nodes_named(&error).len(), 1);
}

/// `unlock` waits for the round that is under way, and then for its own round.
fn fault_01_unlock_while_a_renewal_hangs<K: Kind>() {
    let rig = Rig::start(1);
    let guard = K::new(&rig.open(), "a").lease(LEASE + NODE_TIMEOUT).lock().unwrap();
    // Not before: a look at held locks could be lost first, and then the client sends no renewal to that server.
    let renewal = rig.proxies[0].on_each("extend", Act::BlackHole);
    eventually("a renewal hangs", SOON, || renewal.hits() > 0);
    rig.proxies[0].black_hole();
    let error = within(2 * NODE_TIMEOUT, "unlock() behind a renewal", || K::unlock(guard).unwrap_err());
    assert!(matches!(error, Error::Unconfirmed { confirmed: 0, of: 1, .. }), "{error}");
}

/// The node timeout is nearly as long as the lease. A renewal under way at the end of the lease must not delay the
/// report of the loss.
fn fault_01_loss_is_told_in_time_though_a_renewal_hangs<K: Kind>() {
    let rig = Rig::start(1);
    let (timeout, lease) = (Duration::from_millis(4200), Duration::from_millis(4500));
    let locks = rig.builder().node_timeout(timeout).lease(lease).build().unwrap();
    let guard = K::new(&locks, "a").lock().unwrap();
    // Not before: a look at held locks could be lost first, and then the client sends no renewal to that server.
    let renewal = rig.proxies[0].on_each("extend", Act::BlackHole);
    eventually("a renewal hangs", SOON, || renewal.hits() > 0);
    rig.proxies[0].black_hole();
    lost_at_deadline::<K>(&guard);
    drop(guard);
}

fn fault_10_a_minority_is_down<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let warmed = rig.open_warm::<K>();
        let before = K::new(&warmed, "before").lease(LEASE).lock().unwrap();
        rig.servers[..rig.spare()].iter().for_each(Server::kill);
        for locks in [&warmed, &rig.open()] {
            let guard = K::new(locks, "a").lock().unwrap();
            assert!(guard.fencing_token().unwrap() > 0);
            guard.extend(LEASE).unwrap();
            let holder = K::new(locks, "a").inspect().unwrap().unwrap();
            assert_eq!(&holder.id, guard.id());
            K::unlock(guard).unwrap();
            assert!(!K::new(locks, "a").is_locked().unwrap());
        }
        let until = Instant::now() + before.remaining();
        eventually("renewals go on", SOON, || {
            before.check().unwrap();
            Instant::now() + before.remaining() > until + LEASE / 4
        });
        assert!(before.fencing_token().unwrap() > 0);
        K::unlock(before).unwrap();
        assert!(rig.servers[rig.spare()..].iter().all(|server| server.holder("before").is_none()));
    });
}

/// The other nodes get the sources at once, and not when the time of the one that hangs is over.
fn fault_10_a_node_hangs_and_the_others_have_forgotten_the_scripts<K: Kind>() {
    let rig = Rig::start(3);
    let guard = K::new(&rig.open_warm::<K>(), "a").lock().unwrap();
    for server in &rig.servers {
        server.ask::<()>(redis::cmd("SCRIPT").arg("FLUSH"));
    }
    rig.servers[1].stop();
    guard.extend(LONG).unwrap();
    rig.servers[1].cont();
    K::unlock(guard).unwrap();
}

/// One node has the token, one is free, and one is down. Whether the lock is held depends on the last one.
fn fault_10_the_node_that_is_down_may_have_the_lock<K: Kind>() {
    let rig = Rig::start(3);
    let lock = K::new(&rig.open_warm::<K>(), "a");
    K::give(&rig.servers[0], "a", "token");
    rig.servers[2].kill();
    let error = lock.inspect().unwrap_err();
    assert!(error.is_unavailable() && matches!(nodes_named(&error)[..], [(3, _)]), "{error}");
    assert!(lock.is_locked().unwrap_err().is_unavailable());
    K::give(&rig.servers[1], "a", "token");
    assert_eq!(lock.inspect().unwrap().unwrap().id.as_str(), "token");
    assert!(lock.is_locked().unwrap());
    rig.servers[..2].iter().for_each(|server| _ = server.del("a"));
    assert_eq!(lock.inspect().unwrap(), None);
    assert!(!lock.is_locked().unwrap());
}

fn fault_11_a_majority_is_down_while_held<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let guard = K::new(&locks, "a").lock().unwrap();
        let other = K::new(&locks, "b").lease(LEASE).lock().unwrap();
        rig.servers[..rig.need()].iter().for_each(Server::kill);
        let error = within(2 * NODE_TIMEOUT, "unlock()", || K::unlock(other).unwrap_err());
        assert!(matches!(error, Error::Unconfirmed { of, .. } if of == n), "{error}");
        assert_eq!(nodes_named(&error).len(), rig.need());
        let (_, reason) = lost_at_own_deadline::<K>(&guard);
        assert_eq!(reason, LostReason::Unreachable);
        assert!(K::unlock(guard).unwrap_err().is_lost());
        // The remaining nodes keep the keys until the release arrives or their time-to-live ends.
        let left = &rig.servers[rig.need()..];
        eventually("the keys are gone", SOON, || {
            left.iter().all(|s| s.holder("a").is_none() && s.holder("b").is_none())
        });
    });
}

fn fault_11_a_majority_is_down_at_acquire<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let lock = K::new(&locks, "a");
        rig.servers[..rig.need()].iter().for_each(Server::kill);
        let wait = 2 * NODE_TIMEOUT;
        for cold in [false, true] {
            let fresh = rig.open();
            let lock = if cold { K::new(&fresh, "a") } else { lock.clone() };
            let error = within(wait + NODE_TIMEOUT, "try_lock_for()", || lock.try_lock_for(wait).err().unwrap());
            assert!(error.is_unavailable() && !error.is_busy(), "{error}");
            let named: Vec<usize> = nodes_named(&error).iter().map(|(node, _)| *node).collect();
            assert_eq!(named, (1..=rig.need()).collect::<Vec<_>>(), "{error}");
            assert!(
                rig.servers[rig.need()..].iter().all(|server| server.holder("a").is_none()),
                "nothing is left behind"
            );
        }
        rig.servers[..rig.need()].iter().for_each(Server::restart);
        let guard = lock.try_lock_for(SOON).unwrap();
        assert_eq!(guard.state(), LeaseState::Held);
    });
}
