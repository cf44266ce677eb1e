//! Re-entry: what a thread gets if it asks again for a lock that it holds.

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, LostReason, Mutex, ReentrantMutex, ReentrantMutexGuard, Unlocked};
use redlock_tests::{Server, Stopwatch, eventually};

use super::rig::{SOON, brisk, locks_on, ms, open};
use crate::handover::rig::{self, Rig, SLACK};
use crate::kinds::{Kind, each_kind};
use crate::place::{Place, each_place};

fn unwatched<P: Place>() -> (P, ReentrantMutex) {
    let server = P::one();
    let lock = open(std::slice::from_ref(&server)).reentrant_mutex("order:42");
    (server, lock)
}

fn guards_may_go_in_any_order<P: Place>() {
    let (server, lock) = unwatched::<P>();
    let [a, b, c] = [(); 3].map(|()| lock.lock().unwrap());
    drop(a);
    b.check().unwrap();
    assert_eq!(locks_on(&server), ["order:42"]);
    assert_eq!(c.unlock().unwrap(), Unlocked::StillHeld);
    assert_eq!(locks_on(&server), ["order:42"]);
    assert_eq!(b.unlock().unwrap(), Unlocked::Released);
    assert!(locks_on(&server).is_empty());
    lock.lock().unwrap().unlock().unwrap();
    assert!(locks_on(&server).is_empty());
}

fn handles_of_one_client_nest_and_those_of_another_do_not<P: Place>() {
    let (server, lock) = unwatched::<P>();
    let outer = lock.lock().unwrap();
    lock.clone().lock().unwrap().check().unwrap();
    assert!(open(std::slice::from_ref(&server)).reentrant_mutex("order:42").try_lock().unwrap_err().is_busy());
    outer.check().unwrap();
}

/// Guards in a thread-local are dropped at the end of their thread. Meanwhile the thread can still re-enter the lock.
#[test]
fn guards_in_a_thread_local_nest_to_the_end_of_the_thread() {
    struct Last(ReentrantMutex, Option<ReentrantMutexGuard>, mpsc::Sender<Result<(), Error>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let again = self.0.try_lock();
            drop(self.1.take());
            _ = self.2.send(again.and_then(|inner| inner.check().and(inner.unlock().map(drop))));
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    let server = Server::start();
    for is_first in [true, false] {
        let lock = open(std::slice::from_ref(&server)).reentrant_mutex("order:42");
        let (tell, told) = mpsc::channel();
        // Platforms destroy thread-locals in the order of their first use, or in the reverse order. The test covers
        // both.
        let uses_it = move || {
            if is_first {
                LAST.with_borrow_mut(|last| *last = None);
            }
            let guard = lock.lock().unwrap();
            LAST.set(Some(Last(lock, Some(guard), tell)));
        };
        thread::spawn(uses_it).join().unwrap();
        assert_eq!(told.recv().unwrap(), Ok(()));
        assert!(server.keys().is_empty(), "{:?}", server.keys());
    }
}

/// The lock stays taken after the last release, for the rest of the longest time.
fn the_longest_min_hold_of_a_nest_counts<P: Place>() {
    let (server, lock) = unwatched::<P>();
    let hold = P::LEASE / 2;
    for holds in [[ms(0), hold, ms(0)], [ms(0), ms(1), hold], [ms(1), hold, ms(1)]] {
        let guards = holds.map(|hold| lock.clone().min_hold(hold).lock().unwrap());
        for guard in guards {
            guard.unlock().unwrap();
        }
        assert_eq!(locks_on(&server), ["order:42"], "{holds:?}: the lock is free before its min_hold");
        let left = server.pttl("order:42").unwrap();
        assert!(left <= hold, "{holds:?}: kept for {left:?}");
        server.until("the minimum hold is over", || locks_on(&server).is_empty());
    }
    let _outer = lock.lock().unwrap();
    let refused = lock.clone().min_hold(Duration::MAX).lock().unwrap_err();
    assert!(refused.to_string().contains("min_hold"), "{refused}");
}

/// A waiting thread of the same client gets the lock no sooner.
#[test]
fn a_nested_min_hold_ends_before_another_thread_has_the_lock() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let (lock, hold) = (locks.reentrant_mutex("order:42"), ms(1000));
    let outer = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(|_guard| Instant::now()));
        let began = Instant::now();
        let inner = lock.clone().min_hold(hold).lock().unwrap();
        inner.unlock().unwrap();
        outer.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap() >= began + hold, "the lock was handed over before its min_hold");
    });
}

fn another_thread_does_not_nest<P: Place>() {
    let (_server, lock) = unwatched::<P>();
    let _outer = lock.lock().unwrap();
    let other = lock.clone();
    assert!(thread::spawn(move || other.try_lock().unwrap_err()).join().unwrap().is_busy());
}

fn a_lost_lock_is_not_entered_until_the_outer_guards_are_gone<P: Place>() {
    let server = P::one();
    let locks = brisk(&server);
    let lock = locks.reentrant_mutex("order:42");
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    server.del("order:42");
    server.until("the loss is noticed", || outer.check().is_err());
    for _ in 0..2 {
        assert!(lock.lock().unwrap_err().is_lost());
        assert!(lock.try_lock().unwrap_err().is_lost());
        assert!(lock.try_lock_for(ms(1)).unwrap_err().is_lost());
    }
    assert_eq!(inner.unlock().unwrap_err().lost_reason(), Some(LostReason::Deleted));
    assert!(lock.lock().unwrap_err().is_lost(), "a lost guard is still alive, but lock() returned Ok");
    assert!(server.get("order:42").is_none());
    assert!(outer.unlock().unwrap_err().is_lost());
    let again = lock.lock().unwrap();
    again.check().unwrap();
    assert_eq!(again.unlock().unwrap(), Unlocked::Released);
}

fn a_nested_hold_shortens_nothing<P: Place>() {
    let (server, lock) = unwatched::<P>();
    let outer = lock.lock().unwrap();
    let inner = lock.clone().lease(Duration::from_secs(3)).max_hold(Duration::from_secs(4)).lock().unwrap();
    assert!(outer.remaining() > Duration::from_secs(15));
    drop(inner);
    assert!(outer.remaining() > Duration::from_secs(15));
    assert!(server.pttl("order:42").unwrap() > Duration::from_secs(15));
}

/// Three holds of this thread that each end in less than a second.
fn ends_by_itself(lock: Mutex) -> [Mutex; 3] {
    [lock.clone().renew(false), lock.clone().max_renewals(0), lock.lease(ms(5000)).max_hold(ms(900))]
}

fn a_thread_waits_for_its_own_hold_to_end<K: Kind>() {
    let rig = Rig::start(1);
    let locks = rig::brisk(&rig.urls(), ms(900));
    for own in ends_by_itself(locks.mutex("order:42")) {
        let start = Stopwatch::start();
        let held = own.lock().unwrap();
        let wanted = K::new(&locks, "order:42");
        // This limit is too short, because it ends before the hold does.
        match wanted.try_lock_for(ms(50)).err() {
            Some(Error::Busy { by_this_thread: true, expires_in: Some(left), .. }) => assert!(left <= ms(900)),
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < ms(900), "the call did not fail at once");
        let guard = wanted.try_lock_for(ms(5000)).unwrap();
        assert!(start.elapsed() < ms(900) + SLACK, "{:?}", start.elapsed());
        assert!(held.check().is_err_and(|error| error.is_lost()));
        guard.check().unwrap();
        K::unlock(guard).unwrap();
        assert!(held.unlock().unwrap_err().is_lost());
        let held = own.lock().unwrap();
        K::unlock(wanted.lock().unwrap()).unwrap();
        assert!(held.unlock().is_err_and(|error| error.is_lost()));
    }
}

/// The outer code believes that it holds the lock. So the mutex reports the loss, not that the thread would wait for
/// itself.
#[test]
fn a_mutex_behind_a_lost_reentrant_lock_is_lost_too() {
    let rig = Rig::start(1);
    let locks = rig::brisk(&rig.urls(), ms(900));
    let outer = locks.reentrant_mutex("order:42").lock().unwrap();
    assert!(rig.servers[0].del("order:42"));
    eventually("the loss is noticed", SOON, || outer.check().is_err());
    let wanted = locks.mutex("order:42");
    for outcome in [wanted.lock(), wanted.try_lock(), wanted.try_lock_for(ms(50))] {
        assert!(outcome.err().is_some_and(|error| error.is_lost()));
    }
    assert!(outer.unlock().unwrap_err().is_lost());
    wanted.lock().unwrap().unlock().unwrap();
}

each_kind!(a_thread_waits_for_its_own_hold_to_end);

each_place!(
    the_longest_min_hold_of_a_nest_counts,
    guards_may_go_in_any_order,
    handles_of_one_client_nest_and_those_of_another_do_not,
    another_thread_does_not_nest,
    a_lost_lock_is_not_entered_until_the_outer_guards_are_gone,
    a_nested_hold_shortens_nothing,
);
