//! Faults that a review of the library found.

use redlock_tests::{Stopwatch, Took};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::rig::{KEY, Rig, SLACK, SOON, brisk, for_sizes, ms, this_thread, timed, until_asleep};

/// A wait got the grant but does not take it, and the key is deleted by hand. The next holder must be the only one.
#[test]
fn a_grant_whose_key_was_deleted_is_void() {
    for is_watched_by_fences in [false, true] {
        let rig = Rig::start(1);
        let held = rig.client().mutex(KEY).lock().unwrap();
        // This client only subscribes to its channel.
        let mut idle = rig.servers[0].client();
        redis::cmd("SUBSCRIBE").arg("redlock-sync:1").exec(&mut idle).unwrap();
        rig.servers[0].ask::<()>(redis::cmd("ZADD").arg("{order:42}:waits").arg(1).arg("redlock-sync:1/1 1f"));
        held.unlock().unwrap();
        assert_eq!(rig.holding(KEY), 1, "the release did not grant");
        assert!(rig.servers[0].del(KEY));
        let client = rig.client();
        if is_watched_by_fences {
            client.mutex("other").lock().unwrap().fencing_token().unwrap();
        }
        let mine = client.mutex(KEY).lock().unwrap();
        mine.check().unwrap();
        let second = rig.client().mutex(KEY).try_lock_for(ms(2000));
        let both = second.is_ok() && mine.check().is_ok() && second.as_ref().unwrap().check().is_ok();
        assert!(!both, "the lock has two holders");
    }
}

/// Threads of one client also hand over a lock that another process granted.
#[test]
fn a_granted_lock_is_handed_over_like_any_other() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    let locks = rig.client();
    let lock = locks.mutex(KEY);
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (say, said) = mpsc::channel();
        for i in 0..2 {
            let (lock, tell, say) = (lock.clone(), tell.clone(), say.clone());
            scope.spawn(move || {
                say.send(this_thread()).unwrap();
                let guard = lock.lock().unwrap();
                tell.send(guard.id().clone()).unwrap();
                guard.unlock().unwrap();
            });
            let id = said.recv().unwrap();
            if i == 0 { rig.until_blocked(0, 1) } else { until_asleep(&id) }
        }
        held.unlock().unwrap();
        let (one, two) = (told.recv_timeout(SOON).unwrap(), told.recv_timeout(SOON).unwrap());
        assert!(one.holder_name().starts_with("granted:"));
        assert_eq!(one, two, "the second thread got another token");
    });
}

/// A waiter gets the lock when the holder's minimum hold ends.
#[test]
fn the_end_of_a_minimum_hold_is_told() {
    for_sizes(&[1, 3], |rig| {
        let held = rig.client().mutex(KEY).min_hold(ms(600)).lock().unwrap();
        let lock = rig.client().mutex(KEY);
        thread::scope(|scope| {
            let start = Stopwatch::start();
            let waiter = scope.spawn(move || {
                let guard = lock.lock().unwrap();
                let took = start.elapsed();
                guard.unlock().unwrap();
                took
            });
            rig.until_blocked(0, 1);
            held.unlock().unwrap();
            let took = waiter.join().unwrap();
            assert!(took < ms(1600), "N = {}: got the lock after {took:?}", rig.servers.len());
        });
    });
}

/// A lease without renewals keeps other clients out for its length at most, however the lock was acquired.
#[test]
fn a_grant_is_not_longer_than_the_lease() {
    let lease = Duration::from_secs(1);
    let mut late = Vec::new();
    for kind in ["renew", "max_hold"] {
        let rig = Rig::start(1);
        let held = rig.client().mutex(KEY).lock().unwrap();
        let lock = brisk(&rig.urls(), lease).mutex(KEY);
        let lock = if kind == "renew" { lock.renew(false) } else { lock.max_hold(ms(800)) };
        let guard = thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().unwrap().into_send());
            rig.until_blocked(0, 1);
            held.unlock().unwrap();
            waiter.join().unwrap()
        });
        let start = Instant::now();
        let left = guard.remaining();
        // The guard is neither released nor dropped meanwhile, as if its holder hung.
        let other = rig.client().mutex(KEY).lock().unwrap();
        late.push((kind, left, start.elapsed()));
        drop(other);
        drop(guard);
    }
    assert!(late.iter().all(|(_, left, took)| *left <= lease && *took < ms(1700)), "{late:?}");
}

/// While `unlock_all` runs again and again, each thread that passes `check()` must really hold the lock.
#[test]
fn unlock_all_leaves_no_holder_without_a_lock() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let lock = locks.mutex(KEY);
                let mut n = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().unwrap();
                    n += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                    if n.is_multiple_of(16) {
                        thread::sleep(ms(2));
                        let is_there = rig.servers[0].get(KEY).as_deref() == Some(guard.id().as_str());
                        if !is_there && guard.check().is_ok() {
                            stop.store(true, Ordering::Relaxed);
                            panic!("a thread holds a lock without a key, after {} locks", done.load(Ordering::Relaxed));
                        }
                    }
                    _ = guard.unlock();
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            _ = locks.unlock_all();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// `try_lock_for` takes at most one node timeout longer than its limit, also if the server stops answering meanwhile.
#[test]
fn a_wait_with_a_deadline_ends_in_time_though_the_server_hangs() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    let locks = redlock_sync::Redlock::builder().node(rig.urls()[0].clone()).build().unwrap();
    let lock = locks.mutex(KEY);
    let took = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let start = Instant::now();
            drop(lock.try_lock_for(Duration::from_secs(1)));
            start.elapsed()
        });
        rig.until_blocked(0, 1);
        rig.servers[0].stop();
        waiter.join().unwrap()
    });
    rig.servers[0].cont();
    drop(held);
    assert!(took < ms(1000 + 250) + SLACK, "took {took:?}");
}

/// These waits are shorter than the interval in which an idle server looks for timeouts.
#[test]
fn short_waits_are_short() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let held = rig.client().mutex(KEY).lock().unwrap();
    // The median is compared, because a busy machine makes some waits long.
    let median = |work: &dyn Fn()| {
        let mut times: Vec<_> = (0..21).map(|_| timed(work).1).collect();
        times.sort_unstable_by_key(Took::by_clock);
        times[10]
    };
    let deadline = median(&|| drop(locks.mutex(KEY).try_lock_for(ms(10))));
    let steady = redlock_sync::Retry::every(ms(2)).max_attempts(5);
    let counted = median(&|| drop(locks.mutex(KEY).retry(steady.clone()).lock()));
    held.unlock().unwrap();
    // A foreign program that holds the lock for 10 ms and notifies no wait.
    let foreign = median(&|| {
        let mut set = redis::cmd("SET");
        rig.servers[0].ask::<()>(set.arg(KEY).arg("foreign").arg("PX").arg(10));
        locks.mutex(KEY).retry(redlock_sync::Retry::every(ms(2))).lock().unwrap().unlock().unwrap();
    });
    let all = [deadline, counted, foreign];
    assert!(all.iter().all(|took| *took < ms(40)), "10 ms each, but {all:?}");
}
