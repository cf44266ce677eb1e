//! Each release grants the lock to one wait, in order. A granted lock is as good as any other. Waits poll only if they
//! must.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Error, Mutex, MutexGuard, Redlock, Retry};
use redlock_tests::{Act, Stopwatch, Took, eventually};

use super::rig::{KEY, Rig, SLACK, SOON, brisk, for_sizes, ms, timed};

const WAITERS: usize = 6;

/// The number of commands that the first node received between the first release and the last acquisition.
#[derive(Debug)]
struct Asked {
    attempts: usize,
    all: usize,
}

/// Several clients queue up, and each releases when the test tells it to. Returns the order in which they got the lock,
/// and the number of commands. Returns `None` if a wait timed out meanwhile, because such a wait makes an attempt
/// itself.
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
            let next = told.recv_timeout(SOON).expect("a waiter gets the lock");
            order.push(next);
            // The release woke no other waiter, or each of them waits again. On several nodes, the wait of the holder
            // can be left on a node that answered too late, until the holder releases the lock.
            eventually(&format!("{left} others wait"), SOON, || rig.blocked(0) >= left);
            assert!(told.try_recv().is_err(), "two waiters got the lock");
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
    // A wait that timed out made an attempt of its own.
    let most = if rig.servers.len() == 1 { 0 } else { WAITERS };
    (asked.attempts <= most).then_some((order, asked))
}

/// Only the waiter that is granted the lock sends commands. The others sleep.
#[test]
fn each_release_is_one_grant_to_the_longest_wait() {
    for_sizes(&[1, 3], |rig| {
        let (order, asked) = (0..5).find_map(|_| one_by_one(rig)).expect("the machine is too busy for this test");
        assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
        // With one node, the granted wait has the lock without an attempt. With several nodes, it makes one attempt,
        // which takes the key.
        let attempts = if rig.servers.len() == 1 { 0 } else { WAITERS };
        assert_eq!(asked.attempts, attempts, "{asked:?}");
        // Each holder sends one release, and the first one also a short release. A new connection or an early renewal
        // can add some commands.
        assert!(asked.all <= 5 * WAITERS, "{asked:?}");
    });
}

/// Waits for the lock in a thread, and calls `then` once the server has the wait. Returns the outcome, and the time
/// from then on.
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

/// A holder that chose its own holder name grants the lock like any other, so a waiter need not poll.
#[test]
fn a_holder_with_an_id_of_its_own_is_not_polled() {
    // A wait that polls makes an attempt at least every 100 ms. With several nodes, each wait makes about one attempt
    // per second, or four if it listens on another node than most waits.
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
        assert!(polls <= looks, "{polls} attempts although the holder will notify the waiter");
        assert!(took < ms(700) + SLACK, "{took:?}");
    }
}

type Call = fn(&Mutex) -> Result<MutexGuard, Error>;

/// Releases a lock whose only wait belongs to a process that is gone. The release must grant the lock to no wait.
fn waited_for_by_the_dead(rig: &Rig, key: &str) {
    let held = rig.client().mutex(key).lock().unwrap();
    for server in &rig.servers {
        server.ask::<()>(cmd("ZADD").arg(format!("{{{key}}}:waits")).arg(1).arg("redlock-sync:0/1 1f"));
    }
    held.unlock().unwrap();
    assert_eq!(rig.holding(key), 0, "the lock was granted to a dead wait");
}

/// As many processes were killed while they waited.
#[test]
fn a_release_finds_the_living_wait_behind_many_dead_ones() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    let queue = format!("{{{KEY}}}:waits");
    for dead in 1..=200 {
        let wait = format!("redlock-sync:0/{dead} 1f");
        rig.servers[0].ask::<()>(cmd("ZADD").arg(&queue).arg(dead).arg(wait));
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.client().mutex(KEY).try_lock_for(SOON).unwrap().id().clone());
        rig.until_blocked(0, 201);
        held.unlock().unwrap();
        let id = waiter.join().unwrap();
        assert!(id.holder_name().starts_with("granted:"), "no release granted it: {id}");
    });
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

/// A waiter reads its notification after the grant has expired. The waiter must not take it for the lock, whether or
/// not another client holds the lock now.
#[test]
fn a_grant_that_comes_late_is_no_lock() {
    for is_taken in [true, false] {
        let rig = Rig::start(1);
        let held = brisk(&rig.urls(), ms(1000)).mutex(KEY).lock().unwrap();
        // This node timeout is long enough that the waiter still waits for the late reply.
        let builder = Redlock::builder().node(rig.proxies[0].url()).node_timeout(Duration::from_secs(8));
        let lock = builder.lease(Duration::from_secs(30)).build().unwrap().mutex(KEY);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let rig = &rig;
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                guard.check().expect("a lock that is held");
                assert_eq!(rig.having(KEY, guard.id().as_str()), 1, "the server has another token");
                tell.send(()).unwrap();
                guard.unlock().unwrap();
            });
            rig.until_blocked(0, 1);
            rig.proxies[0].latency(ms(2500));
            held.unlock().unwrap();
            eventually("the grant expires", SOON, || rig.holding(KEY) == 0);
            let other = is_taken.then(|| rig.client().mutex(KEY).lock().unwrap());
            rig.proxies[0].latency(Duration::ZERO);
            if let Some(other) = other {
                rig.until_blocked(0, 1);
                assert!(told.try_recv().is_err(), "the waiter took the late grant for the lock");
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

/// Calls `seen` with a lock that was granted after a long wait.
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

/// A failover to a replica without the last writes can bring back waits that have ended, although their clients still
/// run.
#[test]
fn a_lock_that_is_granted_to_a_wait_that_is_over_goes_on_to_the_next() {
    let rig = Rig::start(1);
    let (server, [holder, waits]) = (&rig.servers[0], [rig.client(), rig.client()]);
    let (k, queue) = (waits.mutex("k"), "{k}:waits");
    // The client also waits for another lock, so its channel stays subscribed.
    let other = holder.mutex("other").lock().unwrap();
    thread::scope(|scope| {
        let listens = scope.spawn(|| waits.mutex("other").lock().unwrap().unlock());
        eventually("the wait is in the queue", SOON, || server.ask(cmd("EXISTS").arg("{other}:waits")));
        for fenced in [false, true] {
            let held = holder.mutex("k").lock().unwrap();
            let over = scope.spawn(|| k.lock().unwrap().unlock());
            let mut left: Vec<String> = Vec::new();
            eventually("the wait is in the queue", SOON, || {
                left = server.ask(cmd("ZRANGE").arg(queue).arg(0).arg(-1));
                !left.is_empty()
            });
            held.unlock().unwrap();
            over.join().unwrap().unwrap();
            let channel = left[0].split('/').next().unwrap();
            let held = holder.mutex("k").fenced(fenced).lock().unwrap();
            for (i, wait) in [left[0].clone(), format!("{channel}/0"), format!("{channel}/1000000")].iter().enumerate()
            {
                server.ask::<usize>(cmd("ZADD").arg(queue).arg(i).arg(wait));
            }
            held.unlock().unwrap();
            rig.client().mutex("k").try_lock_for(ms(5000)).expect("an ended wait got the lock").unlock().unwrap();
        }
        other.unlock().unwrap();
        listens.join().unwrap().unwrap();
    });
}

/// No other thread of the client waits, so none reads the notification. When the server answers again, the client
/// removes the wait and gives the grant back.
#[test]
fn what_a_wait_was_granted_when_it_ended_is_given_back() {
    let rig = Rig::start(1);
    let (server, proxy) = (&rig.servers[0], &rig.proxies[0]);
    let held = redlock_tests::open(server.url()).mutex(KEY).lock().unwrap();
    let locks = redlock_tests::open(proxy.url());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.mutex(KEY).try_lock_for(Duration::from_secs(3)).map(drop));
        let queued = || server.ask::<i64>(cmd("ZCOUNT").arg("{order:42}:waits").arg(1).arg("+inf")) == 1;
        eventually("the wait is in the queue", SOON, queued);
        let last = proxy.on_each("acquire", Act::BlackHole);
        let leave = proxy.on_each("release", Act::BlackHole);
        eventually("the last attempt is sent", SOON, || last.hits() > 0);
        held.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap_err().is_unavailable());
        // The client removes the wait in the background.
        eventually("the call that removes the wait is sent", SOON, || leave.hits() > 0);
        let holder = server.get(KEY);
        assert!(holder.as_ref().is_some_and(|token| token.contains(":granted:")), "{holder:?}");
        // The calls that the proxy swallowed are never delivered.
        proxy.drop_connections();
        proxy.heal();
    });
    let start = Stopwatch::start();
    let guard = redlock_tests::open(server.url()).mutex(KEY).try_lock_for(SOON).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "after {:?}", start.elapsed());
    guard.unlock().unwrap();
}

/// A wait got the grant but does not take it, and the key is deleted by hand. The next holder must be the only one.
#[test]
fn a_grant_whose_key_was_deleted_is_void() {
    for is_watched_by_fences in [false, true] {
        let rig = Rig::start(1);
        let held = rig.client().mutex(KEY).lock().unwrap();
        // This client only subscribes to its channel.
        let mut idle = rig.servers[0].client();
        cmd("SUBSCRIBE").arg("redlock-sync:1").exec(&mut idle).unwrap();
        rig.servers[0].ask::<()>(cmd("ZADD").arg("{order:42}:waits").arg(1).arg("redlock-sync:1/1 1f"));
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
    let steady = Retry::every(ms(2)).max_attempts(5);
    let counted = median(&|| drop(locks.mutex(KEY).retry(steady.clone()).lock()));
    held.unlock().unwrap();
    // A foreign program that holds the lock for 10 ms and notifies no wait.
    let foreign = median(&|| {
        let mut set = cmd("SET");
        rig.servers[0].ask::<()>(set.arg(KEY).arg("foreign").arg("PX").arg(10));
        locks.mutex(KEY).retry(Retry::every(ms(2))).lock().unwrap().unlock().unwrap();
    });
    let all = [deadline, counted, foreign];
    assert!(all.iter().all(|took| *took < ms(40)), "10 ms each, but {all:?}");
}
