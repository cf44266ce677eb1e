//! The settings of both sides.

use std::thread;

use redlock_sync::{LostReason, Retry};
use redlock_tests::{eventually, servers};

use super::{KEY, SOON, brisk, held, ms, open};

#[test]
fn readers_and_writers_have_leases_of_their_own() {
    let servers = servers(1);
    let lock = open(&servers).rw_lock(KEY);
    let reader = lock.clone().lease(ms(10_000)).read().unwrap();
    assert!(reader.remaining() > ms(5000) && reader.remaining() < ms(10_000));
    reader.unlock().unwrap();
    let writer = lock.clone().lease(ms(20_000)).write().unwrap();
    assert!(writer.remaining() > ms(15_000) && writer.remaining() < ms(20_000));
    writer.unlock().unwrap();
    let both = lock.lease(ms(9000));
    assert!(both.read().unwrap().remaining() < ms(9000));
    assert!(both.write().unwrap().remaining() < ms(9000));
}

#[test]
fn leases_are_renewed_on_either_side() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = brisk(&servers, ms(2100));
        let reader = locks.rw_lock(KEY).read().unwrap();
        thread::sleep(ms(2600));
        reader.check().unwrap();
        assert_eq!(held(&locks), (0, 1));
        reader.unlock().unwrap();
        let writer = locks.rw_lock(KEY).write().unwrap();
        thread::sleep(ms(2600));
        writer.check().unwrap();
        assert_eq!(held(&locks), (1, 0));
    }
}

#[test]
fn a_minimum_hold_outlasts_the_guard() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    locks.rw_lock(KEY).min_hold(ms(1500)).read().unwrap().unlock().unwrap();
    assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
    others.rw_lock(KEY).try_read().unwrap().unlock().unwrap();
    others.rw_lock(KEY).try_write_for(SOON).unwrap().unlock().unwrap();
    locks.rw_lock(KEY).min_hold(ms(1500)).write().unwrap().unlock().unwrap();
    assert!(others.rw_lock(KEY).try_read().unwrap_err().is_busy());
    drop(others.rw_lock(KEY).try_read_for(SOON).unwrap());
}

#[test]
fn a_reader_that_gives_up_leaves_no_queue() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let writer = locks.rw_lock(KEY).write().unwrap();
    assert!(others.rw_lock(KEY).try_read_for(ms(300)).unwrap_err().is_busy());
    let has_readers = || servers[0].keys().iter().any(|key| key.ends_with(":readers"));
    eventually("the queue of the readers is gone", SOON, || !has_readers());
    writer.unlock().unwrap();
}

/// A process died with a short read lease. Another one has read with a long lease.
#[test]
fn the_key_does_not_outlive_its_last_reader() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (dead, other) = (open(&servers), open(&servers));
        std::mem::forget(dead.rw_lock(KEY).renew(false).lease(ms(3000)).read().unwrap());
        other.rw_lock(KEY).renew(false).lease(ms(3_600_000)).read().unwrap().unlock().unwrap();
        for server in &servers {
            eventually("its end is that of the last reader", SOON, || {
                server.pttl(KEY).is_none_or(|left| left <= ms(3000))
            });
        }
    }
}

#[test]
fn a_longest_hold_ends() {
    let servers = servers(1);
    let locks = brisk(&servers, ms(3000));
    let reader = locks.rw_lock(KEY).max_hold(ms(3500)).read().unwrap();
    eventually("the longest hold ends", SOON, || reader.check().is_err());
    let lost = reader.check().unwrap_err();
    assert!(matches!(lost, redlock_sync::Error::Lost { reason: LostReason::MaxHold, .. }), "{lost:?}");
    drop(locks.rw_lock(KEY).try_write_for(SOON).unwrap_err());
    assert!(reader.unlock().unwrap_err().is_lost());
    drop(locks.rw_lock(KEY).try_write_for(SOON).unwrap());
}

#[test]
fn counted_attempts_end_a_wait() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let _writer = locks.rw_lock(KEY).holder_name("worker-7").write().unwrap();
    let few = others.rw_lock(KEY).retry(Retry::every(ms(1)).max_attempts(3));
    assert!(few.read().unwrap_err().is_busy());
    assert!(few.write().unwrap_err().is_busy());
    assert_eq!(few.inspect().unwrap()[0].id.holder_name(), "worker-7");
}

#[test]
fn fences_rise_from_readers_to_writers_and_back() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (locks, others) = (open(&servers).rw_lock(KEY).fenced(true), open(&servers).rw_lock(KEY));
        let mut last = 0;
        for _ in 0..5 {
            let (one, two) = (locks.read().unwrap(), others.read().unwrap());
            let fences = [one.fencing_token().unwrap(), two.fencing_token().unwrap()];
            assert!(fences.iter().all(|fence| *fence > last), "{fences:?} after {last}");
            one.unlock().and(two.unlock()).unwrap();
            let writer = others.write().unwrap();
            let fence = writer.fencing_token().unwrap();
            assert!(fences.iter().all(|reader| *reader < fence), "{fence} after {fences:?}");
            last = fence;
            writer.unlock().unwrap();
        }
    }
}
