//! A writer becomes a reader.

use std::thread;

use redlock_sync::{Error, LostReason, Redlock, RwLockReadGuard, Unlocked};
use redlock_tests::{Act, Proxy, eventually, servers};

use super::{KEY, SOON, brisk, held, is_clean, ms, open, until_waiting};
use crate::rig::for_each;

/// A downgrade lets in waiting readers of this and other processes, but no waiting writer. The reader's fencing token
/// is larger than the writer's, and smaller than the next writer's.
#[test]
fn a_downgrade_lets_the_readers_in_that_wait_and_no_writer() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (locks, others, last) = (open(&servers), open(&servers), open(&servers));
        let writer = locks.rw_lock(KEY).write().unwrap();
        let (fence, id) = (writer.fencing_token().unwrap(), writer.id().clone());
        let read = |locks: &Redlock| _ = locks.rw_lock(KEY).try_read_for(SOON).unwrap().unlock().unwrap();
        thread::scope(|scope| {
            let beside = [scope.spawn(|| read(&others)), scope.spawn(|| read(&locks))];
            until_waiting(&servers, "readers", 1);
            let next = scope.spawn(|| last.rw_lock(KEY).write().unwrap().fencing_token().unwrap());
            until_waiting(&servers, "writers", 1);
            let reader: RwLockReadGuard = writer.downgrade().unwrap();
            for thread in beside {
                thread.join().unwrap();
            }
            assert_eq!((reader.id(), held(&locks)), (&id, (0, 1)));
            let own = reader.fencing_token().unwrap();
            assert!(own > fence && !next.is_finished());
            assert_eq!(locks.rw_lock(KEY).write().unwrap_err(), Error::WouldDeadlock { key: KEY.into() });
            assert_eq!(reader.unlock().unwrap(), Unlocked::Released);
            assert!(next.join().unwrap() > own);
        });
        eventually("nothing is left", SOON, || is_clean(&servers));
    }
}

/// The reader's lease ends no sooner than the writer's would have, and is renewed.
#[test]
fn a_downgraded_lease_goes_on() {
    for_each("nodes", &[1, 3], |nodes| {
        let servers = servers(nodes);
        let (locks, others) = (brisk(&servers, ms(3000)), open(&servers));
        let writer = locks.rw_lock(KEY).write().unwrap();
        writer.extend(ms(5000)).unwrap();
        let reader = writer.downgrade().unwrap();
        assert!(reader.remaining() > ms(3000));
        let remaining = others.rw_lock(KEY).inspect().unwrap()[0].remaining.unwrap();
        assert!(remaining > ms(3000), "{remaining:?}");
        thread::sleep(ms(6000));
        reader.check().unwrap();
        others.rw_lock(KEY).try_read().unwrap().unlock().unwrap();
        assert_eq!(held(&others), (0, 1));
        reader.unlock().unwrap();
        drop(others.rw_lock(KEY).try_write().unwrap());
    });
}

/// If the reply is lost, the guard is a reader's guard all the same. The next renewal tells the servers.
#[test]
fn kind_14_a_downgrade_whose_reply_is_lost_is_a_readers_guard() {
    for act in [Act::ResetAfter, Act::ResetBefore] {
        let servers = servers(1);
        let proxy = Proxy::start(&servers[0]);
        let locks = Redlock::builder().node(proxy.url()).node_timeout(ms(1500)).lease(ms(4500)).build().unwrap();
        let others = open(&servers);
        let writer = locks.rw_lock(KEY).write().unwrap();
        let fault = proxy.on_each("extend", act);
        let reader = writer.downgrade().unwrap();
        reader.check().unwrap();
        assert!(fault.hits() > 0);
        assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
        proxy.heal();
        eventually("a renewal makes the server know", SOON, || held(&others) == (0, 1));
        eventually("the server is used again", SOON, || reader.fencing_token().is_ok());
        reader.unlock().unwrap();
        assert!(is_clean(&servers));
    }
}

/// A node without the downgrade accepts the reader's release, and lets in the waiters whose turn it is.
#[test]
fn a_node_that_did_not_learn_of_a_downgrade_takes_the_release() {
    let servers = servers(1);
    let proxy = Proxy::start(&servers[0]);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(ms(2000)).build().unwrap();
    let others = open(&servers);
    let writer = locks.rw_lock(KEY).write().unwrap();
    thread::scope(|scope| {
        let reads = scope.spawn(|| drop(others.rw_lock(KEY).try_read_for(SOON).unwrap()));
        until_waiting(&servers, "readers", 1);
        proxy.on_each("extend", Act::ResetBefore);
        let reader = writer.downgrade().unwrap();
        assert_eq!(held(&others), (1, 0));
        eventually("the server is used again", SOON, || reader.fencing_token().is_ok());
        reader.unlock().unwrap();
        reads.join().unwrap();
    });
    eventually("nothing is left", SOON, || is_clean(&servers));
}

#[test]
fn a_downgrade_of_what_is_lost_is_lost() {
    let servers = servers(1);
    let locks = open(&servers);
    let writer = locks.rw_lock(KEY).write().unwrap();
    servers[0].del(KEY);
    let lost = writer.downgrade().unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LostReason::Deleted, .. }), "{lost:?}");
    let writer = locks.rw_lock(KEY).write().unwrap();
    locks.unlock_all().unwrap();
    assert!(writer.downgrade().unwrap_err().is_lost());
    drop(locks.rw_lock(KEY).write().unwrap());
}

/// The lock stays exclusive as long as a guard of the thread is a writer's.
#[test]
fn a_nested_writer_that_is_downgraded_leaves_the_outer_one_alone() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let lock = locks.rw_lock(KEY);
    let (outer, inner) = (lock.write().unwrap(), lock.write().unwrap());
    let inner = inner.downgrade().unwrap();
    assert_eq!(held(&others), (1, 0));
    assert_eq!(outer.unlock().unwrap(), Unlocked::StillHeld);
    assert_eq!(held(&others), (0, 1));
    others.rw_lock(KEY).try_read().unwrap().unlock().unwrap();
    assert_eq!(inner.unlock().unwrap(), Unlocked::Released);
    let (outer, inner) = (lock.write().unwrap(), lock.read().unwrap());
    drop(outer);
    eventually("the drop reaches the server", SOON, || held(&others) == (0, 1));
    assert_eq!((held(&others), inner.check()), ((0, 1), Ok(())));
    inner.unlock().unwrap();
    assert!(is_clean(&servers));
}

/// A full server accepts no new holder, but lets a writer become a reader.
#[test]
fn a_full_server_takes_a_downgrade() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let writer = locks.rw_lock(KEY).write().unwrap();
    servers[0].fill();
    let reader = writer.downgrade().unwrap();
    assert_eq!(held(&others), (0, 1));
    reader.unlock().unwrap();
    servers[0].unfill();
}
