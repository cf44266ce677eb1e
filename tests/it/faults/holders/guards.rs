//! Guards that panic, move, nest, or are forgotten.

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Mutex, Redlock, Unlocked};
use redlock_tests::{Proxy, Server, eventually};

use crate::faults::rig::{KEY, LEASE, MORE_SLACK, NODE_TIMEOUT, Rig, SOON, err, for_sizes, lost, ms, stays, timed};
use crate::kinds::{Kind, each_kind};

/// Panics in a new thread that owns the guard. `before` is called between the lock and the panic.
fn panic_with_guard<K: Kind>(lock: K, before: impl FnOnce(&K::Guard) + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let guard = lock.lock().unwrap();
            before(&guard);
            panic!("this panic is part of the test");
        });
        let panicked = thread.join().unwrap_err();
        assert_eq!(panicked.downcast_ref::<&str>(), Some(&"this panic is part of the test"));
    });
}

fn fault_29_drop_while_panicking_never_panics<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        // A second panic would abort the whole test process. Everything that can fail in a drop fails here.
        let lock = K::new(&rig.through(), KEY).lease(LEASE);
        panic_with_guard(lock.clone(), |guard| {
            guard.on_lost(|_| panic!("this panic is part of the test, too"));
            rig.servers.iter().for_each(|server| _ = server.del(KEY));
        });
        let ((), took) = timed(|| {
            panic_with_guard(lock.clone(), |_| rig.proxies.iter().for_each(Proxy::black_hole));
        });
        assert!(took < 3 * NODE_TIMEOUT + MORE_SLACK, "{took:?}");
        rig.heal();
        let lock = K::new(&rig.through(), "another");
        panic_with_guard(lock, |_| rig.proxies.iter().for_each(Proxy::refuse));
        rig.heal();
    });
}

fn fault_29_a_lost_lock_with_a_panicking_handler_unwinds<K: Kind>() {
    let rig = Rig::start(1);
    let lock = K::new(&rig.through(), KEY).lease(LEASE).renew(false);
    let (tell, told) = mpsc::channel();
    // The lease expires while no call checks it. The drop during the panic is the first to notice the loss.
    panic_with_guard(lock, move |guard| {
        let wait = guard.remaining() + ms(5);
        guard.on_lost(move |_| {
            tell.send(()).unwrap();
            panic!("this panic is part of the test, too");
        });
        thread::sleep(wait);
    });
    told.recv_timeout(SOON).unwrap();
}

#[test]
fn fault_31_a_sendable_guard_changes_threads() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let lock = locks.mutex(KEY).lease(LEASE);
        let guard = lock.lock().unwrap();
        let token = guard.id().clone();
        assert!(matches!(lock.lock(), Err(Error::WouldDeadlock { .. })));
        let guard = guard.into_send();
        assert_eq!((guard.id(), rig.holding(KEY)), (&token, rig.servers.len()));
        // From here on, this thread can wait for the lock like any other thread.
        assert!(err(lock.try_lock()).is_busy());
        let (release, released) = mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            released.recv().unwrap();
            guard.check().unwrap();
            guard.unlock()
        });
        let is_taken = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // The guard is renewed in its new thread for longer than one lease.
                rig.proxies[0].wait_count("extend", 3, SOON);
                let was_taken = is_taken.load(Ordering::SeqCst);
                release.send(()).unwrap();
                assert!(!was_taken, "the lock had two holders");
            });
            let guard = lock.lock().unwrap();
            is_taken.store(true, Ordering::SeqCst);
            guard.check().unwrap();
            guard.unlock().unwrap();
        });
        holder.join().unwrap().unwrap();
        assert_eq!(rig.holding(KEY), 0);
    });
}

#[test]
fn fault_31_a_dropped_sendable_guard_releases_in_its_thread() {
    let rig = Rig::start(1);
    let guard = rig.through().mutex(KEY).lock().unwrap().into_send();
    thread::spawn(move || drop(guard)).join().unwrap();
    eventually("the lock is free", SOON, || rig.holding(KEY) == 0);
}

/// Runs `work`, and asserts that it returns at once and sends no request to the servers.
#[track_caller]
fn silently<T>(rig: &Rig, work: impl FnOnce() -> T) -> T {
    let before = rig.calls();
    let (outcome, took) = timed(work);
    assert!(took < MORE_SLACK, "{took:?}");
    assert_eq!(rig.calls(), before);
    outcome
}

fn expect_would_deadlock<T>(outcome: Result<T, Error>) {
    let error = err(outcome);
    assert!(matches!(&error, Error::WouldDeadlock { key } if key == KEY), "{error:?}");
    assert!(error.to_string().contains(KEY), "{error}");
}

fn expect_busy<T>(outcome: Result<T, Error>, is_own: bool) {
    let error = err(outcome);
    let text = error.to_string();
    let Error::Busy { key, expires_in: Some(left), by_this_thread, .. } = error else { panic!("not busy with a time") };
    assert_eq!(by_this_thread, is_own);
    assert!(text.contains(if is_own { "this thread" } else { "another holder" }), "{text}");
    assert_eq!(key, KEY);
    assert!(left > Duration::ZERO && left <= Duration::from_secs(30), "{left:?}");
}

#[test]
fn fault_32_a_thread_is_told_that_it_would_wait_for_itself() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let (once, nested) = (locks.mutex(KEY), locks.reentrant_mutex(KEY));
        let guard = once.lock().unwrap();
        // Clones of the client and new handles refer to the same lock.
        silently(rig, || expect_would_deadlock(once.clone().lock()));
        silently(rig, || expect_would_deadlock(locks.clone().mutex(KEY).lock()));
        silently(rig, || expect_busy(once.try_lock(), true));
        silently(rig, || expect_busy(once.try_lock_for(SOON), true));
        silently(rig, || expect_would_deadlock(nested.lock()));
        silently(rig, || expect_busy(nested.try_lock(), true));
        silently(rig, || expect_busy(nested.try_lock_for(SOON), true));
        guard.check().unwrap();
        guard.unlock().unwrap();
        once.lock().unwrap().unlock().unwrap();

        let outer = nested.lock().unwrap();
        silently(rig, || expect_would_deadlock(once.lock()));
        silently(rig, || expect_busy(once.try_lock(), true));
        silently(rig, || expect_busy(once.try_lock_for(SOON), true));
        let inner = silently(rig, || nested.lock().unwrap());
        drop(outer);
        silently(rig, || expect_would_deadlock(once.lock()));
        assert_eq!(inner.unlock().unwrap(), Unlocked::Released);
        once.lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn fault_32_the_reentrant_kind_nests_without_the_servers() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let lock = locks.reentrant_mutex(KEY);
        let outer = lock.lock().unwrap();
        let fence = outer.fencing_token().unwrap();
        let inner = silently(rig, || {
            let all = [lock.lock(), lock.try_lock(), lock.clone().try_lock_for(SOON)].map(Result::unwrap);
            for guard in &all {
                guard.check().unwrap();
                assert_eq!((guard.id(), guard.key()), (outer.id(), KEY));
                assert_eq!(guard.fencing_token(), Ok(fence));
            }
            all
        });
        // The guards are released out of order: the outer guard is the first.
        assert_eq!(silently(rig, || outer.unlock()).unwrap(), Unlocked::StillHeld);
        let [a, b, c] = inner;
        silently(rig, || drop(b));
        assert_eq!(silently(rig, || a.unlock()).unwrap(), Unlocked::StillHeld);
        assert_eq!(rig.holding(KEY), rig.servers.len());
        assert_eq!(c.unlock().unwrap(), Unlocked::Released);
        assert_eq!(rig.holding(KEY), 0);
    });
}

fn fault_32_other_threads_and_clients_do_wait<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let lock = K::new(&locks, KEY);
        let guard = lock.lock().unwrap();
        // A second client in this thread does not know of this hold. `lock()` would wait forever, so the test calls
        // only methods with a time limit.
        expect_busy(K::new(&rig.through(), KEY).try_lock_for(ms(30)), false);
        thread::scope(|scope| {
            scope.spawn(|| expect_busy(lock.try_lock(), false));
            scope.spawn(|| expect_busy(lock.try_lock_for(ms(30)), false));
        });
        K::unlock(guard).unwrap();
    });
}

fn fault_32_a_lost_lock_nests_no_more<K: Kind>() {
    let rig = Rig::start(1);
    let lock = K::new(&rig.through(), KEY).lease(LEASE);
    let guard = lock.lock().unwrap();
    rig.servers[0].del(KEY);
    lost(&guard);
    match lock.lock() {
        // A lost mutex is no longer held, so the thread can lock it again. The old guard does not change the new hold.
        Ok(new) => {
            assert!(crate::kinds::name_of_kind::<K>() == "mutex" && new.id() != guard.id());
            assert!(err(K::unlock(guard)).is_lost());
            new.check().unwrap();
            assert!(err(lock.try_lock()).is_busy());
            K::unlock(new).unwrap();
        }
        Err(error) => {
            assert!(crate::kinds::name_of_kind::<K>() == "reentrant" && error.is_lost(), "{error}");
            assert!(err(K::unlock(guard)).is_lost());
            K::unlock(lock.lock().unwrap()).unwrap();
        }
    }
}

fn fault_33_a_forgotten_guard_ends_by_max_hold<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lock = K::new(&rig.through(), KEY).lease(LEASE).max_hold(LEASE + ms(1500));
        std::mem::forget(lock.lock().unwrap());
        let other: Redlock = rig.other_client();
        let (next, took) = timed(|| K::new(&other, KEY).lock().unwrap());
        assert!(took > LEASE + ms(500) && took < LEASE + ms(1500) + MORE_SLACK, "{took:?}");
        K::unlock(next).unwrap();
    });
}

fn fault_33_a_forgotten_guard_without_renewal_ends_by_its_ttl<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lock = K::new(&rig.through(), KEY).lease(LEASE).renew(false);
        std::mem::forget(lock.lock().unwrap());
        let (next, took) = timed(|| K::new(&rig.other_client(), KEY).lock().unwrap());
        assert!(took < LEASE + MORE_SLACK, "{took:?}");
        K::unlock(next).unwrap();
    });
}

fn fault_33_a_forgotten_guard_is_renewed_until_all_is_given_up<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        std::mem::forget(K::new(&locks, KEY).lease(LEASE).lock().unwrap());
        stays("the lock is held", LEASE + ms(500), || rig.holding(KEY) == rig.servers.len());
        assert_eq!(locks.unlock_all().unwrap().given_up.len(), 1);
        assert_eq!(rig.holding(KEY), 0);
        let renewed = rig.proxies[0].count("extend");
        stays("the renewals have stopped", LEASE / 2, || rig.proxies[0].count("extend") == renewed);
        eventually("another client can take the lock", SOON, || rig.other_client().mutex(KEY).try_lock().is_ok());
    });
}

each_kind!(all:
    fault_29_drop_while_panicking_never_panics,
    fault_29_a_lost_lock_with_a_panicking_handler_unwinds,
    fault_32_other_threads_and_clients_do_wait,
    fault_33_a_forgotten_guard_ends_by_max_hold,
    fault_33_a_forgotten_guard_without_renewal_ends_by_its_ttl,
    fault_33_a_forgotten_guard_is_renewed_until_all_is_given_up;
    mutexes: fault_32_a_lost_lock_nests_no_more
);

/// `catch_unwind` accepts clients, handles and guards.
#[test]
fn clients_and_guards_are_unwind_safe() {
    fn is_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_safe::<(Redlock, Mutex, redlock_sync::ReentrantMutex, redlock_sync::RwLock, redlock_sync::Semaphore)>();
    is_safe::<(redlock_sync::MultiLock, redlock_sync::CountDownLatch, redlock_sync::Queue)>();
    is_safe::<(redlock_sync::MutexGuard, redlock_sync::ReentrantMutexGuard, redlock_sync::MultiLockGuard)>();
    is_safe::<(redlock_sync::RwLockReadGuard, redlock_sync::RwLockWriteGuard, redlock_sync::SemaphorePermit)>();
    let server = Server::start();
    let locks = Redlock::open(server.url()).unwrap();
    let guard = locks.mutex("order:42").lock().unwrap();
    let panicked = catch_unwind(|| {
        guard.check().unwrap();
        locks.mutex("order:43").lock().map(|_held| panic!("while it is held")).unwrap()
    });
    assert!(panicked.is_err() && server.get("order:43").is_none());
    guard.unlock().unwrap();
}
