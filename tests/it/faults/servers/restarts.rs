//! Servers restart empty, or other servers replace them.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redlock_sync::{LeaseState, LostReason, Redlock};
use redlock_tests::{Server, Stopwatch, eventually};

use crate::faults::rig::{LEASE, LONG, ROOMY, Rig, SOON, for_each_n, lost_by_renewal, warm};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_02_a_server_restarts_empty,
    fault_02_a_majority_restarts_empty,
    fault_03_one_of_several_restarts_empty,
    fault_03_a_restarted_node_casts_no_vote,
    fault_04_failover_to_a_replica_without_the_key,
    fault_16_scripts_are_flushed,
    fault_16_a_server_restarts_with_its_data,
    fault_16_failover_to_a_replica_with_the_key,
);

fn fault_02_a_server_restarts_empty<K: Kind>() {
    let rig = Rig::start(1);
    let guard = K::new(&rig.open(), "a").lease(ROOMY).lock().unwrap();
    rig.servers[0].restart();
    assert_eq!(lost_by_renewal::<K>(&guard, ROOMY, Instant::now()), LostReason::Deleted);
    assert_eq!(rig.servers[0].keys(), [""; 0], "nothing is re-created");
    assert!(K::unlock(guard).unwrap_err().is_lost());
    assert_eq!(rig.servers[0].keys(), [""; 0]);
}

fn fault_02_a_majority_restarts_empty<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let guard = K::new(&rig.open(), "a").lease(ROOMY).lock().unwrap();
        let struck = &rig.servers[..rig.need()];
        // All servers go down before the first one restarts. Otherwise a renewal in between would fill that one again.
        struck.iter().for_each(Server::kill);
        struck.iter().for_each(Server::restart);
        assert_eq!(lost_by_renewal::<K>(&guard, ROOMY, Instant::now()), LostReason::Deleted);
        assert!(struck.iter().all(|server| server.keys().is_empty()), "nothing is re-created");
        assert!(K::unlock(guard).unwrap_err().is_lost());
        assert!(rig.is_free("a"), "the unlock left the key on a node");
    });
}

fn fault_03_one_of_several_restarts_empty<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let guard = K::new(&rig.open(), "a").lease(LEASE).lock().unwrap();
        let token = guard.id().as_str().to_owned();
        let fence = guard.fencing_token().unwrap();
        let (others, left) = rig.servers.split_at(rig.spare());
        let struck = &left[0];
        struck.restart();
        guard.check().unwrap();
        eventually("the restarted node has the key again", SOON, || struck.holder("a").as_deref() == Some(&token));
        let counter: u64 = struck.get("{a}:fence").unwrap().parse().unwrap();
        assert!(counter >= fence, "the refill did not set the fence counter");
        assert_eq!(guard.state(), LeaseState::Held);
        // The refilled node's vote counts from the next round on. With it, the lock survives the failure of a minority
        // of the other nodes.
        others.iter().for_each(Server::kill);
        let until = Instant::now() + guard.remaining();
        eventually("the lock is renewed without the other nodes", SOON, || {
            guard.check().unwrap();
            Instant::now() + guard.remaining() > until + LEASE / 4
        });
        assert!(left.iter().all(|server| server.holder("a").as_deref() == Some(&token)));
        K::unlock(guard).unwrap();
        assert!(left.iter().all(|server| server.holder("a").is_none()));
    });
}

/// Sleeps until the wall clock is this many milliseconds into a second.
fn sleep_into_second(millis: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = u64::from(now.subsec_millis());
    sleep(Duration::from_millis((1000 + millis - now) % 1000));
}

/// Client A holds nodes 1 and 2. Node 2 restarts and loses the key. Client B could then get the votes of nodes 2 and 3.
fn fault_03_a_restarted_node_casts_no_vote<K: Kind>() {
    let rig = Rig::start(3);
    let lease = Duration::from_secs(3);
    let open = || -> Redlock { rig.builder().restart_guard(true).lease(lease).build().unwrap() };
    let (a, b) = (open(), open());
    warm::<K>(&a, lease);
    warm::<K>(&b, lease);
    sleep(lease); // Now both clients know that all servers are older than the lease.
    // A server counts its uptime in seconds of the wall clock. A server that starts at the end of a second is one
    // second old almost at once.
    sleep_into_second(750);
    rig.proxies[2].refuse();
    let held = K::new(&a, "a").renew(false).lock().unwrap();
    let taken_until = Instant::now() + held.remaining();
    assert_eq!(rig.having("a", held.id().as_str()), 2);
    rig.servers[1].restart();
    let restarted = Instant::now();
    sleep_into_second(10);
    rig.proxies[2].heal();
    let lock = K::new(&b, "a");
    // B makes attempts while A holds the lock, until node 3 takes part.
    let guard = loop {
        let asked = Instant::now();
        match lock.try_lock() {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_busy() || error.is_unavailable(), "{error}"),
        }
        assert!(asked < restarted + SOON, "B never got the lock");
        sleep(Duration::from_millis(5));
    };
    assert!(held.check().is_err() && Instant::now() >= taken_until, "two holders at the same time");
    K::unlock(guard).unwrap();
    assert!(K::unlock(held).unwrap_err().is_lost());
    assert!(rig.is_free("a"), "an attempt left its key on a node");
    // B now needs the vote of node 2, which must be older than the lease.
    rig.servers[0].kill();
    rig.servers[1].restart();
    let restarted = Stopwatch::start();
    let early = lock.try_lock().err().expect("node 2 casts no vote yet");
    assert!(early.is_unavailable(), "{early}");
    let guard = lock.try_lock_for(SOON).unwrap();
    let waited = restarted.elapsed();
    // The server's process started slightly before `restart` returned.
    assert!(waited.by_clock() + Duration::from_millis(300) >= lease, "it voted after {waited:?}");
    assert!(waited < lease + Duration::from_secs(3), "it voted only after {waited:?}");
    K::unlock(guard).unwrap();
}

/// The new master was disconnected before the lock reached it. Clients reach the new master by the old address.
fn fault_04_failover_to_a_replica_without_the_key<K: Kind>() {
    let rig = Rig::start(1);
    let replica = Server::start();
    replica.replica_of(&rig.servers[0]);
    let locks = rig.open_warm::<K>();
    replica.promote();
    let guard = K::new(&locks, "a").lease(LEASE).lock().unwrap();
    rig.proxies[0].target(&replica);
    rig.proxies[0].drop_connections();
    assert_eq!(lost_by_renewal::<K>(&guard, LEASE, Instant::now()), LostReason::Deleted);
    assert_eq!(replica.holder("a"), None, "nothing is re-created");
    assert!(K::unlock(guard).unwrap_err().is_lost());
    // Locks work on the new master.
    let guard = K::new(&locks, "a").try_lock_for(SOON).unwrap();
    assert_eq!(replica.holder("a").as_deref(), Some(guard.id().as_str()));
    K::unlock(guard).unwrap();
}

fn fault_16_scripts_are_flushed<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let lock = K::new(&locks, "a");
        let flush = || rig.servers.iter().for_each(|s| s.ask::<()>(redis::cmd("SCRIPT").arg("FLUSH")));
        flush();
        let guard = lock.try_lock().unwrap();
        assert_eq!(rig.having("a", guard.id().as_str()), n);
        flush();
        guard.extend(LONG).unwrap();
        assert!(guard.remaining() > LONG / 2);
        flush();
        assert!(guard.fencing_token().unwrap() > 0);
        flush();
        assert!(lock.is_locked().unwrap());
        flush();
        K::unlock(guard).unwrap();
        assert!(rig.is_free("a"));
        // The renewal thread also loads the script again.
        let guard = lock.lease(LEASE).try_lock().unwrap();
        flush();
        let until = Instant::now() + guard.remaining();
        eventually("the thread renews the lock", SOON, || Instant::now() + guard.remaining() > until + LEASE / 4);
        assert_eq!(guard.state(), LeaseState::Held);
        K::unlock(guard).unwrap();
    });
}

fn fault_16_a_server_restarts_with_its_data<K: Kind>() {
    let rig = Rig::of(vec![Server::builder().persistent().start()]);
    let guard = K::new(&rig.open(), "a").lease(LEASE).lock().unwrap();
    let fence = guard.fencing_token().unwrap();
    rig.servers[0].restart_with_data();
    let until = Instant::now() + guard.remaining();
    eventually("the restarted server renews the lock", SOON, || {
        guard.check().unwrap();
        Instant::now() + guard.remaining() > until + LEASE / 4
    });
    assert_eq!(guard.fencing_token().unwrap(), fence);
    K::unlock(guard).unwrap();
    assert!(rig.is_free("a"));
}

fn fault_16_failover_to_a_replica_with_the_key<K: Kind>() {
    let rig = Rig::start(1);
    let replica = Server::start();
    replica.replica_of(&rig.servers[0]);
    let guard = K::new(&rig.open(), "a").lease(LEASE).lock().unwrap();
    eventually("the replica has the key", SOON, || replica.holder("a").as_deref() == Some(guard.id().as_str()));
    rig.proxies[0].target(&replica);
    replica.promote();
    rig.servers[0].kill();
    let until = Instant::now() + guard.remaining();
    eventually("the new master renews the lock", SOON, || {
        guard.check().unwrap();
        Instant::now() + guard.remaining() > until + LEASE / 4
    });
    K::unlock(guard).unwrap();
    assert_eq!(replica.holder("a"), None);
}
