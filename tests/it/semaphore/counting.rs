//! A semaphore never has more holders than permits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use redis::cmd;
use redlock_sync::{Error, Semaphore};
use redlock_tests::{Server, servers};

use super::{KEY, ms, open, until_queued};

/// What the holding threads see of each other.
#[derive(Default)]
struct Room {
    inside: AtomicU32,
    most: AtomicU32,
    slots: [AtomicBool; 4],
}

impl Room {
    /// Acquires a permit, checks the number of holders and the slot, and releases. Repeats this `times` times.
    fn visit(&self, semaphore: &Semaphore, permits: u32, times: u32) {
        for _ in 0..times {
            let permit = semaphore.acquire().unwrap();
            let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(inside, Ordering::SeqCst);
            let slot = &self.slots[usize::try_from(permit.slot()).unwrap()];
            let was_taken = slot.swap(true, Ordering::SeqCst);
            thread::sleep(ms(1));
            slot.store(false, Ordering::SeqCst);
            self.inside.fetch_sub(1, Ordering::SeqCst);
            permit.check().unwrap();
            assert!(inside <= permits && !was_taken, "{inside} inside, slot {}: {was_taken}", permit.slot());
            permit.release().unwrap();
        }
    }
}

/// Eight threads of each of three clients take permits.
fn counts(nodes: usize, permits: u32, times: u32) {
    let (servers, room) = (servers(nodes), Room::default());
    thread::scope(|scope| {
        for _ in 0..3 {
            let locks = open(&servers);
            for _ in 0..8 {
                let (semaphore, room) = (locks.semaphore(KEY, permits), &room);
                scope.spawn(move || room.visit(&semaphore, permits, times));
            }
        }
    });
    assert_eq!(room.most.into_inner(), permits, "the threads never held all permits at once");
    let semaphore = open(&servers).semaphore(KEY, permits);
    assert_eq!((semaphore.available().unwrap(), semaphore.inspect().unwrap()), (permits, vec![]));
}

#[test]
fn never_more_holders_than_permits_on_one_node() {
    counts(1, 3, 60);
}

#[test]
fn never_more_holders_than_permits_on_three_nodes() {
    counts(3, 3, 15);
}

#[test]
fn permits_have_slots_and_those_that_are_free_are_counted() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = open(&servers);
        let semaphore = locks.semaphore(KEY, 3);
        let permits: Vec<_> = (0..3).map(|_| semaphore.acquire().unwrap()).collect();
        let mut slots: Vec<u32> = permits.iter().map(redlock_sync::SemaphorePermit::slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2]);
        assert_eq!(semaphore.available().unwrap(), 0);
        let holders = semaphore.inspect().unwrap();
        assert!(permits.iter().all(|permit| holders.iter().any(|holder| holder.id == *permit.id())));
        assert_eq!(holders.len(), 3);
        assert!(semaphore.try_acquire().unwrap_err().is_busy());
        permits.into_iter().try_for_each(redlock_sync::SemaphorePermit::release).unwrap();
        assert_eq!(semaphore.available().unwrap(), 3);
    }
}

/// One server has lent the permit, one has not, and one is down. Whether the permit is free depends on the last one.
#[test]
fn the_server_that_is_down_may_have_lent_the_permit() {
    let servers = servers(3);
    let semaphore = open(&servers).semaphore(KEY, 2);
    assert_eq!(semaphore.available().unwrap(), 2);
    let lend = |server: &Server, permit: &str| {
        let lent: u64 = server.ask(cmd("ZADD").arg(KEY).arg("9000000000000000").arg(permit));
        assert_eq!(lent, 1);
    };
    servers[2].kill();
    lend(&servers[0], "0 token");
    assert!(semaphore.available().unwrap_err().is_unavailable());
    lend(&servers[1], "0 token");
    assert_eq!(semaphore.available().unwrap(), 1);
    // The first permit is certain, and the second one is not.
    lend(&servers[1], "1 other");
    assert!(semaphore.available().unwrap_err().is_unavailable());
    assert!(semaphore.inspect().unwrap_err().is_unavailable());
}

#[test]
fn kind_03_a_smaller_number_takes_no_permit_away_and_gives_none_beyond_it() {
    let servers = servers(1);
    let (old, new) = (open(&servers).semaphore(KEY, 3), open(&servers).semaphore(KEY, 2));
    let mut held: Vec<_> = (0..3).map(|_| old.acquire().unwrap()).collect();
    assert_eq!((old.available().unwrap(), new.available().unwrap()), (0, 0));
    assert_eq!(new.inspect().unwrap().len(), 3);
    let beyond = held.pop().unwrap();
    assert_eq!(beyond.slot(), 2);
    beyond.release().unwrap();
    assert!(new.try_acquire().unwrap_err().is_busy(), "the new handle got a third permit");
    held.remove(0).release().unwrap();
    let permit = new.try_acquire().unwrap();
    assert_eq!(permit.slot(), 0);
    let third = old.try_acquire().unwrap();
    assert_eq!(third.slot(), 2, "the old handle got no third permit");
    held[0].check().unwrap();
}

/// The handle has the number of permits, not the servers. The handle that releases may have a larger number than the
/// wait.
#[test]
fn a_wait_for_a_smaller_number_is_given_no_slot_beyond_it() {
    let servers = servers(1);
    let (old, new) = (open(&servers).semaphore(KEY, 3), open(&servers).semaphore(KEY, 2));
    let mut held: Vec<_> = (0..3).map(|_| old.acquire().unwrap()).collect();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let permit = new.acquire().unwrap();
            let slot = permit.slot();
            permit.release().unwrap();
            slot
        });
        until_queued(&servers[0], 1);
        held.pop().unwrap().release().unwrap();
        // The server has served the queue before it replies to the release.
        let members: Vec<String> = servers[0].ask(cmd("ZRANGE").arg(KEY).arg(0).arg(-1));
        assert!(!members.iter().any(|member| member.starts_with("2 ")), "{members:?}");
        assert!(!waiter.is_finished(), "the waiter got a third permit");
        held.remove(0).release().unwrap();
        assert_eq!(waiter.join().unwrap(), 0);
    });
}

#[test]
fn input_12_the_number_of_permits_is_checked() {
    let servers = servers(1);
    let locks = open(&servers);
    for wrong in [0, 1025] {
        let semaphore = locks.semaphore(KEY, wrong);
        let errors = [semaphore.acquire().unwrap_err(), semaphore.available().unwrap_err()];
        assert!(errors.iter().all(|error| matches!(error, Error::Config { .. })), "{errors:?}");
        assert!(errors[0].to_string().contains(&wrong.to_string()), "{}", errors[0]);
    }
    assert_eq!(locks.semaphore(KEY, 1024).available().unwrap(), 1024);
}

/// Holders have permits on different majorities. An attempt must find a permit that is free on all nodes, at whichever
/// slot it begins.
#[test]
fn a_permit_that_is_free_is_found_by_a_call_that_does_not_wait() {
    let servers = servers(3);
    let semaphore = open(&servers).semaphore(KEY, 3);
    let lend = |server: &Server, slot: u32, holder_name: &str| {
        let member = format!("{slot} {}:{holder_name}", "0123456789abcdef".repeat(2));
        let _: i64 = server.ask(redis::cmd("ZADD").arg(KEY).arg("9e15").arg(member));
    };
    for (node, slot, holder_name) in [(0, 0, "a"), (1, 0, "a"), (1, 1, "b"), (2, 1, "b")] {
        lend(&servers[node], slot, holder_name);
    }
    for _ in 0..40 {
        let permit = semaphore.try_acquire().unwrap();
        permit.release().unwrap();
    }
    // Now slot 2 is also taken on a majority, so no permit is free.
    for server in &servers[..2] {
        lend(server, 2, "c");
    }
    assert!(semaphore.try_acquire().unwrap_err().is_busy());
}
