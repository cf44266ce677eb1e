//! `shutdown` while threads wait or hold locks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Cancel, Error, Job, LostReason, MutexGuard, Redlock, Retry, ShutdownReport};
use redlock_tests::{Act, Server, eventually};

use super::rig::{KEY, Rig, SOON, for_sizes, ms, settings, timed, warm};

/// The time that a call and the end of a wait may take on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(1);

/// Closes a client that has one holder and these waits: one thread waits on the server for a key, and three threads
/// wait behind it. Another thread waits for a key of a foreign program, which sends no notification. If `connections`
/// is 1, no connection is left to listen on, so the waits poll.
fn closes_all(rig: &Rig, connections: u32) {
    let other = rig.client();
    let theirs = other.mutex(KEY).lock().unwrap();
    rig.servers.iter().for_each(|server| server.set("foreign", "stranger"));
    let locks = settings(rig.urls()).connections(connections).build().unwrap();
    let guard = locks.mutex("held").lock().unwrap().into_send();
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |error| tell.send(error.lost_reason()).unwrap());
    let long = Retry::every(Duration::from_secs(60));
    thread::scope(|scope| {
        let wait = |lock: redlock_sync::Mutex| {
            scope.spawn(move || {
                let outcome = lock.lock();
                (outcome.map(|guard| guard.id().clone()), Instant::now())
            })
        };
        let mut all = vec![wait(locks.mutex(KEY))];
        rig.until_blocked(0, 1);
        all.extend((0..3).map(|_| wait(locks.mutex(KEY))));
        all.push(wait(locks.mutex("foreign").retry(long)));
        rig.until_blocked(0, 2);
        // A thread can be in the queue or between two attempts, which the test cannot see. A thread outside the queue
        // must also get `Closed`.
        eventually("the wait for the foreign key is in its queue", SOON, || {
            rig.servers[0].ask::<bool>(redis::cmd("EXISTS").arg("{foreign}:waits"))
        });
        let start = Instant::now();
        let (closed, took) = timed(|| locks.shutdown(Duration::ZERO).unwrap());
        assert_eq!(closed.given_up, ["held"]);
        assert!(took < PROMPTLY, "close took {took:?}");
        for thread in all {
            let (outcome, at) = thread.join().unwrap();
            assert_eq!(outcome, Err(Error::Closed));
            assert!(at - start < PROMPTLY, "a wait ended after {:?}", at - start);
        }
    });
    assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
    assert_eq!(told.recv_timeout(SOON), Ok(Some(LostReason::Revoked)));
    assert_eq!(locks.mutex("more").try_lock().unwrap_err(), Error::Closed);
    assert_eq!(rig.holding("held"), 0);
    drop(guard);
    // The servers have no waits of this client any more, so the release grants the lock to none of its threads.
    theirs.unlock().unwrap();
    rig.assert_free_but(KEY, &["foreign"]);
    assert_eq!(rig.servers[0].get("foreign").as_deref(), Some("stranger"));
}

#[test]
fn close_ends_every_wait_and_gives_up_what_is_held() {
    for_sizes(&[1, 3], |rig| closes_all(rig, 16));
}

#[test]
fn close_ends_waits_that_poll_too() {
    for_sizes(&[1, 3], |rig| closes_all(rig, 1));
}

/// An attempt is under way when the client is closed. The server executes it, but its reply and its roll-back are lost.
/// The shutdown releases what the attempt has set.
#[test]
fn close_releases_what_an_attempt_under_way_leaves() {
    let rig = Rig::start(1);
    let locks = settings(rig.proxy_urls()).node_timeout(ms(500)).build().unwrap();
    warm(&locks);
    let proxy = &rig.proxies[0];
    let executed = proxy.on("acquire", Act::HoldReply);
    thread::scope(|scope| {
        let attempt = scope.spawn(|| locks.mutex(KEY).lease(10 * SOON).try_lock().map(drop));
        executed.wait_hit(SOON);
        proxy.refuse();
        let close = scope.spawn(|| locks.shutdown(Duration::ZERO).unwrap());
        let error = attempt.join().unwrap().unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(rig.holding(KEY), 1);
        proxy.heal();
        close.join().unwrap();
    });
    eventually("the key is released", SOON, || rig.holding(KEY) == 0);
}

/// After the second call, such as for a second signal, the process may end. So it waits for the releases of the first
/// one, which take about two node timeouts here.
#[test]
fn a_second_shutdown_waits_for_the_releases_of_the_first() {
    let server = Server::start();
    let locks = Redlock::builder().node(server.url()).node_timeout(ms(500)).build().unwrap();
    let guard = locks.mutex("a").lock().unwrap();
    server.stop();
    let start = Instant::now();
    thread::scope(|scope| {
        let first = scope.spawn(|| locks.shutdown(Duration::ZERO).unwrap());
        eventually("the lock is revoked", SOON, || guard.check().is_err());
        locks.shutdown(Duration::ZERO).unwrap();
        assert!(start.elapsed() >= ms(500), "{:?}", start.elapsed());
        assert_eq!(first.join().unwrap().given_up, ["a"]);
    });
    server.cont();
}

/// An attempt that was under way acquires the lock after the shutdown has released the others. Its guard is unlocked,
/// dropped, or kept. Each of two shutdowns returns after the release of that lock.
#[test]
fn close_waits_for_the_release_of_a_lock_that_was_acquired_meanwhile() {
    let ends: [fn(MutexGuard) -> Option<MutexGuard>; 3] = [
        |guard| {
            // The shutdown may have given the lock up just before.
            let outcome = guard.unlock();
            let is_revoked = outcome.as_ref().is_err_and(|error| error.lost_reason() == Some(LostReason::Revoked));
            assert!(outcome.is_ok() || is_revoked, "{outcome:?}");
            None
        },
        |guard| {
            drop(guard);
            None
        },
        Some,
    ];
    let cancelled = Cancel::new();
    cancelled.cancel();
    for end in ends {
        let rig = Rig::start(1);
        let locks = settings(rig.proxy_urls()).node_timeout(SOON / 3).build().unwrap();
        warm(&locks);
        let acquire = rig.proxies[0].on("acquire", Act::HoldReply);
        let release = rig.proxies[0].on("release", Act::Hold);
        thread::scope(|scope| {
            let (have_closed, both_have) = mpsc::channel::<()>();
            let holder = locks.mutex(KEY);
            scope.spawn(move || {
                let kept = end(holder.try_lock().unwrap());
                _ = both_have.recv();
                drop(kept);
            });
            acquire.wait_hit(SOON);
            let closes = [(), ()].map(|()| scope.spawn(|| locks.shutdown(Duration::ZERO).unwrap()));
            // With the cancel, an attempt sends nothing.
            let refused = || locks.mutex("more").cancel(&cancelled).try_lock().unwrap_err();
            eventually("the client is closed", SOON, || refused() == Error::Closed);
            // Without these pauses the test would notice less. It succeeds with and without them.
            thread::sleep(ms(50));
            acquire.release();
            release.wait_hit(SOON);
            thread::sleep(ms(100));
            assert!(closes.iter().all(|close| !close.is_finished()), "the key is there: {}", rig.holding(KEY));
            release.release();
            for close in closes {
                assert_eq!(close.join().unwrap().unconfirmed, 0);
                assert_eq!(rig.holding(KEY), 0);
            }
            drop(have_closed);
        });
    }
}

/// Threads of the client lock, try to lock and unlock while a shutdown runs. After it has returned, no thread may hold a
/// lock.
#[test]
fn no_thread_holds_a_lock_of_a_closed_client() {
    let rig = Rig::start(1);
    let other = rig.client();
    for round in 0..150 {
        let locks = rig.client();
        let is_closed = AtomicBool::new(false);
        let taken = AtomicUsize::new(0);
        thread::scope(|scope| {
            for i in 0..4 {
                let (lock, is_closed, taken) = (locks.mutex(KEY), &is_closed, &taken);
                scope.spawn(move || {
                    loop {
                        let tried = match i {
                            0 => lock.try_lock(),
                            1 => lock.try_lock_for(ms(1)),
                            _ => lock.lock(),
                        };
                        match tried {
                            Ok(guard) => {
                                taken.fetch_add(1, Ordering::Relaxed);
                                let was_closed = is_closed.load(Ordering::SeqCst);
                                assert!(guard.check().is_err() || !was_closed, "held after close(), in round {round}");
                                _ = guard.unlock();
                            }
                            Err(Error::Closed) => return,
                            Err(error) => assert!(error.is_busy(), "{error}"),
                        }
                    }
                });
            }
            // In some rounds another client takes the lock, so that some threads wait for a grant.
            if round % 3 == 0 {
                other.mutex(KEY).lock().unwrap().unlock().unwrap();
            }
            eventually("the threads take locks", SOON, || taken.load(Ordering::Relaxed) > 20 + round % 7);
            locks.shutdown(Duration::ZERO).unwrap();
            is_closed.store(true, Ordering::SeqCst);
        });
        assert_eq!(rig.servers[0].get(KEY), None, "the key is left in round {round}");
    }
}

/// During a shutdown, holders can finish their work. New locks and claims fail.
fn shuts_down(rig: &Rig) {
    let (locks, other) = (rig.client(), rig.client());
    let theirs = other.mutex("theirs").lock().unwrap();
    let (latch, mails) = (locks.count_down_latch("loaded", 1), locks.queue("emails"));
    let ((tell, told), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let (locks, latch, mails) = (&locks, &latch, &mails);
        let holder = scope.spawn(move || {
            let outer = locks.reentrant_mutex(KEY).lock().unwrap();
            let reader = locks.rw_lock("prices").read().unwrap();
            tell.send(()).unwrap();
            gone.recv().unwrap();
            let inner = locks.reentrant_mutex(KEY).lock().unwrap();
            inner.fencing_token().unwrap();
            inner.extend(ms(60_000)).unwrap();
            assert_eq!(locks.mutex("more").lock().unwrap_err(), Error::Closed);
            assert!(locks.mutex(KEY).is_locked().unwrap());
            latch.count_down().unwrap();
            if rig.servers.len() == 1 {
                mails.push("follow-up").unwrap();
                assert_eq!(mails.claim().unwrap_err(), Error::Closed);
            }
            reader.unlock().and(inner.unlock()).unwrap();
            outer.unlock().unwrap();
        });
        told.recv().unwrap();
        let waits = [locks.mutex("theirs"), locks.mutex("theirs"), locks.mutex(KEY)]
            .map(|lock| scope.spawn(move || lock.lock().map(drop)));
        rig.until_blocked(0, 1);
        let shutdown = scope.spawn(move || locks.shutdown(SOON));
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(Error::Closed));
        }
        assert_eq!(locks.mutex("more").try_lock().unwrap_err(), Error::Closed);
        assert!(!shutdown.is_finished() && !locks.is_ready(), "the shutdown has ended, or the client is still ready");
        go.send(()).unwrap();
        let (outcome, took) = timed(|| shutdown.join().unwrap());
        assert_eq!(outcome, Ok(ShutdownReport::default()));
        assert!(took < SOON / 2, "the shutdown noticed the last release only after {took:?}");
        holder.join().unwrap();
    });
    assert_eq!(locks.mutex(KEY).is_locked().unwrap_err(), Error::Closed);
    assert_eq!(locks.shutdown(SOON), Ok(ShutdownReport::default()), "a second shutdown found locks");
    theirs.unlock().unwrap();
    if rig.servers.len() == 1 {
        other.queue("emails").claim().unwrap().ack().unwrap();
    }
    other.mutex(KEY).try_lock().unwrap().unlock().unwrap();
}

#[test]
fn a_shutdown_lets_holders_finish() {
    for_sizes(&[1, 3], shuts_down);
}

/// After the grace period, a shutdown gives up locks of each kind and claims. It waits for the servers to confirm their
/// releases.
#[test]
fn a_shutdown_gives_up_what_is_left() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let mails = locks.queue("emails");
    mails.push("welcome").unwrap();
    let started = AtomicBool::new(false);
    let go_on = AtomicBool::new(false);
    thread::scope(|scope| {
        let (locks, started, go_on) = (&locks, &started, &go_on);
        let worker = scope.spawn({
            let mails = mails.clone();
            move || {
                let job: Job = mails.claim().unwrap();
                started.store(true, Ordering::SeqCst);
                eventually("the shutdown gives up the claim", SOON, || go_on.load(Ordering::SeqCst));
                job.ack()
            }
        });
        eventually("the job runs", SOON, || started.load(Ordering::SeqCst));
        let held = ["b", "a"].map(|key| locks.mutex(key).lock().unwrap());
        let several = locks.multi_lock(["c", "d"]).lock().unwrap();
        let permit = locks.semaphore("geocoder", 2).acquire().unwrap();
        // A second shutdown, as after a second signal, ends the wait of the first one.
        let first = scope.spawn(|| locks.shutdown(SOON));
        eventually("the first shutdown has begun", SOON, || {
            locks.mutex("more").try_lock().and_then(MutexGuard::unlock).is_err()
        });
        let ended = locks.shutdown(ms(20)).unwrap();
        assert_eq!(ended.given_up, ["a", "b", "c", "d", "geocoder", "{emails}:q2:due"]);
        assert_eq!(first.join().unwrap(), Ok(ShutdownReport::default()));
        assert_eq!(held[0].check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
        assert!(several.check().unwrap_err().is_lost() && permit.check().unwrap_err().is_lost());
        go_on.store(true, Ordering::SeqCst);
        assert!(worker.join().unwrap().unwrap_err().is_lost());
    });
    let other = rig.client();
    for key in ["a", "b", "c", "d"] {
        other.mutex(key).try_lock().unwrap().unlock().unwrap();
    }
    assert_eq!(other.semaphore("geocoder", 2).available().unwrap(), 2);
    assert_eq!(other.queue("emails").claim().unwrap().body(), b"welcome");
}

/// The client sends all releases in one packet, which the server reads when it continues. The client need not repeat
/// them. The node timeout is long, so that the connection stays usable on a busy machine.
#[test]
fn a_server_that_hangs_during_the_close_has_the_releases_of_all_kinds() {
    let server = Server::start();
    let locks = Redlock::builder().node(server.url()).node_timeout(ms(1000)).build().unwrap();
    let (mutex, permits) = (locks.mutex("a").lock().unwrap(), locks.semaphore("b", 3).acquire_many(2).unwrap());
    let (reader, several) = (locks.rw_lock("c").read().unwrap(), locks.multi_lock(["d", "e"]).lock().unwrap());
    server.stop();
    let ended = locks.shutdown(Duration::ZERO).unwrap();
    assert_eq!((ended.given_up, ended.unconfirmed), (["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(), 5));
    server.cont();
    eventually("the releases are executed before the leases end", SOON / 2, || server.keys().is_empty());
    drop((mutex, permits, reader, several));
}

/// The same if the client already knows that the server does not answer: its calls fail at once, but the releases are
/// still written.
#[test]
fn a_server_that_is_known_to_hang_has_the_releases_of_a_close() {
    let server = Server::start();
    let locks = Redlock::builder().node(server.url()).node_timeout(ms(1000)).build().unwrap();
    let (mutex, several) = (locks.mutex("a").lock().unwrap(), locks.multi_lock(["b", "c"]).lock().unwrap());
    server.stop();
    eventually("the outage is known", SOON, || timed(|| locks.mutex("d").try_lock().unwrap_err()).1 < ms(500));
    let ended = locks.shutdown(Duration::ZERO).unwrap();
    assert_eq!(ended.given_up, ["a", "b", "c"]);
    server.cont();
    eventually("the releases are executed before the leases end", SOON / 2, || server.keys().is_empty());
    drop((mutex, several));
}

/// A majority has confirmed the release, and the client repeats it for the server that is down. The shutdown must not
/// wait for that server.
#[test]
fn a_server_that_is_away_holds_up_no_shutdown() {
    let rig = Rig::start(3);
    let locks = settings(rig.proxy_urls()).build().unwrap();
    let guard = locks.mutex(KEY).lease(SOON * 2).lock().unwrap();
    eventually("all servers have the key", SOON, || rig.holding(KEY) == 3);
    rig.proxies[2].refuse();
    guard.unlock().unwrap();
    let (ended, took) = timed(|| locks.shutdown(SOON));
    assert_eq!(ended, Ok(ShutdownReport::default()));
    assert!(took < SOON / 2, "the shutdown took {took:?}");
}

/// The grace is for holders. A release that no server confirms does not use it up.
#[test]
fn a_shutdown_without_a_holder_does_not_wait_for_its_grace() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let guard = locks.mutex("order:42").lock().unwrap();
    rig.servers[0].stop();
    drop(guard);
    let (ended, took) = timed(|| locks.shutdown(10 * SOON).unwrap());
    assert_eq!((ended.given_up, ended.unconfirmed), (Vec::<String>::new(), 1));
    assert!(took < 5 * SOON, "{took:?}");
    rig.servers[0].cont();
}
