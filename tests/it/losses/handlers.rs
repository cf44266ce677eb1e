//! What `on_lost` handlers may do.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_tests::Server;

use crate::handover::rig::{Rig, SOON, brisk, ms};

/// A handler runs with a stack of the default size. A small stack would overflow, which aborts the process.
#[test]
#[allow(clippy::large_stack_arrays, reason = "this is about the stack")]
fn a_handler_of_a_loss_has_an_ordinary_stack() {
    let rig = Rig::start(1);
    let guard = brisk(&rig.urls(), ms(600)).mutex("order:42").renew(false).lock().unwrap();
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |error| {
        let large = black_box([1_u8; 400 * 1024]);
        let sum: usize = large.iter().map(|&n| usize::from(n)).sum();
        tell.send((error.is_lost(), sum)).unwrap();
    });
    assert_eq!(told.recv_timeout(SOON), Ok((true, 400 * 1024)));
}

/// A thread that waits for the lock notices the loss. A handler that wants the same lock must not run in this thread,
/// because each would wait for the other.
#[test]
fn a_handler_of_a_loss_does_not_run_in_a_thread_that_waits_for_the_lock() {
    let server = Server::start();
    for renews in [true, false] {
        let locks = redlock_tests::open(server.url());
        let lock = locks.mutex("order:42").renew(renews).lease(Duration::from_secs(120));
        let held = lock.lock().unwrap();
        let (tell, told) = mpsc::channel();
        let again = lock.clone();
        held.on_lost(move |_| {
            let outcome = again.try_lock_for(SOON).and_then(redlock_sync::MutexGuard::unlock);
            tell.send((thread::current().id(), outcome)).unwrap();
        });
        assert!(server.del("order:42"));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(SOON).and_then(redlock_sync::MutexGuard::unlock));
            let its_id = waiter.thread().id();
            let (id, outcome) = told.recv_timeout(SOON).unwrap();
            assert!(
                id != its_id && outcome.is_ok(),
                "renews: {renews}, in the waiting thread: {}, {outcome:?}",
                id == its_id
            );
            waiter.join().unwrap().unwrap();
        });
        assert!(held.check().unwrap_err().is_lost());
    }
}

/// A thread that joins a shared read lease asks the servers at times whether a writer waits. So it can notice the loss.
/// The handler must not run in this thread, because the duration of its call is limited.
#[test]
fn a_handler_of_a_loss_does_not_run_in_a_thread_that_joins_readers() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let lock = locks.rw_lock("prices").lease(Duration::from_secs(120));
    let held = lock.read().unwrap();
    let (tell, told) = mpsc::channel();
    held.on_lost(move |_| tell.send(thread::current().id()).unwrap());
    assert!(server.del("prices"));
    let is_told = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_told.load(Ordering::SeqCst) {
                lock.read().and_then(redlock_sync::RwLockReadGuard::unlock).unwrap();
            }
        });
        let id = told.recv_timeout(SOON);
        is_told.store(true, Ordering::SeqCst);
        assert_ne!(id.unwrap(), reader.thread().id());
    });
    assert!(held.check().unwrap_err().is_lost());
}
