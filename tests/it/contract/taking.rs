//! `lock`, `try_lock`, `try_lock_for`, `try_lock_until`: whether they wait, and how they end.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock, Retry};
use redlock_tests::{Stopwatch, eventually};

use super::rig::{SOON, locks_on, ms, open};
use crate::kinds::{Kind, each_kind};
use crate::place::{Place, each_kind_and_place, each_place};

/// A client that holds the lock, and another one that wants it.
fn two<P: Place>(server: &P) -> (Redlock, Redlock) {
    let one = std::slice::from_ref(server);
    (open(one), open(one))
}

fn a_free_lock_is_taken_by_each_form<K: Kind, P: Place>() {
    let server = P::one();
    let lock = K::new(&open(std::slice::from_ref(&server)), "order:42");
    for take in [|lock: &K| lock.lock(), |lock: &K| lock.try_lock(), |lock: &K| lock.try_lock_for(SOON)] {
        let guard = take(&lock).unwrap();
        assert_eq!(guard.key(), "order:42");
        assert_eq!(K::token(&server, "order:42").as_deref(), Some(guard.id().as_str()));
        assert!(server.pttl("order:42").is_some_and(|left| left <= Duration::from_secs(30)));
        K::unlock(guard).unwrap();
        assert!(locks_on(&server).is_empty());
    }
}

fn the_lease_is_the_keys_time_to_live<K: Kind, P: Place>() {
    let server = P::one();
    let lock = K::new(&open(std::slice::from_ref(&server)), "order:42").lease(Duration::from_secs(100));
    let guard = lock.lock().unwrap();
    let left = server.pttl("order:42").unwrap();
    assert!(left <= Duration::from_secs(100) && left > Duration::from_secs(60), "{left:?}");
    assert!(guard.remaining() < left, "the guard's lease outlasts the key");
}

fn dropping_the_guard_releases<K: Kind, P: Place>() {
    let server = P::one();
    let lock = K::new(&open(std::slice::from_ref(&server)), "order:42");
    drop(lock.lock().unwrap());
    eventually("the lock is free", SOON, || locks_on(&server).is_empty());
    K::unlock(lock.try_lock_for(SOON).unwrap()).unwrap();
}

fn each_acquisition_has_a_token_of_its_own<K: Kind, P: Place>() {
    let server = P::one();
    let lock = K::new(&open(std::slice::from_ref(&server)), "order:42");
    let ids: Vec<_> = (0..50).map(|_| lock.lock().unwrap().id().clone()).collect();
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len());
}

fn try_lock_does_not_wait<K: Kind, P: Place>() {
    let server = P::one();
    let (holder, other) = two(&server);
    let held = K::new(&holder, "order:42").lock().unwrap();
    K::unlock(K::new(&other, "warm").lock().unwrap()).unwrap();
    let start = Stopwatch::start();
    let Some(Error::Busy { key, expires_in, .. }) = K::new(&other, "order:42").try_lock().err() else { panic!() };
    assert!(start.elapsed() < SOON);
    assert_eq!(key, "order:42");
    assert!(expires_in.is_some_and(|left| left > Duration::from_secs(10) && left <= Duration::from_secs(30)));
    held.check().unwrap();
}

fn try_lock_for_waits_that_long_and_no_longer<K: Kind, P: Place>() {
    let server = P::one();
    let (holder, other) = two(&server);
    let _held = K::new(&holder, "order:42").lock().unwrap();
    let start = Stopwatch::start();
    let error = K::new(&other, "order:42").try_lock_for(ms(150)).err().unwrap();
    let took = start.elapsed();
    assert!(error.is_busy(), "{error}");
    assert!(took >= ms(150) && took < SOON, "{took:?}");
}

fn a_waiting_lock_is_taken_once_it_is_free<K: Kind, P: Place>() {
    let server = P::one();
    let (holder, other) = two(&server);
    for wait in [|lock: &K| lock.lock(), |lock: &K| lock.try_lock_for(SOON)] {
        let held = K::new(&holder, "order:42").lock().unwrap();
        let lock = K::new(&other, "order:42");
        let waiter = thread::spawn(move || {
            let guard = wait(&lock).unwrap();
            let granted = Instant::now();
            K::unlock(guard).unwrap();
            granted
        });
        eventually("the other client waits", SOON, || server.waits() == 1);
        let before = Instant::now();
        held.check().unwrap();
        K::unlock(held).unwrap();
        let granted = waiter.join().unwrap();
        assert!(granted >= before, "the waiter got the lock before its release");
    }
}

fn try_lock_until_ends_at_that_moment<P: Place>() {
    let server = P::one();
    let (holder, other) = two(&server);
    let moment = Instant::now() + ms(200);
    let held = holder.mutex("order:42").try_lock_until(moment).unwrap();
    assert!(other.mutex("order:42").try_lock_until(moment).unwrap_err().is_busy());
    assert!(Instant::now() >= moment);
    assert!(other.reentrant_mutex("order:42").try_lock_until(moment + ms(50)).unwrap_err().is_busy());
    assert!(Instant::now() >= moment + ms(50));
    held.unlock().unwrap();
    let past = moment.checked_sub(Duration::from_secs(60)).unwrap_or(moment);
    other.mutex("order:42").try_lock_until(past).unwrap().unlock().unwrap();
    other.reentrant_mutex("order:42").try_lock_until(past).unwrap().unlock().unwrap();
}

/// A call without waiting time still makes one attempt.
fn no_time_is_one_try<K: Kind, P: Place>() {
    let server = P::one();
    let (holder, other) = two(&server);
    let lock = K::new(&other, "order:42");
    K::unlock(lock.try_lock_for(Duration::ZERO).unwrap()).unwrap();
    let _held = K::new(&holder, "order:42").lock().unwrap();
    assert!(lock.try_lock_for(Duration::ZERO).err().unwrap().is_busy());
}

fn max_attempts_ends_with_busy<K: Kind>() {
    let (server, proxy) = super::rig::watched();
    let holder = open(std::slice::from_ref(&server));
    let _held = K::new(&holder, "order:42").lock().unwrap();
    let other = super::rig::through(&proxy);
    // This attempt makes the server load the script.
    assert!(K::new(&other, "order:42").retry(Retry::every(ms(2)).max_attempts(1)).lock().err().unwrap().is_busy());
    for attempts in [1, 3] {
        proxy.clear_log();
        let retry = Retry::every(ms(2)).max_attempts(attempts);
        let lock = K::new(&other, "order:42").retry(retry);
        let start = Instant::now();
        assert!(lock.lock().err().unwrap().is_busy());
        assert!(start.elapsed() >= ms(u64::from(attempts) - 1), "there was no pause between the attempts");
        assert_eq!(proxy.count("acquire"), usize::try_from(attempts).unwrap());
    }
}

/// A mutex and a reentrant mutex with the same name are the same lock.
fn the_kinds_exclude_each_other<P: Place>() {
    let server = P::one();
    let (one, two) = two(&server);
    let held = one.mutex("order:42").lock().unwrap();
    assert!(two.reentrant_mutex("order:42").try_lock().unwrap_err().is_busy());
    held.unlock().unwrap();
    let held = one.reentrant_mutex("order:42").lock().unwrap();
    assert!(two.mutex("order:42").try_lock().unwrap_err().is_busy());
    held.unlock().unwrap();
}

/// Locks of different keys are independent, also in several clients of one thread.
fn other_keys_are_other_locks<K: Kind, P: Place>() {
    let server = P::one();
    let (one, two) = two(&server);
    let a = K::new(&one, "a").lock().unwrap();
    let b = K::new(&one, "b").lock().unwrap();
    let c = K::new(&two, "c").try_lock().unwrap();
    assert_eq!(locks_on(&server), ["a", "b", "c"]);
    K::unlock(a).unwrap();
    assert_eq!(locks_on(&server), ["b", "c"]);
    K::unlock(b).and(K::unlock(c)).unwrap();
    assert!(locks_on(&server).is_empty());
}

each_kind_and_place!(every:
    a_free_lock_is_taken_by_each_form,
    the_lease_is_the_keys_time_to_live,
    dropping_the_guard_releases,
    each_acquisition_has_a_token_of_its_own,
    try_lock_does_not_wait,
    try_lock_for_waits_that_long_and_no_longer,
    a_waiting_lock_is_taken_once_it_is_free,
    no_time_is_one_try,
    other_keys_are_other_locks,
);

each_kind!(max_attempts_ends_with_busy);

each_place!(try_lock_until_ends_at_that_moment, the_kinds_exclude_each_other);
