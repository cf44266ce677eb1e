//! One grant for each release, in order; what a granted lock is worth; when waiters poll.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Mutex, MutexGuard, Redlock};
use redlock_tests::{Stopwatch, eventually};

use super::rig::{KEY, Rig, SLACK, SOON, brisk, for_sizes, ms, timed};

const WAITERS: usize = 6;

/// What the first node was asked for between the first release and the last acquisition.
#[derive(Debug)]
struct Asked {
    attempts: usize,
    all: usize,
}

/// Waiters of a client each come one after the other and get the lock one release at a time; the order in which they got it, with what that
/// took. `None` if a wait for a notification ran out meanwhile, which puts its waiter at the back of the queue.
fn one_by_one(rig: &Rig) -> Option<(Vec<usize>, Asked)> {
    let proxy = &rig.proxies[0];
    let first = rig.watched().mutex(KEY).lock().unwrap();
    proxy.clear_log();
    let (tell, told) = mpsc::channel();
    let (order, asked) = thread::scope(|scope| {
        let go: Vec<mpsc::Sender<()>> = (0..WAITERS)
            .map(|i| {
                let (go, gone) = mpsc::channel();
                let (lock, tell) = (rig.watched().mutex(KEY), tell.clone());
                scope.spawn(move || {
                    let guard = lock.lock().unwrap();
                    tell.send(i).unwrap();
                    gone.recv().unwrap();
                    guard.check().unwrap();
                    guard.unlock().unwrap();
                });
                rig.until_blocked(0, i + 1);
                go
            })
            .collect();
        proxy.clear_log();
        first.unlock().unwrap();
        let mut order = Vec::new();
        for left in (0..WAITERS).rev() {
            let next = told.recv_timeout(SOON).expect("one of them is granted the lock");
            order.push(next);
            // No other one was woken: they are still blocked, or have gone back to it.
            rig.until_blocked(0, left);
            assert!(told.try_recv().is_err(), "two were granted the lock");
            if left == 0 {
                let asked = Asked { attempts: proxy.count("acquire"), all: proxy.count("*") };
                go[next].send(()).unwrap();
                return (order, asked);
            }
            go[next].send(()).unwrap();
        }
        unreachable!("the last one returns");
    });
    rig.assert_free(KEY);
    // A wait whose timer ran out looked by itself.
    let most = if rig.servers.len() == 1 { 0 } else { WAITERS };
    (asked.attempts <= most).then_some((order, asked))
}

/// As long as no wait for a notification runs out, which takes 2.5 s at least, only the one that is granted the lock sends anything at all.
#[test]
fn each_release_is_one_grant_to_the_longest_wait() {
    for_sizes(&[1, 3], |rig| {
        let (order, asked) = (0..5).find_map(|_| one_by_one(rig)).expect("the machine is too busy for this test");
        assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
        // One node: the wait that is granted the lock has it. Several: it lets one attempt take the key.
        let attempts = if rig.servers.len() == 1 { 0 } else { WAITERS };
        assert_eq!(asked.attempts, attempts, "{asked:?}");
        // A release each, the short one of the first before it, and perhaps the talk on a new connection or an early renewal.
        assert!(asked.all <= 5 * WAITERS, "{asked:?}");
    });
}

/// Waits for the lock in a thread; the test goes on when it is blocked.
fn while_waiting(rig: &Rig, lock: &Mutex, then: impl FnOnce()) -> (Result<(), Error>, Duration) {
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock()?;
            let at = Instant::now();
            guard.unlock().map(|()| at)
        });
        rig.until_blocked(0, 1);
        let start = Instant::now();
        then();
        let end = waiter.join().unwrap();
        (end.clone().map(drop), end.map_or(Duration::ZERO, |at| at.saturating_duration_since(start)))
    })
}

#[test]
fn an_id_of_ones_own_is_kept_when_granted() {
    for_sizes(&[1, 3], |rig| {
        let held = rig.client().mutex(KEY).lock().unwrap();
        let lock = rig.client().mutex(KEY).holder_name("worker-7");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().map(|guard| (guard.id().holder_name().to_owned(), guard.unlock())));
            rig.until_blocked(0, 1);
            held.unlock().unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(("worker-7".to_owned(), Ok(()))));
        });
        rig.assert_free(KEY);
    });
}

/// A holder that chose the readable part of its token grants like any other, so that no waiter has to poll.
#[test]
fn a_holder_with_an_id_of_its_own_is_not_polled() {
    // A wait that polls looks at least every 100 ms. On several nodes each wait looks about once a second, or four times if it listens aside.
    for (size, looks) in [(1, 0), (3, 3)] {
        let rig = &Rig::start(size);
        let held = rig.client().mutex(KEY).holder_name("worker-7").lock().unwrap();
        let lock = rig.watched().mutex(KEY);
        let mut polls = 0;
        let (end, took) = while_waiting(rig, &lock, || {
            rig.proxies[0].clear_log();
            thread::sleep(ms(700));
            polls = rig.proxies[0].count("acquire");
            held.unlock().unwrap();
        });
        assert_eq!(end, Ok(()));
        assert!(polls <= looks, "{polls} attempts while the holder will push");
        assert!(took < ms(700) + SLACK, "{took:?}");
    }
}

type Call = fn(&Mutex) -> Result<MutexGuard, Error>;

/// Only the dead wait for it: it is granted to none of them.
fn waited_for_by_the_dead(rig: &Rig, key: &str) {
    let held = rig.client().mutex(key).lock().unwrap();
    for server in &rig.servers {
        server.ask::<()>(redis::cmd("ZADD").arg(format!("{{{key}}}:queue")).arg(1).arg("redlock-sync:0/1"));
    }
    held.unlock().unwrap();
    assert_eq!(rig.holding(key), 0, "it is granted to no waiter");
}

#[test]
fn a_lock_for_which_only_the_dead_wait_is_free_for_all() {
    for_sizes(&[1, 3], |rig| {
        let calls: [(&str, Call); 3] =
            [("lock", Mutex::lock), ("try_lock_for", |lock| lock.try_lock_for(SOON)), ("try_lock", Mutex::try_lock)];
        for (name, take) in calls {
            waited_for_by_the_dead(rig, name);
            let (guard, took) = timed(|| take(&rig.client().mutex(name)));
            let guard = guard.unwrap_or_else(|error| panic!("{name}: {error}, though it is free"));
            assert!(took < ms(700), "{name} took {took:?}");
            assert_eq!(rig.having(name, guard.id().as_str()), rig.servers.len());
            guard.unlock().unwrap();
        }
    });
}

/// The reply that brings a grant comes when that is over: it is worth nothing then, whether another holder has the lock by now or none.
#[test]
fn a_grant_that_comes_late_is_no_lock() {
    for is_taken in [true, false] {
        let rig = Rig::start(1);
        let held = brisk(&rig.urls(), ms(1000)).mutex(KEY).lock().unwrap();
        // So patient that the reply is still waited for.
        let builder = Redlock::builder().node(rig.proxies[0].url()).node_timeout(Duration::from_secs(8));
        let lock = builder.lease(Duration::from_secs(30)).build().unwrap().mutex(KEY);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let rig = &rig;
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                guard.check().expect("a lock that is held");
                assert_eq!(rig.having(KEY, guard.id().as_str()), 1, "it believes to hold the lock");
                tell.send(()).unwrap();
                guard.unlock().unwrap();
            });
            rig.until_blocked(0, 1);
            rig.proxies[0].latency(ms(2500));
            held.unlock().unwrap();
            eventually("the grant is over", SOON, || rig.holding(KEY) == 0);
            let other = is_taken.then(|| rig.client().mutex(KEY).lock().unwrap());
            rig.proxies[0].latency(Duration::ZERO);
            if let Some(other) = other {
                rig.until_blocked(0, 1);
                assert!(told.try_recv().is_err(), "it believes to hold what another holds");
                assert_eq!(rig.having(KEY, other.id().as_str()), 1);
                other.unlock().unwrap();
            }
            told.recv_timeout(SOON).unwrap();
        });
        rig.assert_free(KEY);
    }
}

/// Settings that count from the acquisition count from the grant, not from the attempt before the wait.
#[test]
fn a_granted_lock_is_worth_as_much_as_any_other() {
    let lease = ms(2500);
    let wait = ms(1700);
    thread::scope(|scope| {
        scope.spawn(|| {
            granted_late(
                lease,
                wait,
                |lock| lock.renew(false),
                |_, guard| {
                    eventually("the lease has its full length", SOON, || {
                        guard.check().expect("still held");
                        guard.remaining() > ms(1300)
                    });
                },
            );
        });
        scope.spawn(|| {
            granted_late(
                lease,
                wait,
                |lock| lock.max_hold(ms(1600)),
                |_, guard| {
                    let start = Stopwatch::start();
                    while guard.check().is_ok() {
                        thread::sleep(ms(2));
                    }
                    let held = start.elapsed();
                    assert!(held > ms(1100) && held < ms(1600) + SLACK, "lost after {held:?}, not 1.6 s");
                },
            );
        });
        scope.spawn(|| {
            granted_late(
                lease,
                wait,
                |lock| lock.min_hold(ms(1500)),
                |rig, guard| {
                    let start = Instant::now();
                    guard.unlock().unwrap();
                    eventually("the minimum hold ends", SOON, || rig.holding(KEY) == 0);
                    assert!(start.elapsed() > ms(1200), "free after {:?}, not 1.5 s", start.elapsed());
                },
            );
        });
    });
}

/// A lock that is granted after a long wait, and what is then seen.
fn granted_late(lease: Duration, wait: Duration, set: fn(Mutex) -> Mutex, seen: fn(&Rig, MutexGuard)) {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    let lock = set(brisk(&rig.urls(), lease).mutex(KEY));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock().unwrap();
            seen(&rig, guard);
        });
        rig.until_blocked(0, 1);
        thread::sleep(wait);
        held.unlock().unwrap();
    });
}
