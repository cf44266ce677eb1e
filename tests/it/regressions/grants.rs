use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{GuardSend, MutexGuard, Redlock};
use redlock_tests::{Stopwatch, eventually, poll};

use crate::handover::rig::{Rig, SLACK, SOON, ms, this_thread, until_asleep};

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

/// Threads of one client hand their lease to each other. A lease that its holder extended beyond the next thread's
/// setting must not be handed over.
#[test]
fn a_lock_that_was_extended_is_not_handed_on_as_it_is() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let lock = locks.mutex("order:42").lease(ms(4000));
    let held = lock.lock().unwrap();
    held.extend(Duration::from_secs(60)).unwrap();
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            say.send(this_thread()).unwrap();
            let guard = lock.lock().unwrap();
            (guard.remaining(), guard.id().clone())
        });
        until_asleep(&said.recv().unwrap());
        let id = held.id().clone();
        held.unlock().unwrap();
        let (left, next_id) = next.join().unwrap();
        assert!(left <= ms(4000) && next_id != id, "{left:?} are left");
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
        eventually("the wait is in the queue", SOON, || server.ask(redis::cmd("EXISTS").arg("{other}:waits")));
        for fenced in [false, true] {
            let held = holder.mutex("k").lock().unwrap();
            let over = scope.spawn(|| k.lock().unwrap().unlock());
            let mut left: Vec<String> = Vec::new();
            eventually("the wait is in the queue", SOON, || {
                left = server.ask(redis::cmd("ZRANGE").arg(queue).arg(0).arg(-1));
                !left.is_empty()
            });
            held.unlock().unwrap();
            over.join().unwrap().unwrap();
            let channel = left[0].split('/').next().unwrap();
            let held = holder.mutex("k").fenced(fenced).lock().unwrap();
            for (i, wait) in [left[0].clone(), format!("{channel}/0"), format!("{channel}/1000000")].iter().enumerate()
            {
                server.ask::<usize>(redis::cmd("ZADD").arg(queue).arg(i).arg(wait));
            }
            held.unlock().unwrap();
            rig.client().mutex("k").try_lock_for(ms(5000)).expect("an ended wait got the lock").unlock().unwrap();
        }
        other.unlock().unwrap();
        listens.join().unwrap().unwrap();
    });
}
