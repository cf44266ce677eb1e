//! Renewals, and the faults that disturb them.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{LeaseState, LostReason};
use redlock_tests::{Act, Proxy, Stopwatch, eventually, poll};

use crate::faults::rig::{
    KEY, LEASE, MORE_SLACK, NODE_TIMEOUT, Rig, SOON, err, exists, for_sizes, lost, ms, stays, timed,
};
use crate::kinds::{Kind, each_kind};

fn loading() -> Act {
    Act::Error("LOADING the server reads its data".into())
}

fn fault_24_renewals_that_fail_are_tried_again<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        let guard = K::new(&rig.through(), KEY).lease(LEASE).lock().unwrap();
        let faults: Vec<_> = rig.proxies.iter().map(|proxy| proxy.on_each("extend", loading())).collect();
        eventually("a renewal has failed", SOON, || guard.state() == LeaseState::Suspended);
        guard.check().unwrap();
        // The client repeats a failed renewal several times within the rest of the lease, not once per interval.
        faults[0].wait_hits(3, SOON);
        guard.check().unwrap();
        faults.iter().for_each(redlock_tests::Fault::release);
        eventually("a renewal has succeeded", SOON, || guard.state() == LeaseState::Held);
        assert!(guard.remaining() > LEASE / 2, "{:?}", guard.remaining());
        K::unlock(guard).unwrap();
    });
}

fn fault_24_lost_only_at_the_own_deadline<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        let guard = K::new(&rig.through(), KEY).lease(LEASE).lock().unwrap();
        rig.proxies.iter().for_each(|proxy| _ = proxy.on_each("extend", loading()));
        let deadline = Instant::now() + guard.remaining();
        eventually("a renewal has failed", SOON, || guard.state() == LeaseState::Suspended);
        let (reason, at) = lost(&guard);
        assert_eq!(reason, LostReason::Unreachable);
        assert!(at + ms(20) > deadline, "lost {:?} too early", deadline - at);
        assert!(at < deadline + MORE_SLACK, "lost {:?} too late", at - deadline);
        let sent = rig.sent_for(guard.id().as_str());
        assert!(sent.iter().all(|seen| seen.name == "acquire" || seen.name == "extend"), "{sent:?}");
    });
}

fn fault_25_a_handler_that_panics_does_no_harm<K: Kind>() {
    for_sizes(&[1], |rig| {
        let locks = rig.through();
        let guard = K::new(&locks, KEY).lease(LEASE).lock().unwrap();
        let (tell, told) = mpsc::channel();
        guard.on_lost(|_| panic!("this panic is part of the test"));
        guard.on_lost(move |error| tell.send((error, thread::current().id())).unwrap());
        rig.servers[0].del(KEY);
        // Only the renewal thread contacts the servers here, so it must find the loss.
        let (error, on) = told.recv_timeout(SOON).unwrap();
        assert_eq!(error.lost_reason(), Some(LostReason::Deleted));
        assert_ne!(on, thread::current().id());
        assert_eq!(err(guard.check()).lost_reason(), Some(LostReason::Deleted));
        assert_eq!(err(K::unlock(guard)).lost_reason(), Some(LostReason::Deleted));
        // The renewal thread continues with the next guard.
        let guard = K::new(&locks, KEY).lease(LEASE).lock().unwrap();
        rig.proxies[0].clear_log();
        rig.proxies[0].wait_count("extend", 2, SOON);
        guard.check().unwrap();
        K::unlock(guard).unwrap();
    });
}

fn fault_25_a_handler_that_blocks_keeps_no_thread_waiting<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.through();
        let guard = K::new(&locks, KEY).lease(LEASE).lock().unwrap();
        let (blocked, is_blocked) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        guard.on_lost(move |_| {
            blocked.send(()).unwrap();
            _ = gone.recv();
        });
        rig.servers.iter().for_each(|server| _ = server.del(KEY));
        is_blocked.recv_timeout(SOON).unwrap();
        let (checked, took) = timed(|| guard.check());
        assert_eq!(err(checked).lost_reason(), Some(LostReason::Deleted));
        assert!(took < ms(500), "{took:?}");
        let (unlocked, took) = timed(|| K::unlock(guard));
        assert_eq!(err(unlocked).lost_reason(), Some(LostReason::Deleted));
        assert!(took < ms(600), "{took:?}");
        // The client renews other guards in other threads.
        let guard = K::new(&locks, KEY).lease(LEASE).lock().unwrap();
        rig.proxies[0].clear_log();
        rig.proxies[0].wait_count("extend", 2, SOON);
        guard.check().unwrap();
        K::unlock(guard).unwrap();
        drop(go);
    });
}

/// Calls `check` until the lock is lost. Whenever the key has ended on the servers, `check` must already report the
/// loss.
fn watch(guard: &redlock_sync::Lease, is_gone: impl Fn() -> bool) -> LostReason {
    let gone_and_ok = || {
        let gone = is_gone();
        let checked = guard.check();
        assert!(!gone || checked.is_err(), "the key was gone, but check() returned Ok");
        checked.err().map(|error| error.lost_reason().unwrap())
    };
    poll(SOON, gone_and_ok).expect("the lock is never lost")
}

fn fault_25_check_needs_no_renewal_thread<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let guard = K::new(&rig.through(), KEY).lease(LEASE).renew(false).lock().unwrap();
        let deadline = Instant::now() + guard.remaining();
        let gone = || rig.majority().iter().any(|server| !exists(server, KEY));
        assert_eq!(watch(&guard, gone), LostReason::Expired);
        let now = Instant::now();
        assert!(now + ms(20) > deadline && now < deadline + MORE_SLACK, "{deadline:?} {now:?}");
        assert_eq!((guard.state(), guard.remaining()), (LeaseState::Lost(LostReason::Expired), Duration::ZERO));
        assert!(guard.extend(LEASE).unwrap_err().is_lost());
        assert!(guard.fencing_token().unwrap_err().is_lost());
        eventually("the keys expire", SOON, || rig.holding(KEY) == 0);
        assert_eq!(K::unlock(guard).unwrap_err().lost_reason(), Some(LostReason::Expired));
        assert!(rig.proxies.iter().all(|proxy| proxy.count("extend") == 0));
    });
}

fn fault_25_check_is_right_while_the_renewal_thread_is_stuck<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        // The node timeout is longer than the rest of the lease at the start of the renewal.
        let locks = rig.builder().node_timeout(ms(1300)).lease(ms(1500)).build().unwrap();
        let guard = K::new(&locks, KEY).lock().unwrap();
        let deadline = Instant::now() + guard.remaining();
        rig.proxies.iter().for_each(Proxy::black_hole);
        rig.proxies[0].wait_count("extend", 1, SOON);
        let gone = || rig.majority().iter().any(|server| !exists(server, KEY));
        let (reason, took) = timed(|| watch(&guard, gone));
        assert!(matches!(reason, LostReason::Expired | LostReason::Unreachable), "{reason:?}");
        assert!(Instant::now() < deadline + ms(200), "{took:?}");
        rig.heal();
    });
}

fn fault_26_nothing_is_sent_after_unlock_returned<K: Kind>() {
    let acts = [Act::Hold, Act::HoldReply, Act::Delay(NODE_TIMEOUT * 4 / 3)];
    thread::scope(|scope| {
        for act in acts {
            scope.spawn(move || for_sizes(&[1, 3, 5], |rig| unlock_beside_a_late_extend::<K>(rig, &act)));
        }
    });
}

fn unlock_beside_a_late_extend<K: Kind>(rig: &Rig, act: &Act) {
    let guard = K::new(&rig.through(), KEY).lease(LEASE).lock().unwrap();
    let token = guard.id().as_str().to_owned();
    // This call makes the servers load the script. Otherwise the client would send the script again at the end of the
    // round, and no thread would wait for that call.
    guard.extend(LEASE).unwrap();
    let fault = rig.proxies[0].on("extend", act.clone());
    fault.wait_hit(SOON);
    let (unlocked, took) = timed(|| K::unlock(guard));
    let returned = Instant::now();
    unlocked.unwrap();
    assert!(took < 2 * NODE_TIMEOUT + MORE_SLACK, "{took:?}");
    // With three nodes, the release may skip the node that did not answer. The lock is free all the same.
    assert!(rig.holding(KEY) <= rig.spare(), "{act:?}");
    fault.release();
    stays("the late extend does not set the key again", ms(400), || rig.holding(KEY) <= rig.spare());
    rig.other_client().mutex(KEY).try_lock().unwrap().unlock().unwrap();
    let late = rig.sent_after(&token, returned);
    assert!(late.is_empty(), "{act:?}: {late:?}");
}

fn fault_26_renewals_race_releases<K: Kind>() {
    const ROUNDS: usize = 12;
    for_sizes(&[1, 3, 5], |rig| {
        let locks = rig.builder().node_timeout(ms(300)).lease(ms(450)).build().unwrap();
        let race = |thread: usize| {
            let key = format!("race:{thread}");
            let lock = K::new(&locks, &key);
            let mut ended = Vec::new();
            let start = Instant::now();
            // On a busy machine such a short lease can expire, or a reply can come too late. Then `unlock` fails, and
            // the round does not count.
            for round in (0..ROUNDS).cycle() {
                if ended.len() == ROUNDS || start.elapsed() > SOON {
                    break;
                }
                let guard = lock.lock().unwrap();
                let token = guard.id().as_str().to_owned();
                // The renewal is due after 150 ms. The rounds unlock shortly before, at the same time, and shortly
                // after.
                let held = ms(149) + Duration::from_micros(300) * u32::try_from(round).unwrap();
                let until = Instant::now() + held;
                while Instant::now() < until {
                    thread::yield_now();
                    thread::sleep(Duration::from_micros(50));
                }
                if K::unlock(guard).is_ok() {
                    ended.push((token, Instant::now()));
                    assert!(rig.holding(&key) <= rig.spare());
                }
            }
            ended
        };
        let ended: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|i| (i, &race)).map(|(i, race)| scope.spawn(move || race(i))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ended.len() >= ROUNDS, "the machine is too busy: {} rounds", ended.len());
        assert!(rig.proxies[0].count("extend") > 0, "no renewal took part in the race");
        stays("no key comes back", ms(200), || (0..3).all(|i| rig.holding(&format!("race:{i}")) <= rig.spare()));
        for (token, returned) in ended {
            let late = rig.sent_after(&token, returned);
            assert!(late.is_empty(), "{late:?}");
        }
    });
}

fn fault_27_max_hold_ends_a_holder_that_hangs<K: Kind>() {
    const HOLD: Duration = ms(6000);
    for_sizes(&[1, 3], |rig| {
        let guard = K::new(&rig.through(), KEY).lease(LEASE).max_hold(HOLD).lock().unwrap();
        let start = Stopwatch::start();
        let next = K::new(&rig.other_client(), KEY).lock().unwrap();
        let took = start.elapsed();
        assert!(took > LEASE + ms(500), "the renewals ended after only {took:?}");
        assert!(took < HOLD + MORE_SLACK, "{took:?}");
        assert_eq!(err(guard.check()).lost_reason(), Some(LostReason::MaxHold));
        assert_eq!(err(K::unlock(guard)).lost_reason(), Some(LostReason::MaxHold));
        next.check().unwrap();
        assert!(rig.is_held_by(KEY, next.id().as_str()), "the next holder's key was touched");
        K::unlock(next).unwrap();
    });
}

each_kind!(all:
    fault_24_renewals_that_fail_are_tried_again,
    fault_24_lost_only_at_the_own_deadline,
    fault_25_a_handler_that_panics_does_no_harm,
    fault_25_a_handler_that_blocks_keeps_no_thread_waiting,
    fault_25_check_needs_no_renewal_thread,
    fault_25_check_is_right_while_the_renewal_thread_is_stuck,
    fault_26_nothing_is_sent_after_unlock_returned,
    fault_26_renewals_race_releases,
    fault_27_max_hold_ends_a_holder_that_hangs,
);
