//! Features of each kind of lock, including readers and several permits, which have several holders at a time. The
//! tests use one node in memory, and three if the kind works there.
//!
//! Guards that change threads (`into_send`) and forked processes (`kind_09_…`) have separate tests for each kind.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlock_sync::testing::Memory;
use redlock_sync::{Error, Event, LostReason, Observer, Redlock};

use crate::kinds::{Kind, at_once, every_kind, kinds_of};

const LEASE: Duration = Duration::from_secs(30);
const KEY: &str = "order:42";

/// Two clients of the same nodes in memory. Their time passes only when the test advances it.
fn rig(nodes: usize) -> (Memory, Redlock, Redlock) {
    let memory = Memory::new(nodes);
    let client = || memory.build(settings()).unwrap();
    let (one, other) = (client(), client());
    (memory, one, other)
}

fn settings() -> redlock_sync::Builder {
    Redlock::builder().lease(LEASE).node_timeout(Duration::from_secs(5))
}

fn on_each<K: Kind>(test: impl Fn(&Memory, &Redlock, &Redlock)) {
    for nodes in K::NODES {
        let (memory, one, other) = rig(*nodes);
        test(&memory, &one, &other);
    }
}

fn reason<K: Kind>(guard: &K::Guard) -> Option<LostReason> {
    guard.check().unwrap_err().lost_reason()
}

fn inspect_shows_the_holder<K: Kind>() {
    on_each::<K>(|_, one, other| {
        assert_eq!(K::new(other, KEY).inspect().unwrap(), None);
        let guard = K::new(one, KEY).holder_name("me").lock().unwrap();
        let holder = K::new(other, KEY).inspect().unwrap().unwrap();
        assert_eq!((&holder.id, holder.id.holder_name()), (guard.id(), "me"));
        assert!(holder.remaining.is_some_and(|left| left <= LEASE));
        K::unlock(guard).unwrap();
        assert_eq!(K::new(other, KEY).inspect().unwrap(), None);
    });
}

fn without_renewal_the_lease_ends<K: Kind>() {
    on_each::<K>(|memory, one, other| {
        let (renewed, not) = (K::new(one, "renewed").lock().unwrap(), K::new(one, KEY).renew(false).lock().unwrap());
        memory.advance(LEASE / 2);
        not.check().unwrap();
        assert!(not.remaining() <= LEASE / 2 && K::new(other, KEY).is_locked().unwrap());
        memory.advance(LEASE / 2);
        renewed.check().unwrap();
        assert_eq!(reason::<K>(&not), Some(LostReason::Expired));
        assert!(K::new(other, "renewed").is_locked().unwrap());
        memory.advance(Duration::from_millis(1));
        K::unlock(K::new(other, KEY).try_lock().unwrap()).unwrap();
    });
}

fn a_longest_hold_ends<K: Kind>() {
    on_each::<K>(|memory, one, other| {
        let guard = K::new(one, KEY).max_hold(2 * LEASE).lock().unwrap();
        for _ in 0..3 {
            memory.advance(LEASE / 2);
            guard.check().unwrap();
        }
        memory.advance(LEASE / 2);
        assert_eq!(reason::<K>(&guard), Some(LostReason::MaxHold));
        memory.advance(LEASE / 2);
        assert!(!K::new(other, KEY).is_locked().unwrap());
    });
}

/// A multi-lock has no minimum hold, so this test does not cover it.
fn a_minimum_hold_outlasts_the_guard<K: Kind>() {
    on_each::<K>(|memory, one, other| {
        K::unlock(K::new(one, KEY).min_hold(LEASE / 2).lock().unwrap()).unwrap();
        assert!(K::new(other, KEY).is_locked().unwrap());
        memory.advance(LEASE / 2);
        assert!(!K::new(other, KEY).is_locked().unwrap());
    });
}

fn the_end_of_a_client_gives_it_up<K: Kind>() {
    on_each::<K>(|_, one, other| {
        let guard = K::new(one, KEY).lock().unwrap();
        assert_eq!(one.unlock_all().unwrap().given_up.len(), 1);
        assert_eq!(reason::<K>(&guard), Some(LostReason::Revoked));
        assert!(!K::new(other, KEY).is_locked().unwrap());
        drop(guard);
        let guard = K::new(one, KEY).lock().unwrap();
        assert_eq!(one.shutdown(Duration::ZERO).unwrap().given_up.len(), 1);
        assert!(guard.check().is_err() && !K::new(other, KEY).is_locked().unwrap());
        assert_eq!(K::new(one, "another").lock().err(), Some(Error::Closed));
    });
}

/// Records the events of one lock.
#[derive(Default)]
struct Told(Mutex<Vec<&'static str>>);

impl Observer for Told {
    fn event(&self, event: &Event<'_>) {
        let (lock, what) = match *event {
            Event::Wanted { lock, .. } => (lock, "wanted"),
            Event::Acquired { lock, .. } => (lock, "acquired"),
            Event::Renewed { lock, .. } => (lock, "renewed"),
            Event::Lost { lock, .. } => (lock, "lost"),
            Event::Released { lock, .. } => (lock, "released"),
            _ => return,
        };
        assert_eq!(lock.key, KEY);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

fn observers_are_told<K: Kind>() {
    for nodes in K::NODES {
        let (memory, told) = (Memory::new(*nodes), Arc::new(Told::default()));
        let locks = memory.build(settings().observer(Arc::clone(&told))).unwrap();
        let guard = K::new(&locks, KEY).lock().unwrap();
        memory.advance(LEASE / 2);
        K::unlock(guard).unwrap();
        let guard = K::new(&locks, KEY).lock().unwrap();
        memory.lose(KEY);
        memory.advance(LEASE / 2);
        assert_eq!(reason::<K>(&guard), Some(LostReason::Deleted));
        assert!(K::unlock(guard).unwrap_err().is_lost());
        let told = told.0.lock().unwrap().clone();
        assert_eq!(told, ["wanted", "acquired", "renewed", "released", "wanted", "acquired", "lost"]);
    }
}

every_kind!(held:
    inspect_shows_the_holder,
    without_renewal_the_lease_ends,
    a_longest_hold_ends,
    the_end_of_a_client_gives_it_up,
    observers_are_told,
);

#[test]
fn a_minimum_hold_outlasts_the_guard_of_each_kind_that_has_one() {
    use crate::kinds::{Pair, Reader};
    at_once(&kinds_of!(single, a_minimum_hold_outlasts_the_guard));
    a_minimum_hold_outlasts_the_guard::<Pair>();
    a_minimum_hold_outlasts_the_guard::<Reader>();
}
