//! `close()` while others wait.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, LostReason, Retry};
use redlock_tests::eventually;

use super::rig::{KEY, Rig, SOON, for_sizes, ms, settings, timed};

/// Promptly, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(1);

/// The head of a queue blocked on the server, three threads behind it, one that waits for a program that never pushes, one that polls because no
/// connection is left, and a holder.
fn closes_all(rig: &Rig, connections: u32) {
    let other = rig.client();
    let theirs = other.mutex(KEY).lock().unwrap();
    rig.servers.iter().for_each(|server| server.set("foreign", "stranger"));
    let locks = settings(&rig.urls()).connections(connections).build().unwrap();
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
        let all_blocked = if connections == 1 { 1 } else { 2 };
        rig.until_blocked(0, all_blocked);
        // In the queue, or between two looks: neither shows from outside. A thread that is not in the queue yet is told so as well.
        eventually("the last one has been refused", SOON, || {
            rig.servers[0].ask::<bool>(redis::cmd("EXISTS").arg("{foreign}:queue"))
        });
        let start = Instant::now();
        let (closed, took) = timed(|| locks.close());
        assert_eq!(closed, Ok(1));
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
    // None of them waits any more, as far as the servers know: nothing is granted to them.
    theirs.unlock().unwrap();
    rig.assert_free_but(KEY, &["foreign"]);
    assert_eq!(rig.servers[0].get("foreign").as_deref(), Some("stranger"));
}

#[test]
fn close_ends_every_wait_and_gives_up_what_is_held() {
    for_sizes(&[1, 3], |rig| closes_all(rig, 16));
}

#[test]
fn close_ends_those_who_poll_too() {
    for_sizes(&[1, 3], |rig| closes_all(rig, 1));
}

/// Whatever the threads of the client are doing at that moment, none of them holds a lock after `close()` has returned.
#[test]
fn nobody_holds_a_lock_of_a_closed_client() {
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
                            }
                            Err(Error::Closed) => return,
                            Err(error) => assert!(error.is_busy(), "{error}"),
                        }
                    }
                });
            }
            // Now and then another client is in between, so that some wait for a grant.
            if round % 3 == 0 {
                drop(other.mutex(KEY).lock().unwrap());
            }
            eventually("they work", SOON, || taken.load(Ordering::Relaxed) > 20 + round % 7);
            locks.close().unwrap();
            is_closed.store(true, Ordering::SeqCst);
        });
        assert_eq!(rig.servers[0].get(KEY), None, "left in the end, in round {round}");
    }
}
