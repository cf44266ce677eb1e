//! A release grants the lock to a waiter, but the waiter never reads the notification.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Server, eventually};

use crate::faults::rig::{KEY, LEASE, MORE_SLACK, NODE_TIMEOUT, Rig, SOON, for_sizes, ms};
use crate::kinds::{Kind, each_kind};

/// A grant that no waiter took lasts for one lease. After that, waiting clients need some attempts, about one per
/// second.
const BOUND: Duration = ms(4500 + 5000);
const QUEUE: &str = "{order:42}:waits";
/// The name of a client that subscribes to its channel and does nothing else.
const IDLE: &str = "redlock-sync:1";

/// Builds a client with a short lease, so that its waits end soon.
fn brisk(builder: Builder) -> Redlock {
    builder.lease(LEASE).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// Waits until `n` clients wait for a notification. Each client listens on whichever node it found healthy.
fn blocked(rig: &Rig, n: usize) {
    let on = |server: &Server| server.ask::<usize>(cmd("ZCOUNT").arg(QUEUE).arg(1).arg("+inf"));
    eventually(&format!("{n} clients wait"), SOON, || rig.servers.iter().all(|server| on(server) == n));
}

/// Adds a wait of a subscribed but idle client at the front of the queue.
fn idle_first(rig: &Rig) -> Vec<redis::Connection> {
    let enter = |server: &Server| {
        let mut idle = server.client();
        cmd("SUBSCRIBE").arg(IDLE).exec(&mut idle).unwrap();
        server.ask::<()>(cmd("ZADD").arg(QUEUE).arg(0).arg(format!("{IDLE}/1 1f")));
        idle
    };
    rig.servers.iter().map(enter).collect()
}

/// Kills the connections on which clients listen, and returns their number.
fn kill_listeners(rig: &Rig) -> usize {
    let kill = |server: &Server| server.ask::<usize>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"));
    rig.servers.iter().map(kill).sum()
}

/// A client waits while another one holds the lock. `lose` releases the lock so that the grant is lost, and returns the
/// time of the loss. The waiter must get the lock soon after, and no key may be left.
fn is_found_all_the_same<K: Kind>(rig: &Rig, lose: impl FnOnce(K::Guard) -> Instant) {
    let guard = K::new(&brisk(rig.builder()), KEY).lock().unwrap();
    let locks = brisk(rig.builder());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = K::new(&locks, KEY).try_lock_for(SOON).expect("the waiter finds the lock");
            let at = Instant::now();
            guard.check().unwrap();
            assert!(rig.is_held_by(KEY, guard.id().as_str()), "no majority has the waiter's token");
            K::unlock(guard).unwrap();
            at
        });
        let since = lose(guard);
        let took = waiter.join().unwrap().saturating_duration_since(since);
        assert!(took <= BOUND + MORE_SLACK, "{took:?}");
    });
    eventually("nothing is left", SOON, || rig.holding(KEY) <= rig.spare());
}

/// The listening connections break while the release sends the notification.
fn fault_35_the_connection_breaks_with_the_grant<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        is_found_all_the_same::<K>(rig, |guard| {
            blocked(rig, 1);
            thread::scope(|scope| {
                scope.spawn(|| kill_listeners(rig));
                K::unlock(guard).unwrap();
            });
            Instant::now()
        });
    });
}

/// The listening connection is killed on the server, so the release finds no subscriber.
fn fault_35_the_waiting_connection_is_killed<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        is_found_all_the_same::<K>(rig, |guard| {
            blocked(rig, 1);
            assert!(kill_listeners(rig) > 0, "no client listens");
            let killed = Instant::now();
            K::unlock(guard).unwrap();
            killed
        });
    });
}

/// The release grants the lock to a waiter that does not take it. Then the key is deleted by hand.
fn fault_35_the_grant_is_deleted_by_hand<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        is_found_all_the_same::<K>(rig, |guard| {
            blocked(rig, 1);
            let _idle = idle_first(rig);
            let token = guard.id().as_str().to_owned();
            K::unlock(guard).unwrap();
            assert!(rig.holding(KEY) > 0 && !rig.is_held_by(KEY, &token), "the release made no grant");
            rig.servers.iter().for_each(|server| _ = server.del(KEY));
            Instant::now()
        });
    });
}

each_kind!(
    fault_35_the_connection_breaks_with_the_grant,
    fault_35_the_waiting_connection_is_killed,
    fault_35_the_grant_is_deleted_by_hand,
);
