//! A release gives the lock to a waiter, by a push that the waiter never reads.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Server, eventually};

use super::rig::{KEY, LEASE, NODE_TIMEOUT, Rig, SLACK, SOON, for_sizes, ms};
use crate::kinds::{Kind, each_kind};

/// The grant that no waiter took, which lasts for a lease, and some looks of the waiting clients, which come about once a second.
const BOUND: Duration = ms(4500 + 5000);
const QUEUE: &str = "{order:42}:queue";
/// A client that listens, and does no more.
const IDLE: &str = "redlock-sync:1";

/// For a client whose waits end with such a lease.
fn brisk(builder: Builder) -> Redlock {
    builder.lease(LEASE).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// So many clients wait for a push, whichever node each of them found healthy.
fn blocked(rig: &Rig, n: usize) {
    let on = |server: &Server| server.ask::<usize>(cmd("ZCARD").arg(QUEUE));
    eventually(&format!("{n} clients wait for a push"), SOON, || rig.servers.iter().all(|server| on(server) == n));
}

/// Puts a wait of a client that listens, and does no more, in front of all others.
fn idle_first(rig: &Rig) -> Vec<redis::Connection> {
    let enter = |server: &Server| {
        let mut idle = server.client();
        cmd("SUBSCRIBE").arg(IDLE).exec(&mut idle).unwrap();
        server.ask::<()>(cmd("ZADD").arg(QUEUE).arg(0).arg(format!("{IDLE}/1")));
        idle
    };
    rig.servers.iter().map(enter).collect()
}

/// Ends the connections on which clients listen.
fn kill_listeners(rig: &Rig) -> usize {
    let kill = |server: &Server| server.ask::<usize>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"));
    rig.servers.iter().map(kill).sum()
}

/// One waits behind a holder; `lose` has the holder release in such a way that the grant is lost, and returns when that was. The waiter has the
/// lock soon after, and nothing is left.
fn is_found_all_the_same<K: Kind>(rig: &Rig, lose: impl FnOnce(K::Guard) -> Instant) {
    let guard = K::new(&brisk(rig.builder()), KEY).lock().unwrap();
    let locks = brisk(rig.builder());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = K::new(&locks, KEY).try_lock_for(SOON).expect("the waiter finds the lock");
            let at = Instant::now();
            guard.check().unwrap();
            assert!(rig.is_held_by(KEY, guard.id().as_str()), "it believes to have the lock");
            K::unlock(guard).unwrap();
            at
        });
        let since = lose(guard);
        let took = waiter.join().unwrap().saturating_duration_since(since);
        assert!(took <= BOUND + SLACK, "{took:?}");
    });
    eventually("nothing is left", SOON, || rig.holding(KEY) <= rig.minority());
}

/// The push is made for the waiter while its connection breaks.
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

/// The server ends the connection on which one listens, and the release finds none there.
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

/// The lock was granted to a waiter that does not take it, and the key is deleted by hand.
fn fault_35_the_grant_is_deleted_by_hand<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        is_found_all_the_same::<K>(rig, |guard| {
            blocked(rig, 1);
            let _idle = idle_first(rig);
            let token = guard.id().as_str().to_owned();
            K::unlock(guard).unwrap();
            assert!(rig.holding(KEY) > 0 && !rig.is_held_by(KEY, &token), "it is granted");
            rig.servers.iter().for_each(|server| _ = server.del(KEY));
            Instant::now()
        });
    });
}

/// The grant reached a waiter that does not take it, and others wait behind.
fn fault_35_the_receiver_dies_with_the_grant<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let guard = K::new(&brisk(rig.builder()), KEY).lock().unwrap();
        let next = brisk_direct(rig);
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = K::new(&next, KEY).try_lock_for(SOON).expect("the grant is over some time");
                let at = Instant::now();
                guard.check().unwrap();
                K::unlock(guard).unwrap();
                at
            });
            blocked(rig, 1);
            let idle = idle_first(rig);
            K::unlock(guard).unwrap();
            let died = Instant::now();
            drop(idle);
            let took = next.join().unwrap().saturating_duration_since(died);
            assert!(took <= BOUND + SLACK, "{took:?}");
        });
        eventually("nothing is left", SOON, || rig.holding(KEY) <= rig.minority());
    });
}

fn brisk_direct(rig: &Rig) -> Redlock {
    brisk(Redlock::builder().nodes(rig.servers.iter().map(Server::url)).restart_guard(false))
}

each_kind!(
    fault_35_the_connection_breaks_with_the_grant,
    fault_35_the_waiting_connection_is_killed,
    fault_35_the_grant_is_deleted_by_hand,
    fault_35_the_receiver_dies_with_the_grant,
);
