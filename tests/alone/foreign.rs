//! A foreign program takes part, which only uses `SET key token NX PX` and compare-and-delete.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, Script, cmd};
use redlock_tests::{Stopwatch, eventually};

use super::alone;
use super::clients::{KEY, Rig, SLACK, SOON, ms, timed};

/// A program that polls, as other libraries do.
struct Foreigner {
    connection: Connection,
    count: usize,
}

impl Foreigner {
    fn new(rig: &Rig) -> Foreigner {
        Foreigner { connection: rig.servers[0].client(), count: 0 }
    }

    fn token(&self) -> String {
        format!("foreign-{}", self.count)
    }

    fn try_lock(&mut self) -> bool {
        self.count += 1;
        let token = self.token();
        let set: Option<String> =
            cmd("SET").arg(KEY).arg(&token).arg("NX").arg("PX").arg(10_000).query(&mut self.connection).unwrap();
        set.is_some()
    }

    /// Tries once per millisecond, for at most this time.
    fn lock(&mut self, longest: Duration) -> bool {
        let start = Stopwatch::start();
        while start.elapsed() < longest {
            if self.try_lock() {
                return true;
            }
            thread::sleep(ms(1));
        }
        false
    }

    fn unlock(&mut self) -> bool {
        let source =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
        Script::new(source).key(KEY).arg(self.token()).invoke(&mut self.connection).unwrap()
    }
}

/// Our clients pass the lock to each other, but at times it must really be free.
#[test]
fn a_program_that_polls_gets_its_turn_among_grants() {
    let _alone = alone();
    let rig = Rig::start(1);
    let inside = AtomicUsize::new(0);
    let enough = AtomicBool::new(false);
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..4 {
            let (lock, inside, enough, passed) = (rig.client().mutex(KEY), &inside, &enough, &passed);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    let guard = lock.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "the lock had two holders");
                    // Some clients hold the lock for a while, and others release it at once.
                    thread::sleep(ms(i % 2));
                    passed.fetch_add(1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
        let mut foreigner = Foreigner::new(&rig);
        let mut waits = Vec::new();
        for _ in 0..3 {
            // Our clients pass the lock to each other meanwhile.
            let before = passed.load(Ordering::Relaxed) + 200;
            eventually("our clients contend", SOON, || passed.load(Ordering::Relaxed) > before);
            // The program gets a chance about once a second. On a busy machine, new attempts of our clients can be
            // faster several times.
            let (got, took) = timed(|| foreigner.lock(Duration::from_secs(60)));
            if got {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "the lock had two holders");
                thread::sleep(ms(2));
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(foreigner.unlock(), "our clients took the lock from the foreign program");
            }
            waits.push((got, took));
            if !got {
                break;
            }
        }
        enough.store(true, Ordering::Relaxed);
        assert!(waits.iter().all(|(got, _)| *got), "{waits:?}");
    });
    rig.assert_free(KEY);
}

/// A chain of grants ends after a second. This also holds for several nodes, and for waiters with a `holder_name`,
/// where a grant only lets an attempt take the key.
#[test]
fn no_chain_of_grants_goes_on_for_ever() {
    let _alone = alone();
    let test = |n: usize, id: Option<&'static str>| {
        let rig = Rig::start(n);
        let end = Instant::now() + SOON;
        // When each pause is due. The record of the contention in the queue has it as its score.
        let mut due = HashSet::new();
        let mut seen = || {
            let queue = format!("{{{KEY}}}:waits");
            let first: Vec<String> = rig.servers[0].ask(cmd("ZRANGE").arg(queue).arg(0).arg(0).arg("WITHSCORES"));
            due.extend(first.last().filter(|score| score.starts_with('-')).cloned());
            due.len()
        };
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                let (lock, enough) = (rig.watched().mutex(KEY), &enough);
                let lock = if let Some(id) = id { lock.holder_name(id) } else { lock };
                scope.spawn(move || {
                    while !enough.load(Ordering::Relaxed) {
                        let guard = lock.lock().unwrap();
                        thread::sleep(ms(5));
                        guard.unlock().unwrap();
                    }
                });
            }
            while Instant::now() < end && seen() < 4 {
                thread::sleep(ms(5));
            }
            enough.store(true, Ordering::Relaxed);
        });
        assert!(seen() >= 4, "N = {n}, {id:?}: {} pauses are due", seen());
    };
    thread::scope(|scope| {
        scope.spawn(|| test(1, None));
        scope.spawn(|| test(1, Some("worker")));
        scope.spawn(|| test(3, None));
    });
}

/// A foreign program's release sends no notification, so our clients poll while it holds the lock.
#[test]
fn ours_notice_a_plain_release_by_polling() {
    let _alone = alone();
    let rig = Rig::start(1);
    let mut foreigner = Foreigner::new(&rig);
    assert!(foreigner.try_lock());
    let lock = rig.watched().mutex(KEY);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let at = Instant::now();
            guard.unlock().unwrap();
            at
        });
        // The client polls in the configured intervals, not in those of a wait for a notification.
        rig.proxies[0].wait_count("acquire", 5, Duration::from_secs(20));
        assert!(foreigner.unlock());
        let released = Instant::now();
        let took = waiter.join().unwrap().saturating_duration_since(released);
        assert!(took < ms(100) + SLACK, "{took:?}");
    });
    rig.assert_free(KEY);
}
