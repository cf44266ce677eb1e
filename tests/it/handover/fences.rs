//! Fencing tokens rise from holder to holder, however the lock changes hands.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use redlock_sync::MutexGuard;

use super::rig::{KEY, Rig, SOON, for_sizes, this_thread, until_asleep};

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
