//! Fencing tokens rise from holder to holder, however the lock changes hands. Their counters exist only on request.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_sync::MutexGuard;

use super::rig::{KEY, Rig, SOON, for_sizes, settings, this_thread, until_asleep, warm};

/// The largest fencing token so far, and the numbers of tokens, holds and grants.
#[derive(Default)]
struct Fences {
    last: AtomicU64,
    asked: AtomicUsize,
    passed: AtomicUsize,
    granted: AtomicUsize,
}

impl Fences {
    /// Checks that the holder's fencing token is larger than all earlier ones. Only the holder calls this.
    fn note(&self, guard: &MutexGuard, how: &str) {
        let fence = guard.fencing_token().unwrap();
        let last = self.last.swap(fence, Ordering::SeqCst);
        assert!(fence > last, "{fence} after {last}, {how}, {:?}", guard.id());
        assert_eq!(guard.fencing_token(), Ok(fence), "the same holder got a second fencing token");
        self.asked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Three clients with several threads each take the lock in turn. `asks` decides which of a thread's holds ask for a
/// fencing token.
fn rise(rig: &Rig, threads: usize, rounds: usize, asks: fn(client: usize, thread: usize, i: usize) -> bool) -> Fences {
    let fences = Fences::default();
    thread::scope(|scope| {
        for client in 0..3 {
            let locks = rig.client();
            for thread in 0..threads {
                let (lock, fences) = (locks.mutex(KEY), &fences);
                scope.spawn(move || {
                    for i in 0..rounds {
                        let guard = lock.try_lock_for(SOON).unwrap();
                        fences.passed.fetch_add(1, Ordering::Relaxed);
                        fences.granted.fetch_add(
                            usize::from(guard.id().holder_name().starts_with("granted:")),
                            Ordering::Relaxed,
                        );
                        if asks(client, thread, i) {
                            fences.note(&guard, "in the crowd");
                        }
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    // At the end, two new clients take the free lock one after the other.
    for how in ["by a new client", "by another"] {
        let guard = rig.client().mutex(KEY).lock().unwrap();
        fences.note(&guard, how);
        guard.unlock().unwrap();
    }
    rig.assert_free(KEY);
    fences
}

#[test]
fn fences_rise_when_everybody_always_asks() {
    for_sizes(&[1, 3], |rig| {
        let rounds = if rig.servers.len() == 1 { 150 } else { 60 };
        let fences = rise(rig, 2, rounds, |_, _, _| true);
        assert_eq!(fences.asked.into_inner(), 6 * rounds + 2);
        assert!(rig.servers.len() > 1 || fences.granted.into_inner() > 0, "no holder got the lock by a grant");
    });
}

#[test]
fn fences_rise_when_some_ask_now_and_then() {
    for_sizes(&[1, 3], |rig| {
        let rounds = if rig.servers.len() == 1 { 200 } else { 80 };
        // Client 0 never asks, so it grants the lock without a fencing token. Client 1 asks at times, in one of its
        // threads. Client 2 always asks.
        let fences = rise(rig, 2, rounds, |client, thread, i| match client {
            0 => false,
            1 => thread == 0 && i % 3 == 0,
            _ => true,
        });
        assert!(fences.asked.into_inner() > 2 * rounds);
    });
}

#[test]
fn a_first_question_after_a_long_time_without_any_is_answered() {
    for_sizes(&[1, 3], |rig| {
        let rounds = if rig.servers.len() == 1 { 100 } else { 40 };
        let fences = rise(rig, 2, rounds, |_, thread, i| thread == 0 && i > 60);
        assert!(fences.passed.into_inner() >= 6 * rounds);
    });
}

/// A thread that gets the lease from another thread has the same token on the servers, but its own fencing token.
#[test]
fn each_holder_of_a_lock_that_is_handed_over_has_a_fence_of_its_own() {
    for_sizes(&[1, 3], |rig| {
        let lock = rig.client().mutex(KEY);
        let fences = Fences::default();
        for asks_first in [true, false, true] {
            let first = lock.lock().unwrap();
            if asks_first {
                fences.note(&first, "first");
            }
            let token = first.id().clone();
            let (tell, told) = mpsc::channel();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    tell.send(this_thread()).unwrap();
                    let guard = lock.lock().unwrap();
                    assert_eq!(guard.id(), &token, "the thread did not get the lease of the first holder");
                    fences.note(&guard, "second");
                    guard.unlock().unwrap();
                });
                until_asleep(&told.recv().unwrap());
                first.unlock().unwrap();
                waiter.join().unwrap();
            });
            let last = lock.lock().unwrap();
            fences.note(&last, "afterwards");
            last.unlock().unwrap();
        }
        rig.assert_free(KEY);
    });
}

fn counters(rig: &Rig) -> Vec<String> {
    rig.servers.iter().flat_map(redlock_tests::Server::keys).filter(|key| key.ends_with(":fence")).collect()
}

#[test]
fn a_lock_that_did_not_ask_for_a_fence_leaves_none() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.client();
        locks.mutex("asks").lock().unwrap().fencing_token().unwrap();
        for i in 0..20 {
            locks.mutex(format!("does-not-ask:{i}")).lock().unwrap().unlock().unwrap();
        }
        let counters = counters(rig);
        assert!(!counters.is_empty() && counters.iter().all(|key| key == "{asks}:fence"), "{counters:?}");
    });
}

#[test]
fn a_fenced_lock_brings_its_token_along() {
    for_sizes(&[1, 3], |rig| {
        let locks = settings(rig.proxy_urls()).build().unwrap();
        warm(&locks);
        let rounds = || rig.proxies.iter().map(|proxy| proxy.count("fence")).sum::<usize>();
        let mut last = 0;
        for fenced in [true, false, true, true] {
            let guard = locks.mutex(KEY).fenced(fenced).lock().unwrap();
            let before = rounds();
            let fence = guard.fencing_token().unwrap();
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            // With several nodes, one round stores the fencing token on a majority. Without the setting, another round
            // must fetch it first.
            let n = rig.servers.len();
            let wanted = if n == 1 { usize::from(!fenced) } else { n * (1 + usize::from(!fenced)) };
            assert_eq!(rounds() - before, wanted, "fenced({fenced}) on {n}");
            guard.unlock().unwrap();
        }
    });
}

#[test]
fn a_counter_ends_soon_after_the_clock_has_passed_it() {
    for_sizes(&[1, 3], |rig| {
        let guard = rig.client().mutex(KEY).fenced(true).lock().unwrap();
        guard.fencing_token().unwrap();
        let minutes = |n: u64| Duration::from_secs(n * 60);
        for server in &rig.servers {
            let left = server.pttl("{order:42}:fence").unwrap();
            assert!(left > minutes(19) && left <= minutes(20) + Duration::from_secs(1), "{left:?}");
        }
        // This counter is as after a clock that was an hour ahead and was then set back.
        let ahead = guard.fencing_token().unwrap() + 3_600_000_000;
        guard.unlock().unwrap();
        rig.servers.iter().for_each(|server| server.set("{order:42}:fence", &ahead.to_string()));
        let next = rig.client().mutex(KEY).lock().unwrap();
        assert!(next.fencing_token().unwrap() > ahead);
        let left = rig.servers[0].pttl("{order:42}:fence").unwrap();
        assert!(left > minutes(79) && left <= minutes(80) + Duration::from_secs(1), "{left:?}");
    });
}

/// The counter was set by hand. An error is better than a fencing token that does not rise. The lock is not lost.
#[test]
fn a_counter_that_cannot_rise_is_an_error() {
    let rig = Rig::start(1);
    let locks = rig.client();
    for end in ["9007199254740991", "1000000000000000000", "1e300", "inf", "another type"] {
        rig.servers[0].del("{order:42}:fence");
        if end == "another type" {
            rig.servers[0].ask::<()>(redis::cmd("RPUSH").arg("{order:42}:fence").arg("foreign"));
        } else {
            rig.servers[0].set("{order:42}:fence", end);
        }
        let error = locks.mutex(KEY).fenced(true).try_lock().map(drop).unwrap_err();
        assert!(matches!(error, redlock_sync::Error::Config { .. }), "{end}: {error}");
        assert_eq!(rig.holding(KEY), 0);
        let guard = locks.mutex(KEY).lock().unwrap();
        let error = guard.fencing_token().unwrap_err();
        assert!(
            matches!(error, redlock_sync::Error::Config { .. }) && error.to_string().contains("fence"),
            "{end}: {error}"
        );
        guard.check().unwrap();
        guard.unlock().unwrap();
    }
    rig.servers[0].del("{order:42}:fence");
    rig.servers[0].set("{order:42}:fence", "not a number");
    assert!(locks.mutex(KEY).fenced(true).lock().unwrap().fencing_token().unwrap() > 0);
}
