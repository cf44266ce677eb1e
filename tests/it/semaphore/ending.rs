//! Permits expire, are lost, or are given up together.

use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, LostReason};
use redlock_tests::{Stopwatch, eventually, servers};

use super::{KEY, QUEUE, SOON, brisk, ms, open};

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
