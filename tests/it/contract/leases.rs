//! The lease of a guard: with and without renewals, extended, and limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Event, LeaseState, LostReason, Mutex, Redlock};
use redlock_tests::{Proxy, Stopwatch, eventually};

use super::rig::{SOON, brisk, calls, locks_on, ms, short, through, watched};
use crate::kinds::{Kind, each_kind};
use crate::observer::Calls;
use crate::place::{Place, each_kind_and_place};

/// A lease that a busy machine renews in time, and that is short enough for several renewals in one test.
const LEASE: Duration = ms(1200);

fn hasty(proxy: &Proxy, lease: Duration) -> Redlock {
    short(lease).node(proxy.url()).build().unwrap()
}

/// Holds the lock on this number of nodes for two and a half leases. Checks the guard and a majority of the nodes
/// throughout.
fn held_for_some_leases<K: Kind, P: Place>(nodes: usize) {
    let servers = P::start(nodes);
    let guard = K::new(&P::client(&servers, short(P::LEASE)), "order:42").lock().unwrap();
    for step in 0..50 {
        guard.check().unwrap_or_else(|error| panic!("on {nodes} node(s) in step {step}: {error}"));
        assert!(guard.remaining() <= P::LEASE);
        let held =
            servers.iter().filter(|server| K::token(*server, "order:42").as_deref() == Some(guard.id().as_str()));
        assert!(held.count() > nodes / 2);
        servers[0].pass(P::LEASE / 20);
    }
    assert_eq!(guard.state(), LeaseState::Held);
    K::unlock(guard).unwrap();
    assert!(servers.iter().all(|server| locks_on(server).is_empty()));
}

fn renewal_outlasts_the_lease<K: Kind, P: Place>() {
    let on = |nodes| thread::spawn(move || held_for_some_leases::<K, P>(nodes));
    for thread in [1, 3, 5].map(on) {
        thread.join().unwrap();
    }
}

/// The client renews the lease each time a third of it has passed. It neither sends more renewals than that, nor waits
/// until the lease nearly ends.
fn renewal_is_due_at_a_third<K: Kind>() {
    let (_server, proxy) = watched();
    let locks = hasty(&proxy, LEASE);
    let guard = K::new(&locks, "order:42").lock().unwrap();
    proxy.wait_count("extend", 3, SOON);
    guard.check().unwrap();
    let seen: Vec<_> = proxy.seen().into_iter().filter(|seen| seen.name == "extend").map(|seen| seen.at).collect();
    let gaps = seen.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| gap > LEASE / 6), "{:?}", gaps.collect::<Vec<_>>());
    K::unlock(guard).unwrap();
    let after = proxy.count("extend");
    thread::sleep(LEASE);
    assert_eq!(proxy.count("extend"), after, "renewed after the release");
}

/// `check` reports the loss before another client can take the key.
fn the_loss_is_told_before_the_key_is_gone<K: Kind, P: Place>() {
    let server = P::one();
    let guard = K::new(&brisk(&server), "order:42").renew(false).lock().unwrap();
    loop {
        let alive = K::token(&server, "order:42").is_some();
        let ok = guard.check().is_ok();
        // The test looks at the key before it calls `check`, so it would notice a late report.
        assert!(alive || !ok, "the key is gone, but check() returned Ok");
        if !alive {
            break;
        }
        server.pass(P::LEASE / 1000);
    }
}

fn extend_lengthens_and_never_shortens<K: Kind, P: Place>() {
    let server = P::one();
    let guard = K::new(&brisk(&server), "order:42").renew(false).lock().unwrap();
    guard.extend(20 * P::LEASE).unwrap();
    let long = 10 * P::LEASE;
    assert!(guard.remaining() > long && server.pttl("order:42").unwrap() > long);
    guard.extend(P::LEASE).unwrap();
    assert!(guard.remaining() > long && server.pttl("order:42").unwrap() > long);
    K::unlock(guard).unwrap();
    assert!(locks_on(&server).is_empty());
}

/// Renewals do not shorten a longer lease.
fn an_extension_stays_through_renewals<K: Kind>() {
    let (server, proxy) = watched();
    let guard = K::new(&hasty(&proxy, ms(600)), "order:42").lock().unwrap();
    guard.extend(Duration::from_secs(30)).unwrap();
    proxy.wait_count("extend", 3, SOON);
    assert!(server.pttl("order:42").unwrap() > Duration::from_secs(5));
    assert!(guard.remaining() > Duration::from_secs(5));
}

fn remaining_goes_down<K: Kind>() {
    let (_server, proxy) = watched();
    let guard = K::new(&through(&proxy), "order:42").lock().unwrap();
    let first = guard.remaining();
    thread::sleep(ms(20));
    let second = guard.remaining();
    assert!(first <= Duration::from_secs(30) && second + ms(20) <= first, "{first:?}, {second:?}");
    assert_eq!(guard.state(), LeaseState::Held);
}

fn min_hold_keeps_the_lock_taken<K: Kind, P: Place>() {
    let server = P::one();
    let (one, two) = (brisk(&server), brisk(&server));
    let hold = ms(500);
    let start = Stopwatch::start();
    let guard = K::new(&one, "order:42").min_hold(hold).lock().unwrap();
    K::unlock(guard).unwrap();
    let next = K::new(&two, "order:42").try_lock_for(SOON).unwrap();
    assert!(start.elapsed() >= ms(495), "another client took the lock after {:?}", start.elapsed());
    K::unlock(next).unwrap();
    let long = P::LEASE * 9 / 10;
    K::unlock(K::new(&one, "order:42").min_hold(long).lock().unwrap()).unwrap();
    let left = K::new(&two, "order:42").inspect().unwrap().unwrap().remaining.unwrap();
    assert!(left <= long, "{left:?}");
}

/// If a hold lasted longer than its minimum, then `unlock` releases the lock at once.
fn min_hold_adds_nothing_to_a_longer_hold<K: Kind, P: Place>() {
    let server = P::one();
    let guard = K::new(&brisk(&server), "order:42").min_hold(ms(20)).lock().unwrap();
    server.pass(ms(30));
    K::unlock(guard).unwrap();
    assert!(locks_on(&server).is_empty());
}

fn max_renewals_ends_renewal<K: Kind>() {
    let (_server, proxy) = watched();
    let start = Instant::now();
    let renewed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&renewed);
    let observer = move |event: &Event<'_>| {
        _ = count.fetch_add(usize::from(matches!(event, Event::Renewed { .. })), Ordering::SeqCst);
    };
    let settings = short(LEASE).node(proxy.url()).observer(Calls(observer));
    let guard = K::new(&settings.build().unwrap(), "order:42").max_renewals(2).lock().unwrap();
    eventually("the renewals are used up", SOON, || guard.check().is_err());
    assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::MaxHold));
    // On a busy machine, the client may send a renewal again if its reply is late. Only confirmed renewals count.
    assert_eq!(renewed.load(Ordering::SeqCst), 2);
    assert!(start.elapsed() > LEASE + LEASE / 2, "{:?}", start.elapsed());
}

/// Between two renewals, a held lock sends nothing.
#[test]
fn an_idle_holder_sends_only_renewals() {
    let (_server, proxy) = watched();
    let guard = <Mutex as Kind>::new(&through(&proxy), "order:42").lock().unwrap();
    let before = calls(&proxy);
    thread::sleep(ms(300));
    guard.check().unwrap();
    assert_eq!(calls(&proxy), before);
}

each_kind_and_place!(single: min_hold_keeps_the_lock_taken, min_hold_adds_nothing_to_a_longer_hold);

each_kind_and_place!(every:
    renewal_outlasts_the_lease,
    the_loss_is_told_before_the_key_is_gone,
    extend_lengthens_and_never_shortens,
);

each_kind!(
    renewal_is_due_at_a_third,
    an_extension_stays_through_renewals,
    remaining_goes_down,
    max_renewals_ends_renewal
);
