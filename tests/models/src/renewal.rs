//! Models of the threads that renew leases, with real leases on one server: `lease/renewal.rs`. Each lease is renewed
//! when that is due, and not before. Time passes only where a model says so.

use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread;

use crate::leases::Rig;
use crate::options::LockOptions;
use crate::queue::all;
use crate::world;

/// Leases that are renewed after shorter and longer times than the sleeps of a thread. One of these times is longer
/// than an idle thread stays.
const LEASES: [Duration; 4] =
    [Duration::from_millis(60), Duration::from_millis(2700), Duration::from_millis(7500), Duration::from_secs(36)];

/// A lease that outlasts all other times here.
const LONGEST: Duration = Duration::from_secs(120);

/// A time that is longer than a thread stays without a guard.
const LONG: Duration = Duration::from_secs(11);

fn with(lease: Duration) -> LockOptions {
    LockOptions { lease, ..LockOptions::default() }
}

/// A lease of any length.
fn any() -> LockOptions {
    with(LEASES[thread_rng().gen_range(0..LEASES.len())])
}

/// The end of a model.
fn end(rig: Rig, unreleased: usize) {
    rig.assert_no_early_renewals();
    rig.end(unreleased);
}

/// Guards exist one after the other on the same thread. Each lease is renewed when that is due, and nothing else lets
/// time pass.
pub fn one_after_the_other() {
    let rig = Rig::new(any());
    for _ in 0..3 {
        let mut guard = rig.with("key", any()).lock();
        for _ in 0..thread_rng().gen_range(0..3) {
            guard.renewed();
        }
        guard.end();
    }
    end(rig, 0);
}

/// Several guards exist at the same time, each with a renewal thread of its own. It may have had another lease before.
pub fn side_by_side() {
    let rig = Rig::new(with(LONGEST));
    let threads = ["a", "b"].map(|key| {
        let rig = rig.with(key, with(LONGEST));
        thread::spawn(move || {
            rig.lock().end();
            let mut guard = rig.lock();
            guard.renewed();
            guard.end();
        })
    });
    all(threads.into());
    end(rig, 0);
}

/// A guard ends while its renewal hangs. No other guard gets that thread in the meantime, so the next guard is renewed.
/// Nothing more is sent for the lease that ended.
pub fn ended_while_a_round_hangs() {
    let rig = Rig::new(with(LONGEST));
    let (second, third) = (rig.with("second", with(LONGEST)), rig.with("third", with(LONGEST)));
    let mut first = rig.lock();
    rig.server().hang_up_on(first.token());
    first.renewed();
    let ends = thread::spawn(move || first.end());
    let mut second = second.lock();
    second.renewed();
    rig.server().answer_all();
    // The first thread may or may not be idle by now.
    let mut third = third.lock();
    third.renewed();
    all(vec![ends]);
    second.end();
    third.end();
    end(rig, 0);
}

/// A thread ends because it was idle for too long, while another guard takes it over. That guard is renewed, by this
/// thread or by another.
pub fn taken_over_while_it_ends() {
    let rig = Rig::new(with(LONGEST));
    rig.lock().end();
    let time = thread::spawn(|| {
        world::pass(LONG);
        world::pass(LONG);
    });
    let mut guard = rig.lock();
    guard.renewed();
    guard.end();
    time.join().unwrap();
    end(rig, 0);
}

/// The threads end by themselves when there are no guards. The client does not end.
pub fn idle_threads_end() {
    let rig = Rig::new(any());
    let other = rig.with("other", with(Duration::from_secs(3)));
    let other = thread::spawn(move || other.lock().end());
    rig.lock().end();
    other.join().unwrap();
    while *world::alive().count.lock() > 0 {
        world::pass(LONG);
        thread::yield_now();
    }
    end(rig, 0);
}

/// The client ends while one thread is idle, one sleeps for a guard, and one is in a round. A fourth thread is about to
/// start or to be taken over. All of them end without any time passing.
pub fn the_client_ends() {
    let rig = Rig::new(with(Duration::from_secs(3)));
    let long = |key| rig.with(key, with(LONGEST));
    let mut working = rig.lock();
    rig.server().hang_up_on(working.token());
    working.renewed();
    let sleeping = long("sleeping").lock();
    long("idle").lock().end();
    let newcomer = long("newcomer");
    let newcomer = thread::spawn(move || newcomer.lock().end());
    let closes = rig.spawn(|rig| rig.leases.renewer.close());
    let working = thread::spawn(move || working.end());
    sleeping.end();
    rig.server().answer_all();
    all(vec![working, newcomer, closes]);
    world::until_all_threads_ended();
    end(rig, 0);
}

/// A lease is lost while its guard exists. Its thread plans no more rounds, stays with the guard, and serves the next
/// guard.
pub fn lost_before_its_guard_ends() {
    let rig = Rig::new(any());
    let mut guard = rig.lock();
    rig.server().delete_key();
    guard.renewed();
    guard.end();
    let mut next = rig.with("key", any()).lock();
    next.renewed();
    next.end();
    end(rig, 1);
}
