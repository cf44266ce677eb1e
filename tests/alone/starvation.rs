//! Threads of one client hand the lock to each other, and a thread of another client still gets it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Mutex, MutexGuard, Redlock};
use redlock_tests::Took;

use super::alone;
use super::clients::{KEY, Rig, ms, settings, timed};

/// How often each client got the lock, and the longest wait of any thread.
fn compete(busy: &Redlock, threads: usize, lone: &Redlock, time: Duration) -> ([usize; 2], Took) {
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let inside = AtomicUsize::new(0);
    let end = Instant::now() + time;
    let work = |lock: Mutex, mine: usize| {
        let mut longest = Took::default();
        while Instant::now() < end {
            let (guard, took): (MutexGuard, _) = timed(|| lock.lock().unwrap());
            longest = longest.max(took);
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "the lock had two holders");
            counts[mine].fetch_add(1, Ordering::Relaxed);
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.unlock().unwrap();
        }
        longest
    };
    let longest = thread::scope(|scope| {
        let work = &work;
        let mut all: Vec<_> = (0..threads).map(|_| scope.spawn(move || work(busy.mutex(KEY), 0))).collect();
        all.push(scope.spawn(move || work(lone.mutex(KEY), 1)));
        all.into_iter().map(|thread| thread.join().unwrap()).reduce(Took::max).unwrap()
    });
    (counts.map(AtomicUsize::into_inner), longest)
}

/// A busy machine delays some rounds, so one good round is enough. A thread that starves would be delayed in each
/// round.
#[test]
fn no_process_starves_while_threads_hand_over_among_themselves() {
    let _alone = alone();
    for lease in [Duration::from_secs(10), Duration::from_secs(30)] {
        let rig = Rig::start(1);
        let [busy, lone] = [(); 2].map(|()| settings(rig.urls()).lease(lease).build().unwrap());
        let rounds: Vec<_> = (0..4)
            .scan(false, |is_good, _| {
                (!*is_good).then(|| {
                    let round = compete(&busy, 8, &lone, ms(900));
                    *is_good = round.1 <= ms(200) && round.0[1] >= 10;
                    (*is_good, round)
                })
            })
            .collect();
        assert!(rounds.iter().any(|(is_good, _)| *is_good), "lease {lease:?}: {rounds:?}");
        rig.assert_free(KEY);
    }
}
