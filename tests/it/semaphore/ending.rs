//! Permits expire, are lost, or are given up together.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Error, LostReason};
use redlock_tests::{Stopwatch, eventually, servers};

use super::{KEY, QUEUE, SOON, brisk, ms, open, until_queued};

/// The release keeps the permit for the rest of its minimum hold. The lease is much longer.
#[test]
fn the_key_ends_with_the_minimum_hold_of_its_last_permit() {
    let servers = servers(1);
    let semaphore = open(&servers).semaphore(KEY, 2).lease(ms(3_600_000)).min_hold(ms(2000));
    semaphore.acquire().unwrap().release().unwrap();
    let left = servers[0].pttl(KEY);
    assert!(left.is_none_or(|left| left <= ms(2000)), "{left:?}");
}

/// A process died with a permit of a short lease. Another one releases a permit of a long lease. If a wait was in the
/// queue at that time, another script releases it.
#[test]
fn the_key_does_not_outlive_its_last_permit() {
    for nodes in [1, 3] {
        for waits in [false, true] {
            let servers = servers(nodes);
            let semaphore = open(&servers).semaphore(KEY, 2).renew(false);
            std::mem::forget(semaphore.clone().lease(ms(3000)).acquire().unwrap());
            let long = semaphore.clone().lease(ms(3_600_000)).acquire().unwrap();
            for server in servers.iter().filter(|_| waits) {
                let _: i64 = server.ask(cmd("ZADD").arg(QUEUE).arg(1).arg("gone/1 2 1"));
            }
            long.release().unwrap();
            for server in &servers {
                eventually("its end is that of the last permit", SOON, || {
                    server.pttl(KEY).is_none_or(|left| left <= ms(3000))
                });
            }
        }
    }
}

#[test]
fn the_permit_of_a_holder_that_is_gone_comes_back_after_its_lease() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let lease = ms(3000);
        let semaphore = brisk(&servers, lease).semaphore(KEY, 2);
        let began = Stopwatch::start();
        // This permit is not renewed, like that of a killed process.
        let gone = semaphore.clone().renew(false).acquire().unwrap();
        let alive = semaphore.acquire().unwrap();
        let waiter = brisk(&servers, lease).semaphore(KEY, 2);
        let next = waiter.acquire().unwrap();
        let took = began.elapsed();
        assert!(took >= lease, "{nodes} nodes: {took:?}");
        assert!(took < lease + SOON / 10, "{nodes} nodes: {took:?}");
        let lost = gone.check().unwrap_err();
        assert!(matches!(lost, Error::Lost { reason: LostReason::Expired, .. }), "{lost}");
        assert!(matches!(gone.release(), Err(Error::Lost { .. })));
        alive.check().unwrap();
        next.check().unwrap();
    }
}

#[test]
fn deleting_the_key_loses_all_permits_and_lets_waiters_in() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let semaphore = brisk(&servers, ms(3000)).semaphore(KEY, 2);
        let held = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
        for server in &servers {
            assert!(server.del(KEY));
        }
        eventually("both are lost", SOON, || held.iter().all(|permit| permit.check().is_err()));
        for permit in held {
            let error = permit.release().unwrap_err();
            assert!(matches!(error, Error::Lost { reason: LostReason::Deleted, .. }), "{error}");
        }
        let again = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
        assert_eq!(semaphore.available().unwrap(), 0);
        drop(again);
    }
}

#[test]
fn kind_02_a_node_that_lost_the_key_gets_it_again_in_the_same_slot() {
    let servers = servers(3);
    let semaphore = brisk(&servers, ms(3000)).semaphore(KEY, 8);
    let permit = semaphore.acquire().unwrap();
    assert!(servers[1].del(KEY));
    let member = format!("{} {}", permit.slot(), permit.id().as_str());
    let lent = || servers[1].ask::<Vec<String>>(cmd("ZRANGE").arg(KEY).arg(0).arg(-1));
    eventually("the node has the permit again", SOON, || lent() == [member.clone()]);
    permit.check().unwrap();
    permit.release().unwrap();
    eventually("nothing is left", SOON, || servers.iter().all(|server| server.keys().is_empty()));
}

/// One node granted another slot than the majority. The client must give that slot back.
#[test]
fn kind_04_what_a_node_lent_beside_the_permit_is_given_back() {
    let servers = servers(3);
    let semaphore = brisk(&servers, Duration::from_secs(9)).semaphore(KEY, 2);
    let lent = |node: usize| servers[node].ask::<Vec<String>>(cmd("ZRANGE").arg(KEY).arg(0).arg(-1));
    // About every second attempt begins at slot 0, which another token has on the first node.
    let taken = format!("0 {}:other", "f".repeat(32));
    for _ in 0..8 {
        let _: i64 = servers[0].ask(cmd("ZADD").arg(KEY).arg(9_000_000_000_000_000_i64).arg(&taken));
        let permit = semaphore.acquire().unwrap();
        let has = |node: usize, slot: u32| lent(node).contains(&format!("{slot} {}", permit.id().as_str()));
        let slot = permit.slot();
        eventually("the node has no other slot for it", SOON, || !has(0, 1 - slot));
        assert!(has(1, slot) && has(2, slot) && !has(1, 1 - slot) && !has(2, 1 - slot));
        permit.check().unwrap();
        permit.release().unwrap();
        eventually("nothing is left", SOON, || {
            lent(0).iter().all(|one| *one == taken) && lent(1).is_empty() && lent(2).is_empty()
        });
    }
}

#[test]
fn minimum_and_maximum_holds_are_kept() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let semaphore = brisk(&servers, ms(1500)).semaphore(KEY, 1);
        let began = Instant::now();
        semaphore.clone().min_hold(ms(700)).acquire().unwrap().release().unwrap();
        assert!(semaphore.try_acquire().unwrap_err().is_busy());
        let permit = semaphore.clone().max_hold(ms(1000)).acquire().unwrap();
        assert!(began.elapsed() >= ms(690));
        eventually("the longest hold ends", SOON, || permit.check().is_err());
        let error = permit.release().unwrap_err();
        assert!(matches!(error, Error::Lost { reason: LostReason::MaxHold, .. }), "{error}");
    }
}

#[test]
fn permits_are_renewed_and_extended() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let semaphore = brisk(&servers, ms(3000)).semaphore(KEY, 1);
        let permit = semaphore.acquire().unwrap();
        let began = Instant::now();
        eventually("more than a lease has passed", SOON, || began.elapsed() > ms(4000));
        permit.check().unwrap();
        permit.extend(ms(20_000)).unwrap();
        assert!(permit.remaining() > ms(15_000));
        assert!(servers[0].pttl(KEY).unwrap() > ms(15_000));
        permit.release().unwrap();
    }
}

#[test]
fn kind_10_closing_ends_waits_and_gives_permits_up() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let held: Vec<_> = (0..2).map(|_| locks.semaphore(KEY, 2).acquire().unwrap()).collect();
    let waiter = others.semaphore(KEY, 2);
    let waiting = thread::spawn(move || waiter.acquire().map(drop));
    until_queued(&servers[0], 1);
    others.shutdown(Duration::ZERO).unwrap();
    assert_eq!(waiting.join().unwrap(), Err(Error::Closed));
    until_queued(&servers[0], 0);
    assert_eq!(locks.shutdown(Duration::ZERO).unwrap().given_up.len(), 2);
    assert!(held.iter().all(|permit| permit.check().unwrap_err().is_lost()));
    assert!(servers[0].keys().is_empty());
}

#[test]
fn fences_rise_from_holder_to_holder() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let clients = [open(&servers), open(&servers)];
        let mut largest = 0;
        for i in 0..8 {
            let semaphore = clients[i % 2].semaphore(KEY, 3).fenced(i % 3 == 0);
            let kept = semaphore.acquire().unwrap();
            let permit = semaphore.acquire().unwrap();
            let fence = permit.fencing_token().unwrap();
            assert!(fence > largest, "{nodes} nodes: {fence} after {largest}");
            assert_eq!(permit.fencing_token().unwrap(), fence);
            largest = fence;
            kept.release().and(permit.release()).unwrap();
        }
    }
}

#[test]
fn kind_08_a_full_server_lends_nothing_new_and_keeps_what_is_lent() {
    let servers = servers(1);
    let semaphore = open(&servers).semaphore(KEY, 3);
    let (permit, kept) = (semaphore.acquire().unwrap(), semaphore.clone().min_hold(SOON / 2).acquire().unwrap());
    servers[0].fill();
    assert!(matches!(semaphore.try_acquire().unwrap_err(), Error::Unavailable { .. }));
    permit.extend(ms(60_000)).unwrap();
    permit.release().unwrap();
    kept.release().unwrap();
    servers[0].unfill();
    semaphore.try_acquire().unwrap().release().unwrap();
}
