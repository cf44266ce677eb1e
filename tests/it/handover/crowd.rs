//! Many hand-overs, with waiters that give up at random. The lock never has two holders, and it never stays taken.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Mutex, MutexGuard};
use redlock_tests::Took;

use super::rig::{KEY, Rig, SOON, ms, settings, timed};

/// The state that all threads of one test share, and the numbers that the test checks.
#[derive(Default)]
struct Crowd {
    inside: AtomicBool,
    passed: AtomicUsize,
    granted: AtomicUsize,
    gave_up: AtomicUsize,
}

impl Crowd {
    /// Takes the lock until `is_enough`. Some attempts, chosen at random, have a very short time limit.
    fn work(&self, lock: &Mutex, impatient: u32, is_enough: impl Fn(&Crowd) -> bool) {
        let mut random = Random::new();
        while !is_enough(self) {
            let taken = if random.below(100) < impatient {
                lock.try_lock_for(Duration::from_micros(u64::from(random.below(3000))))
            } else {
                // The time limit makes the test fail if one thread waits for long while the other threads go on.
                lock.try_lock_for(SOON)
            };
            match taken {
                Ok(guard) => self.hold(guard),
                Err(Error::Busy { .. }) => _ = self.gave_up.fetch_add(1, Ordering::Relaxed),
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn hold(&self, guard: MutexGuard) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "the lock had two holders");
        guard.check().unwrap();
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.granted.fetch_add(usize::from(guard.id().holder_name().starts_with("granted:")), Ordering::Relaxed);
        self.inside.store(false, Ordering::SeqCst);
        guard.unlock().unwrap();
    }
}

/// A small random number generator for each thread.
struct Random(u64);

impl Random {
    fn new() -> Random {
        use std::hash::{BuildHasher, RandomState};
        Random(RandomState::new().hash_one(0) | 1)
    }

    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 32) % u64::from(n)).unwrap()
    }
}

fn run(rig: &Rig, clients: usize, threads: usize, impatient: u32, is_enough: impl Fn(&Crowd) -> bool + Sync) -> Crowd {
    let crowd = Crowd::default();
    thread::scope(|scope| {
        for _ in 0..clients {
            let locks = settings(rig.urls()).build().unwrap();
            for i in 0..threads {
                let (crowd, is_enough) = (&crowd, &is_enough);
                // Every third thread has other settings, so another thread cannot hand its lease to it.
                let lease = if i % 3 == 2 { Duration::from_secs(20) } else { Duration::from_secs(10) };
                let lock = locks.mutex(KEY).lease(lease);
                scope.spawn(move || crowd.work(&lock, impatient, is_enough));
            }
        }
    });
    rig.assert_free(KEY);
    crowd
}

/// An optimised build makes a hundred thousand hand-overs, as in the CI step `release`.
const HAND_OVERS: usize = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

#[test]
fn no_lock_is_lost_in_many_hand_overs() {
    let rig = Rig::start(1);
    // Each client has one thread, so every hand-over is between two clients.
    let between = run(&rig, 5, 1, 30, |crowd| crowd.granted.load(Ordering::Relaxed) >= HAND_OVERS / 10);
    let mixed = run(&rig, 3, 4, 30, |crowd| crowd.passed.load(Ordering::Relaxed) >= HAND_OVERS / 10 * 9);
    let all = between.passed.into_inner() + mixed.passed.into_inner();
    assert!(all >= HAND_OVERS, "{all}");
    assert!(between.gave_up.into_inner() > 10 && mixed.gave_up.into_inner() > 10, "no thread gave up");
}

#[test]
fn no_lock_is_lost_on_several_nodes() {
    let rig = Rig::start(3);
    let crowd = run(&rig, 3, 2, 20, |crowd| crowd.passed.load(Ordering::Relaxed) >= 2_000);
    assert!(crowd.passed.into_inner() >= 2_000);
}

/// A thread that uses two clients has a separate wait in each of them. The release by one client must not remove the
/// other client's wait.
#[test]
fn one_thread_waits_in_two_clients() {
    let rig = Rig::start(1);
    let crowd = Crowd::default();
    let locks: Vec<Mutex> = (0..2).map(|_| rig.client().mutex(KEY)).collect();
    let is_enough = |crowd: &Crowd| crowd.passed.load(Ordering::Relaxed) >= 3_000;
    let longest = thread::scope(|scope| {
        let all: Vec<_> = (0..6)
            .map(|_| {
                let (crowd, locks) = (&crowd, &locks);
                scope.spawn(move || {
                    let mut random = Random::new();
                    let mut longest = Took::default();
                    while !is_enough(crowd) {
                        let (guard, took) = timed(|| locks[random.below(2) as usize].lock().unwrap());
                        longest = longest.max(took);
                        crowd.hold(guard);
                    }
                    longest
                })
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).reduce(Took::max).unwrap()
    });
    assert!(longest < ms(2000), "a thread waited for {longest:?}");
    rig.assert_free(KEY);
}
