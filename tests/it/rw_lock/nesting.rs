//! What a thread that reads or writes gets if it asks again.

use std::thread;

use redlock_sync::{Error, Unlocked};
use redlock_tests::{Proxy, Server, eventually, servers};

use super::{KEY, SOON, brisk, held, is_clean, ms, open};

#[test]
fn kind_18_guards_of_a_thread_share_a_lease_and_go_in_any_order() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let lock = locks.rw_lock(KEY);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let write = lock.write().unwrap();
        let (read, again) = (lock.read().unwrap(), lock.try_write().unwrap());
        assert_eq!((read.id(), again.id()), (write.id(), write.id()));
        let mut unlocks: [Option<Box<dyn FnOnce() -> Unlocked>>; 3] = [
            Some(Box::new(move || write.unlock().unwrap())),
            Some(Box::new(move || read.unlock().unwrap())),
            Some(Box::new(move || again.unlock().unwrap())),
        ];
        let mut writers = 2;
        for (i, which) in order.into_iter().enumerate() {
            // The lock stays exclusive until the last writer's guard is gone.
            assert_eq!(held(&others), if writers > 0 { (1, 0) } else { (0, 1) });
            let beside = others.rw_lock(KEY).try_read();
            assert_eq!(beside.is_ok_and(|guard| guard.unlock().is_ok()), writers == 0);
            writers -= usize::from(which != 1);
            let unlocked = unlocks[which].take().unwrap()();
            assert_eq!(unlocked, if i == 2 { Unlocked::Released } else { Unlocked::StillHeld });
        }
        assert!(is_clean(&servers));
        let (first, second) = (lock.read().unwrap(), lock.read().unwrap());
        drop(first);
        assert_eq!(held(&others), (0, 1));
        drop(second);
        eventually("the last one releases", SOON, || is_clean(&servers));
    }
}

#[test]
fn a_nested_hold_costs_no_call() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let lock = redlock_tests::open(proxy.url()).rw_lock(KEY);
    let outer = lock.read().unwrap();
    let before = proxy.seen().len();
    for _ in 0..10 {
        lock.read().unwrap().unlock().unwrap();
        lock.try_read().unwrap().check().unwrap();
    }
    assert_eq!(proxy.seen().len(), before);
    drop(outer);
}

/// A guard after `into_send` can be released in any thread. If several guards of a thread share a lease, `into_send`
/// fails.
#[test]
fn a_sendable_guard_is_not_this_threads() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (lock, others) = (open(&servers).rw_lock(KEY), open(&servers));
        let (reader, nested) = (lock.read().unwrap(), lock.read().unwrap());
        let reader = reader.into_send().unwrap_err();
        assert_eq!(nested.unlock().unwrap(), Unlocked::StillHeld);
        let reader = reader.into_send().unwrap();
        thread::scope(|scope| {
            // As long as the guard belonged to this thread, this call would have been a deadlock. Now it waits until
            // the other thread releases the guard.
            let sent = scope.spawn(move || {
                reader.check().unwrap();
                reader.unlock().unwrap()
            });
            let writer = lock.write().unwrap().into_send().unwrap();
            assert_eq!(sent.join().unwrap(), Unlocked::Released);
            let reader = scope.spawn(move || writer.downgrade().unwrap()).join().unwrap();
            assert_eq!(held(&others), (0, 1));
            scope.spawn(move || reader.unlock().unwrap()).join().unwrap();
        });
        assert!(is_clean(&servers));
    }
}

#[test]
fn a_reader_cannot_write() {
    let servers = servers(1);
    let lock = open(&servers).rw_lock(KEY);
    let reader = lock.read().unwrap();
    assert_eq!(lock.write().unwrap_err(), Error::WouldDeadlock { key: KEY.into() });
    let refused = [lock.try_write(), lock.try_write_for(ms(5)), lock.try_write_until(std::time::Instant::now())];
    for refused in refused {
        assert!(matches!(refused.unwrap_err(), Error::Busy { by_this_thread: true, .. }));
    }
    reader.check().unwrap();
    // Another thread is not refused, but waits.
    let other = thread::scope(|scope| scope.spawn(|| lock.try_write_for(ms(50)).unwrap_err()).join().unwrap());
    assert!(matches!(other, Error::Busy { by_this_thread: false, .. }));
    reader.unlock().unwrap();
    drop(lock.write().unwrap());
}

/// If the thread's hold surely ends in time, then its wait is no deadlock.
#[test]
fn a_reader_whose_lease_ends_by_itself_can_wait_for_it() {
    let servers = servers(1);
    let lock = brisk(&servers, ms(600)).rw_lock(KEY).renew(false);
    let reader = lock.read().unwrap();
    let writer = lock.write().unwrap();
    assert!(reader.check().unwrap_err().is_lost());
    assert!(reader.unlock().unwrap_err().is_lost());
    writer.check().unwrap();
}

/// All guards of a lost hold report the loss, even the last one, and even if the thread has locked again since.
#[test]
fn guards_of_a_hold_that_has_ended_stay_lost_beside_a_later_hold() {
    let servers = servers(1);
    let lock = brisk(&servers, ms(600)).rw_lock(KEY).renew(false);
    let other = open(&servers).rw_lock("other");
    let readers = [lock.read().unwrap(), lock.read().unwrap()];
    let others = other.read().unwrap();
    let writer = lock.write().unwrap();
    drop(others);
    let nested = lock.read().unwrap();
    for reader in readers {
        assert!(reader.unlock().unwrap_err().is_lost());
    }
    assert_eq!(nested.unlock().unwrap(), Unlocked::StillHeld);
    assert_eq!(writer.unlock().unwrap(), Unlocked::Released);
}

#[test]
fn a_lost_hold_is_not_entered_again() {
    let servers = servers(1);
    let locks = open(&servers);
    let outer = locks.rw_lock(KEY).read().unwrap();
    locks.unlock_all().unwrap();
    assert!(locks.rw_lock(KEY).read().unwrap_err().is_lost());
    assert!(locks.rw_lock(KEY).write().unwrap_err().is_lost());
    drop(outer);
    drop(locks.rw_lock(KEY).write().unwrap());
}
