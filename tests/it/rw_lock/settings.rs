//! The settings of both sides.

use redlock_sync::Retry;
use redlock_tests::{eventually, servers};

use super::{KEY, SOON, ms, open};

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
