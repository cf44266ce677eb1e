//! A granted lock has the settings of the waiter.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{GuardSend, MutexGuard, Redlock};
use redlock_tests::{Stopwatch, eventually, poll};

use super::rig::{Rig, SLACK, SOON, ms};

/// The settings of a waiter.
#[derive(Debug, Clone, Copy)]
struct Settings {
    lease: Duration,
    renew: bool,
    max_renewals: Option<u32>,
    max_hold: Option<Duration>,
    min_hold: Duration,
}

/// All combinations of the settings.
fn combinations() -> impl Iterator<Item = Settings> {
    let leases = [ms(500), ms(4000), Duration::from_secs(30), Duration::from_secs(90)];
    (0..leases.len() << 4).map(move |bits| {
        let is = |bit: usize| bits >> bit & 1 == 1;
        let lease = leases[bits >> 4];
        Settings {
            lease,
            renew: !is(0),
            max_renewals: is(1).then_some(0),
            max_hold: is(2).then_some(ms(450)),
            min_hold: if is(3) { ms(300) } else { Duration::ZERO },
        }
    })
}

impl Settings {
    /// The longest lease that may remain just after the grant.
    fn longest(self) -> Duration {
        self.max_hold.map_or(self.lease, |max| max.min(self.lease))
    }

    fn ends_by_itself(self) -> bool {
        !self.renew || self.max_renewals.is_some() || self.max_hold.is_some()
    }
}

/// Waits behind a holder with the default lease, and gets the lock by a grant.
fn granted(rig: &Rig, locks: &Redlock, key: &str, wanted: Settings) -> MutexGuard<GuardSend> {
    let held = rig.client().mutex(key).lock().unwrap();
    let mut lock = locks.mutex(key).lease(wanted.lease).renew(wanted.renew).min_hold(wanted.min_hold);
    if let Some(max) = wanted.max_renewals {
        lock = lock.max_renewals(max);
    }
    if let Some(max) = wanted.max_hold {
        lock = lock.max_hold(max);
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().into_send());
        let waiting = format!("{{{key}}}:waits");
        eventually("the wait is in the queue", SOON, || rig.servers[0].ask(redis::cmd("EXISTS").arg(&waiting)));
        held.unlock().unwrap();
        waiter.join().unwrap()
    })
}

fn has_its_own_settings(rig: &Rig, locks: &Redlock, key: &str, wanted: Settings) {
    let guard = granted(rig, locks, key, wanted);
    let (since, left) = (Stopwatch::start(), guard.remaining());
    let kept = rig.servers[0].pttl(key).unwrap_or_default();
    let longest = wanted.longest();
    assert!(left <= longest && kept <= longest, "{left:?} are left, {kept:?} on the server, with {wanted:?}");
    // The lease is at least as long as one whose renewal is due.
    let least = (wanted.lease * 2 / 3).saturating_sub(wanted.lease / 50 + SLACK).min(longest);
    assert!(left >= least || wanted.max_hold.is_some(), "only {left:?} are left with {wanted:?}");
    if wanted.ends_by_itself() && longest <= ms(500) {
        poll(SOON, || guard.check().err()).unwrap_or_else(|| panic!("never lost with {wanted:?}"));
        assert!(since.elapsed() < longest + SLACK, "lost after {:?} with {wanted:?}", since.elapsed());
    } else if wanted.lease == ms(4000) && !wanted.ends_by_itself() {
        // The client renews the lease to its own length.
        let until = Instant::now() + guard.remaining();
        eventually("the lease is renewed", SOON, || Instant::now() + guard.remaining() > until + ms(100));
        assert!(guard.remaining() <= longest, "{:?} with {wanted:?}", guard.state());
    }
}

#[test]
fn a_granted_lock_has_the_settings_of_the_waiter_in_every_combination() {
    let rig = Rig::start(1);
    let all: Vec<_> = combinations().collect();
    assert_eq!(all.len(), 64);
    for (nth, batch) in all.chunks(8).enumerate() {
        let locks = Redlock::builder().nodes(rig.urls()).node_timeout(ms(400)).build().unwrap();
        thread::scope(|scope| {
            for (i, wanted) in batch.iter().enumerate() {
                let (rig, locks) = (&rig, &locks);
                scope.spawn(move || has_its_own_settings(rig, locks, &format!("k{nth}:{i}"), *wanted));
            }
        });
    }
}
