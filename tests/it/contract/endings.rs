//! How holds end: `on_lost`, `unlock_all`, `shutdown`, and the errors of a release.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use redlock_sync::{Error, Lease, LeaseState, LostReason, Retry};
use redlock_tests::{Act, Proxy, eventually};

use super::rig::{SOON, brisk, locks_on, ms, open, through, watched};
use crate::kinds::{Kind, each_kind};
use crate::place::{Place, each_kind_and_place};

/// Registers an `on_lost` handler that counts its calls.
fn counter(lease: &Lease) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    lease.on_lost(move |error| {
        assert!(error.is_lost());
        count.fetch_add(1, Ordering::SeqCst);
    });
    calls
}

fn on_lost_is_called_once<K: Kind, P: Place>() {
    let server = P::one();
    let locks = brisk(&server);
    let guard = K::new(&locks, "order:42").lock().unwrap();
    let calls = counter(&guard);
    server.del("order:42");
    server.until("the handler is called", || calls.load(Ordering::SeqCst) > 0);
    assert!(guard.check().unwrap_err().is_lost());
    let late = counter(&guard);
    assert_eq!(late.load(Ordering::SeqCst), 1, "a handler registered after the loss was not called at once");
    assert!(K::unlock(guard).unwrap_err().is_lost());
    server.pass(P::LEASE / 10);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(late.load(Ordering::SeqCst), 1);
}

fn on_lost_is_not_called_for_a_release<K: Kind, P: Place>() {
    let server = P::one();
    let locks = brisk(&server);
    let calls = [true, false].map(|by_unlock| {
        let guard = K::new(&locks, "order:42").lock().unwrap();
        let calls = counter(&guard);
        if by_unlock {
            K::unlock(guard).unwrap();
        } else {
            drop(guard);
        }
        calls
    });
    locks.unlock_all().unwrap();
    server.pass(P::LEASE * 5 / 4);
    assert!(calls.iter().all(|calls| calls.load(Ordering::SeqCst) == 0));
}

/// A panic in a handler does not stop the other handlers, or the renewal of other guards.
fn a_handler_may_panic<K: Kind, P: Place>() {
    let server = P::one();
    let locks = brisk(&server);
    let (guard, other) = (K::new(&locks, "a").lock().unwrap(), K::new(&locks, "b").lock().unwrap());
    guard.on_lost(|_| panic!("on purpose"));
    let calls = counter(&guard);
    server.del("a");
    server.until("the second handler is called", || calls.load(Ordering::SeqCst) == 1);
    server.pass(P::LEASE * 5 / 4);
    other.check().unwrap();
}

/// A shutdown gives up a lock whose holder does not end within the grace period. It does not count a lock that was
/// released before.
fn a_shutdown_waits_for_holders<K: Kind, P: Place>() {
    let server = P::one();
    let locks = open(std::slice::from_ref(&server));
    let stuck = K::new(&locks, "stuck").lock().unwrap();
    let finished = K::new(&locks, "finished").lock().unwrap();
    K::unlock(finished).unwrap();
    let calls = counter(&stuck);
    assert_eq!(locks.shutdown(ms(30)).unwrap().given_up, ["stuck"]);
    assert!(locks_on(&server).is_empty());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(K::unlock(stuck).unwrap_err().lost_reason(), Some(LostReason::Revoked));
    assert_eq!(K::new(&locks, "stuck").try_lock().map(drop), Err(Error::Closed));
}

fn unlock_all_gives_up_all<K: Kind, P: Place>() {
    let server = P::one();
    let locks = open(std::slice::from_ref(&server));
    let stranger = K::new(&open(std::slice::from_ref(&server)), "c").lock().unwrap();
    let guards = ["a", "b"].map(|key| K::new(&locks, key).lock().unwrap());
    let calls = counter(&guards[0]);
    assert_eq!(locks.unlock_all().unwrap().given_up.len(), 2);
    assert_eq!(locks_on(&server), ["c"]);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(locks.unlock_all().unwrap().given_up.len(), 0);
    for guard in guards {
        assert_eq!(guard.state(), LeaseState::Lost(LostReason::Revoked));
        assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
        assert_eq!(K::unlock(guard).unwrap_err().lost_reason(), Some(LostReason::Revoked));
    }
    stranger.check().unwrap();
    K::unlock(K::new(&locks, "a").lock().unwrap()).unwrap();
}

/// The release of a guard that lost its lock does not change the next holder's key.
fn a_late_release_leaves_the_next_holder_alone<K: Kind, P: Place>() {
    let server = P::one();
    let guard = K::new(&open(std::slice::from_ref(&server)), "order:42").lock().unwrap();
    K::give(&server, "order:42", "another holder");
    let Err(Error::Lost { key, reason }) = K::unlock(guard) else { panic!() };
    assert_eq!((key.as_str(), reason), ("order:42", LostReason::Taken));
    assert_eq!(K::token(&server, "order:42").as_deref(), Some("another holder"));
}

fn a_release_of_a_deleted_key_says_so<K: Kind, P: Place>() {
    let server = P::one();
    let guard = K::new(&open(std::slice::from_ref(&server)), "order:42").lock().unwrap();
    server.del("order:42");
    assert_eq!(K::unlock(guard).unwrap_err().lost_reason(), Some(LostReason::Deleted));
}

/// The first release goes to a broken connection. The server executes the second one, but its reply is lost. The third
/// one finds the next holder's token. `unlock` must report success, not a loss.
fn a_release_that_was_done_is_no_loss_though_another_holds_it_since<K: Kind>() {
    let (server, proxy) = watched();
    let guard = K::new(&through(&proxy), "order:42").lock().unwrap();
    let side = Proxy::start(&server);
    let next = K::new(&through(&side), "order:42").retry(Retry::every(ms(1)));
    let next = thread::spawn(move || {
        let guard = next.lock().unwrap();
        let id = guard.id().clone();
        std::mem::forget(guard);
        id
    });
    side.wait_count("acquire", 2, SOON);
    proxy.drop_connections();
    proxy.on("release", Act::ResetAfter);
    K::unlock(guard).unwrap();
    let id = next.join().unwrap();
    assert_eq!(server.get("order:42").as_deref(), Some(id.as_str()));
}

/// A guard keeps its lease renewed after its client was dropped.
fn a_guard_outlives_its_client<K: Kind, P: Place>() {
    let server = P::one();
    let locks = brisk(&server);
    let guard = K::new(&locks, "order:42").lock().unwrap();
    drop(locks);
    for _ in 0..12 {
        server.pass(P::LEASE / 8);
        guard.check().unwrap();
    }
    K::unlock(guard).unwrap();
    assert!(locks_on(&server).is_empty());
}

fn fault_29_a_panic_releases<K: Kind, P: Place>() {
    let server = P::one();
    let lock = K::new(&open(std::slice::from_ref(&server)), "order:42");
    let panics = {
        let lock = lock.clone();
        thread::spawn(move || {
            let _guard = lock.lock().unwrap();
            panic!("on purpose");
        })
    };
    assert!(panics.join().is_err());
    eventually("the lock is free", SOON, || locks_on(&server).is_empty());
    K::unlock(lock.try_lock_for(SOON).unwrap()).unwrap();
}

each_kind_and_place!(every:
    on_lost_is_called_once,
    on_lost_is_not_called_for_a_release,
    a_handler_may_panic,
    a_shutdown_waits_for_holders,
    unlock_all_gives_up_all,
    a_late_release_leaves_the_next_holder_alone,
    a_release_of_a_deleted_key_says_so,
    a_guard_outlives_its_client,
    fault_29_a_panic_releases,
);

each_kind!(a_release_that_was_done_is_no_loss_though_another_holds_it_since);
