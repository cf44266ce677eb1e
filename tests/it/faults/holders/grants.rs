//! A release gives the lock to one who waits, by a push that he never reads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Act, Fault, Proxy, Server, eventually};

use super::rig::{KEY, Rig, SLACK, SOON, for_sizes, ms};
use crate::kinds::{Kind, each_kind};

/// A grant lasts as long.
const LEASE: Duration = Duration::from_secs(2);
/// What the documentation says: the grant that nobody took, and the longest wait for a push.
const BOUND: Duration = Duration::from_secs(2 + 5);
const WAKE: &str = "{order:42}:wake";

/// For a client whose waits end with such a lease.
fn brisk(builder: Builder) -> Redlock {
    builder.lease(LEASE).node_timeout(ms(500)).build().unwrap()
}

/// So many clients wait for a push, whichever node each of them found healthy.
fn blocked(rig: &Rig, n: usize) {
    let on = |server: &Server| server.info("blocked_clients").unwrap().parse::<usize>().unwrap();
    eventually(&format!("{n} clients wait for a push"), SOON, || rig.servers.iter().map(on).sum::<usize>() == n);
}

/// Does this to the first wait for a push on each node.
fn on_waits(rig: &Rig, act: &Act) -> Vec<Fault> {
    rig.proxies.iter().map(|proxy| proxy.on("BLPOP", act.clone())).collect()
}

fn any_hit(faults: &[Fault]) {
    eventually("a wait for a push is struck", SOON, || faults.iter().any(|fault| fault.hits() > 0));
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
            assert!(rig.is_held_by(KEY, guard.id().as_str()), "he believes to have it");
            K::unlock(guard).unwrap();
            at
        });
        let since = lose(guard);
        let took = waiter.join().unwrap().saturating_duration_since(since);
        assert!(took <= BOUND + SLACK, "{took:?}");
    });
    eventually("nothing is left", SOON, || rig.holding(KEY) <= rig.minority());
}

/// The push was made for the waiter and went under with his connection.
fn fault_35_the_connection_breaks_with_the_grant<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        let faults = on_waits(rig, &Act::ResetAfter);
        is_found_all_the_same::<K>(rig, |guard| {
            blocked(rig, 1);
            K::unlock(guard).unwrap();
            any_hit(&faults);
            Instant::now()
        });
    });
}

/// The server ends the connection on which one waits, and the release finds nobody there.
fn fault_35_the_waiting_connection_is_killed<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        is_found_all_the_same::<K>(rig, |guard| {
            blocked(rig, 1);
            assert!(rig.servers.iter().any(kill_blocked), "nobody waits");
            let killed = Instant::now();
            K::unlock(guard).unwrap();
            killed
        });
    });
}

/// False if nobody waits on this server.
fn kill_blocked(server: &Server) -> bool {
    let list: String = server.ask(cmd("CLIENT").arg("LIST"));
    let Some(waits) = list.lines().find(|line| line.contains(" cmd=blpop ")) else { return false };
    let id = waits.split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
    server.ask::<usize>(cmd("CLIENT").arg("KILL").arg("ID").arg(id)) == 1
}

/// The waiter had not got round to waiting yet; before he does, somebody deletes what was left for him to read.
fn fault_35_the_grant_is_deleted_by_hand<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let faults = on_waits(rig, &Act::Hold);
        is_found_all_the_same::<K>(rig, |guard| {
            any_hit(&faults);
            let token = guard.id().as_str().to_owned();
            K::unlock(guard).unwrap();
            assert!(rig.holding(KEY) > 0 && !rig.is_held_by(KEY, &token), "it is granted");
            let unread = rig.servers.iter().filter(|server| server.del(WAKE)).count();
            assert!(unread > 0, "nothing was left to be read");
            faults.iter().for_each(Fault::release);
            Instant::now()
        });
    });
}

/// The grant reached one who reads no more, and others wait behind him.
fn fault_35_the_receiver_dies_with_the_grant<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let inside = AtomicUsize::new(0);
        let enter = |lock: K| {
            let guard = lock.try_lock_for(SOON).expect("the grant is over some time");
            let at = Instant::now();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            guard.check().unwrap();
            inside.fetch_sub(1, Ordering::SeqCst);
            K::unlock(guard).unwrap();
            at
        };
        let guard = K::new(&brisk(rig.builder()), KEY).lock().unwrap();
        let faults = on_waits(rig, &Act::HoldReply);
        let (dead, next) = (brisk(rig.builder()), brisk_direct(rig));
        thread::scope(|scope| {
            let dead = scope.spawn(|| enter(K::new(&dead, KEY)));
            blocked(rig, 1);
            let next = scope.spawn(|| enter(K::new(&next, KEY)));
            blocked(rig, 2);
            // The holder's release goes by way of the proxies, too.
            K::unlock(guard).unwrap();
            any_hit(&faults);
            rig.proxies.iter().for_each(Proxy::black_hole);
            let died = Instant::now();
            let took = next.join().unwrap().saturating_duration_since(died);
            assert!(took <= BOUND + SLACK, "{took:?}");
            // He was not dead after all: what he reads now is no lock any more.
            rig.heal();
            dead.join().unwrap();
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
