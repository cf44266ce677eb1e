//! Many threads want the lock at the same time, and deadlines pass.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock, Retry};
use redlock_tests::{Proxy, Seen, Server, Stopwatch, Took, eventually};

use crate::faults::rig::{KEY, MORE_SLACK, NODE_TIMEOUT, Rig, SOON, err, exists, for_sizes, ms, stays, timed};
use crate::kinds::{Kind, each_kind};

/// The node timeout of calls that outlast their deadline. A call may exceed its deadline by one node timeout. Two of
/// them are longer than one plus `OVERTIME_SLACK`.
const OVERTIME: Duration = ms(1200);
const OVERTIME_SLACK: Duration = ms(500);
/// Deadlines within the first attempt: one soon after its start, and one after half of its node timeout.
const WAITS: [Duration; 2] = [ms(100), ms(700)];

fn fault_34_a_connection_that_takes_time_is_waited_for<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        rig.proxies.iter().for_each(|proxy| proxy.latency(ms(25)));
        // A client without a connection makes one attempt. Then several threads share one connection.
        let locks = rig.builder().node_timeout(ms(3000)).connections(1).build().unwrap();
        K::unlock(K::new(&locks, KEY).try_lock().unwrap()).unwrap();
        thread::scope(|scope| {
            for i in 0..4 {
                let lock = K::new(&locks, &format!("{KEY}:{i}"));
                scope.spawn(move || K::unlock(lock.try_lock().unwrap()).unwrap());
            }
        });
    });
}

fn fault_34_renewals_and_releases_get_through_a_crowd<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lease = ms(4000);
        let locks = rig.builder().node_timeout(ms(3000)).lease(lease).connections(1).build().unwrap();
        let guard = K::new(&locks, KEY).lock().unwrap();
        rig.proxies.iter().for_each(|proxy| proxy.latency(ms(40)));
        let enough = AtomicBool::new(false);
        let served = AtomicUsize::new(0);
        thread::scope(|scope| {
            for i in 0..16 {
                let lock = K::new(&locks, &format!("crowd:{i}"));
                let (enough, served) = (&enough, &served);
                scope.spawn(move || {
                    // Each round takes 80 ms on the single connection, so the crowd has to share it.
                    while !enough.load(Ordering::Relaxed) {
                        _ = K::unlock(lock.try_lock().unwrap());
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            stays("the lock is renewed", lease + ms(400), || guard.check().is_ok());
            assert!(guard.remaining() > ms(300), "{:?}", guard.remaining());
            let (unlocked, took) = timed(|| K::unlock(guard));
            enough.store(true, Ordering::Relaxed);
            unlocked.unwrap();
            assert!(took < ms(900), "{took:?}");
        });
        assert!(served.load(Ordering::Relaxed) > 16, "there was no crowd");
        assert_eq!(rig.holding(KEY), 0);
        rig.heal();
        eventually("nothing is left of the crowd", SOON, || (0..16).all(|i| rig.holding(&format!("crowd:{i}")) == 0));
    });
}

fn fault_34_no_wait_sleeps_on_a_connection_of_a_line<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let holder = rig.other_client();
        let keys: Vec<String> = (0..24).map(|i| format!("{KEY}:{i}")).collect();
        let held: Vec<_> = keys.iter().map(|key| K::new(&holder, key).lock().unwrap()).collect();
        let locks = rig.builder().connections(1).build().unwrap();
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for key in &keys {
                let lock = K::new(&locks, key).retry(Retry::every(ms(200)));
                let done = &done;
                scope.spawn(move || {
                    K::unlock(lock.lock().unwrap()).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            rig.proxies[0].wait_count("acquire", keys.len(), SOON);
            // While all these threads wait, the single connection is free for other calls.
            for _ in 0..5 {
                let (guard, took) = timed(|| K::new(&locks, "free").try_lock());
                K::unlock(guard.unwrap()).unwrap();
                assert!(took < NODE_TIMEOUT, "{took:?}");
            }
            assert_eq!(done.load(Ordering::Relaxed), 0);
            held.into_iter().try_for_each(K::unlock).unwrap();
        });
        // The client has one connection for attempts, one for notifications, and a few for renewals and releases.
        assert!(rig.proxies.iter().all(|proxy| proxy.connections() <= 6));
    });
}

/// Several clients want the lock at the same moment, in several rounds. Errors are asserted only at the end, because
/// the racers wait for each other at each start.
fn race<K: Kind>(rig: &Rig, racers: usize, rounds: usize) {
    let start = Barrier::new(racers);
    let inside = AtomicUsize::new(0);
    let once = |lock: &K| {
        start.wait();
        let guard = lock.try_lock_for(SOON)?;
        let others = inside.fetch_add(1, Ordering::SeqCst);
        let checked = guard.check();
        inside.fetch_sub(1, Ordering::SeqCst);
        checked.and(K::unlock(guard)).map(|()| others)
    };
    thread::scope(|scope| {
        let run = || {
            // This test loads the machine most, so its node timeout is long.
            let locks = rig.builder().node_timeout(Duration::from_secs(4)).build().unwrap();
            let lock = K::new(&locks, KEY);
            (0..rounds).map(|_| once(&lock)).collect::<Vec<Result<usize, Error>>>()
        };
        let threads: Vec<_> = (0..racers).map(|_| scope.spawn(run)).collect();
        for outcome in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            assert_eq!(outcome, Ok(0), "an error, or another client held the lock");
        }
    });
    eventually("nothing is left", SOON, || rig.holding(KEY) == 0);
}

fn fault_36_racers_split_the_votes_and_all_get_through<K: Kind>() {
    for_sizes(&[3, 5], |rig| {
        race::<K>(rig, 4, 5);
        // The 20 acquisitions together need a limited number of attempts, so no racer retries without a pause.
        let tries = rig.proxies[0].count("acquire");
        assert!(tries < 20 * 60, "{tries} tries");
    });
}

fn fault_37_a_tie_ends_at_once_as_busy<K: Kind>() {
    for_sizes(&[2, 4], |rig| {
        let (theirs, ours) = rig.servers.split_at(rig.servers.len() / 2);
        let others =
            redlock_tests::patient().nodes(theirs.iter().map(Server::url)).restart_guard(false).build().unwrap();
        let held = K::new(&others, KEY).lease(Duration::from_secs(60)).lock().unwrap();
        let patient = rig.builder().node_timeout(Duration::from_secs(3)).build().unwrap();
        let lock = K::new(&patient, KEY);
        let (tie, took) = timed(|| lock.try_lock());
        let Error::Busy { expires_in: Some(left), .. } = err(tie) else { panic!("a tie is not busy") };
        assert!(left > ms(50_000) && left <= ms(60_000), "{left:?}");
        assert!(took < ms(1500), "{took:?}");
        assert!(ours.iter().all(|server| !exists(server, KEY)), "the attempt left its token on its half of the nodes");

        let few = lock.clone().retry(Retry::every(ms(10)).max_attempts(3));
        let (tie, took) = timed(|| few.lock());
        assert!(err(tie).is_busy());
        assert!(took < ms(1500), "{took:?}");
        let (tie, took) = timed(|| lock.try_lock_for(ms(200)));
        assert!(err(tie).is_busy());
        assert!(took >= ms(200) && took < ms(200) + MORE_SLACK, "{took:?}");
        assert!(ours.iter().all(|server| !exists(server, KEY)));
        assert!(theirs.iter().all(|server| server.holder(KEY).as_deref() == Some(held.id().as_str())));

        theirs[0].del(KEY);
        K::unlock(lock.try_lock().unwrap()).unwrap();
    });
}

fn fault_37_two_racers_at_even_n_both_get_through<K: Kind>() {
    for_sizes(&[2, 4], |rig| race::<K>(rig, 2, 10));
}

/// A lock whose acquire raises the fence counter, so that the test notices when a late acquire is executed.
fn fenced<K: Kind>(locks: &Redlock, key: &str) -> K {
    K::new(locks, key).fenced(true)
}

/// Makes the connections and has the servers load the scripts.
fn use_once<K: Kind>(locks: &Redlock) {
    let guard = fenced::<K>(locks, "before").lock().unwrap();
    guard.fencing_token().unwrap();
    K::unlock(guard).unwrap();
}

/// A client that already has its connections.
fn connected<K: Kind>(rig: &Rig, longest: Duration) -> Redlock {
    let locks = rig.builder().node_timeout(OVERTIME).unavailable_after(longest).build().unwrap();
    use_once::<K>(&locks);
    locks
}

/// Runs `test` once for each wait, in parallel and each with its own key, while the servers are silent. Afterwards no
/// key may be left.
fn silenced<K: Kind>(rig: &Rig, test: impl Fn(&Redlock, Duration, &str) + Sync) {
    let clients = WAITS.map(|wait| (connected::<K>(rig, wait), wait, format!("{KEY}:{}", wait.as_millis())));
    rig.proxies.iter().for_each(Proxy::black_hole);
    thread::scope(|scope| {
        let test = &test;
        for (locks, wait, key) in &clients {
            thread::Builder::new().name(key.clone()).spawn_scoped(scope, move || test(locks, *wait, key)).unwrap();
        }
    });
    for (_, _, key) in &clients {
        let sent = rig.proxies.iter().filter(|proxy| proxy.seen().iter().any(|seen| is_acquire_of(seen, key))).count();
        assert_eq!(sent, rig.servers.len(), "not every node was sent an acquire");
        expect_clean(rig, key);
    }
}

fn is_acquire_of(seen: &Seen, key: &str) -> bool {
    seen.name == "acquire" && seen.args[2] == key
}

/// Asserts that the call ended within one node timeout after its deadline.
fn expect_in_time(wait: Duration, took: Took) {
    assert!(took < wait + OVERTIME + OVERTIME_SLACK, "{took:?} for a wait of {wait:?}");
}

fn expect_clean(rig: &Rig, key: &str) {
    // The servers now execute the attempts that were under way, and the releases that follow them.
    let fence = format!("{{{key}}}:fence");
    rig.heal();
    eventually("the late attempts are executed", SOON, || rig.servers.iter().all(|server| exists(server, &fence)));
    // The attempts arrive one after the other, each followed by its release. The loop waits until no more arrive.
    eventually("the releases remove the key, and it stays away", SOON, || {
        let end = Instant::now() + ms(200);
        while Instant::now() < end {
            if rig.holding(key) != 0 {
                return false;
            }
            thread::sleep(ms(5));
        }
        true
    });
}

fn fault_40_the_deadline_passes_while_requests_are_under_way<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        silenced::<K>(rig, |locks, wait, key| {
            let (late, took) = timed(|| fenced::<K>(locks, key).try_lock_for(wait));
            expect_in_time(wait, took);
            assert!(took >= wait, "{took:?} for a wait of {wait:?}");
            let error = err(late);
            let Error::Unavailable { op: "acquire", of, nodes, .. } = &error else { panic!("{error:?}") };
            assert_eq!((*of, nodes.len()), (rig.servers.len(), rig.servers.len()));
            let text = error.to_string();
            let has_all = rig.proxies.iter().all(|proxy| text.contains(&proxy.addr().to_string()));
            assert!(text.contains(key) && has_all, "{text}");
        });
        eventually("locks can be had again", SOON, || K::new(&rig.through(), KEY).try_lock().is_ok());
    });
}

fn fault_40_so_it_does_for_those_in_line<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        silenced::<K>(rig, |locks, wait, key| {
            thread::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|| {
                        let (late, took) = timed(|| fenced::<K>(locks, key).try_lock_for(wait));
                        expect_in_time(wait, took);
                        let error = err(late);
                        assert!(error.is_unavailable(), "{error}");
                    });
                }
            });
        });
    });
}

fn fault_40_lock_without_a_deadline_gives_up_too<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        silenced::<K>(rig, |locks, longest, key| {
            let (late, took) = timed(|| fenced::<K>(locks, key).lock());
            expect_in_time(longest, took);
            assert!(err(late).is_unavailable());
        });
    });
}

/// Port 1 has no server. If the waiters gave up one after the other, each after its own time, they would take five
/// times as long.
fn fault_40_those_in_line_give_up_with_the_head<K: Kind>() {
    let locks = Redlock::builder().node("redis://127.0.0.1:1/").unavailable_after(ms(1500)).build().unwrap();
    let start = Stopwatch::start();
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| assert!(err(K::new(&locks, KEY).lock()).is_unavailable()));
        }
    });
    assert!(start.elapsed() < 2 * ms(1500), "{:?}", start.elapsed());
}

fn fault_40_a_majority_that_answers_is_enough<K: Kind>() {
    for_sizes(&[3, 5], |rig| {
        let locks = connected::<K>(rig, SOON);
        rig.proxies[rig.majority().len()..].iter().for_each(Proxy::black_hole);
        let (guard, took) = timed(|| fenced::<K>(&locks, KEY).try_lock_for(Duration::ZERO));
        expect_in_time(Duration::ZERO, took);
        K::unlock(guard.unwrap()).unwrap();
        expect_clean(rig, KEY);
    });
}

each_kind!(all:
    fault_34_a_connection_that_takes_time_is_waited_for,
    fault_34_renewals_and_releases_get_through_a_crowd,
    fault_34_no_wait_sleeps_on_a_connection_of_a_line,
    fault_36_racers_split_the_votes_and_all_get_through,
    fault_37_a_tie_ends_at_once_as_busy,
    fault_37_two_racers_at_even_n_both_get_through,
    fault_40_the_deadline_passes_while_requests_are_under_way,
    fault_40_so_it_does_for_those_in_line,
    fault_40_lock_without_a_deadline_gives_up_too,
    fault_40_those_in_line_give_up_with_the_head,
    fault_40_a_majority_that_answers_is_enough,
);
