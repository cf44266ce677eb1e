//! Models of the threads that renew leases: `lease/renewal.rs`.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::counted_lease::inner::LeaseInner;
use crate::counted_lease::renewal::{RenewalThread, Renewer};
use crate::sync::Mutex;
use crate::world::{self, ModelClock};

/// Renewal intervals that are shorter and longer than the sleeps of a thread. One is longer than an idle thread stays.
const INTERVALS: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(900), Duration::from_millis(2500), Duration::from_secs(12)];

/// A time that is longer than a thread stays without a guard.
const LONG: Duration = Duration::from_secs(11);

fn interval() -> Duration {
    INTERVALS[thread_rng().gen_range(0..INTERVALS.len())]
}

/// The renewal threads of one client, and those of them that belong to a guard.
#[derive(Clone)]
struct Client {
    renewer: Arc<Renewer>,
    with_guard: Arc<Mutex<Vec<Arc<RenewalThread>>>>,
}

/// The part of a guard that deals with renewal.
struct Guard {
    client: Client,
    inner: Arc<LeaseInner>,
    worker: Arc<RenewalThread>,
    rounds: u32,
}

impl Client {
    fn new() -> Client {
        Client { renewer: Renewer::new(Arc::new(ModelClock)), with_guard: Arc::new(Mutex::new(Vec::new())) }
    }

    fn guard(&self, inner: Arc<LeaseInner>) -> Guard {
        let worker = self.renewer.assign(&inner).unwrap();
        let mut with_guard = self.with_guard.lock();
        assert!(!with_guard.iter().any(|other| Arc::ptr_eq(other, &worker)), "two guards have the same thread");
        with_guard.push(Arc::clone(&worker));
        drop(with_guard);
        Guard { client: self.clone(), inner, worker, rounds: 0 }
    }

    fn close(&self) {
        self.renewer.close();
        world::until_all_threads_ended();
    }
}

impl Guard {
    /// Lets time pass until the next renewal is due, and no further. Waits until the renewal has been made.
    fn renewed(&mut self) {
        world::pass_until(self.inner.due());
        self.rounds += 1;
        self.inner.until_rounds(self.rounds);
    }

    /// Ends the renewal, as a guard does before its release.
    fn retire(self) -> Arc<LeaseInner> {
        self.client.with_guard.lock().retain(|other| !Arc::ptr_eq(other, &self.worker));
        self.client.renewer.retire(&self.worker, world::now());
        self.inner.retired();
        self.inner
    }

    fn end(self) {
        self.retire().end();
    }
}

/// Guards exist one after the other on the same thread. Each lease is renewed when that is due, and nothing else lets
/// time pass.
pub fn one_after_the_other() {
    let client = Client::new();
    for _ in 0..3 {
        let mut guard = client.guard(LeaseInner::every(interval()));
        for _ in 0..thread_rng().gen_range(0..3) {
            guard.renewed();
        }
        guard.end();
    }
    client.close();
}

/// Several guards exist at the same time, each with a renewal thread of its own.
pub fn side_by_side() {
    let client = Client::new();
    let threads = [2, 2].map(|guards| {
        let client = client.clone();
        thread::spawn(move || {
            for _ in 0..guards {
                let mut guard = client.guard(LeaseInner::every(interval()));
                guard.renewed();
                guard.end();
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    client.close();
}

/// A guard ends while its renewal hangs. No other guard gets that thread in the meantime, so the next guard is renewed.
/// Nothing more is sent for the lease that ended.
pub fn ended_while_a_round_hangs() {
    let client = Client::new();
    let inner = LeaseInner::new(world::now(), Duration::from_millis(20));
    inner.server.set_silent(true);
    let first = client.guard(inner).retire();
    let mut second = client.guard(LeaseInner::every(interval()));
    second.renewed();
    first.server.set_silent(false);
    first.end();
    // The first thread may or may not be idle by now.
    let mut third = client.guard(LeaseInner::every(interval()));
    third.renewed();
    second.end();
    third.end();
    client.close();
}

/// A thread ends because it was idle for too long, while another guard takes it over. That guard is renewed, by this
/// thread or by another.
pub fn taken_over_while_it_ends() {
    let client = Client::new();
    client.guard(LeaseInner::every(interval())).end();
    let time = thread::spawn(|| {
        world::pass(LONG);
        world::pass(LONG);
    });
    let mut guard = client.guard(LeaseInner::every(interval()));
    guard.renewed();
    guard.end();
    time.join().unwrap();
    client.close();
}

/// The threads end by themselves when there are no guards. The client does not end.
pub fn idle_threads_end() {
    let client = Client::new();
    let other = {
        let client = client.clone();
        thread::spawn(move || client.guard(LeaseInner::new(world::now(), Duration::from_secs(1))).end())
    };
    client.guard(LeaseInner::every(interval())).end();
    other.join().unwrap();
    while *world::alive().count.lock() > 0 {
        world::pass(LONG);
        thread::yield_now();
    }
}

/// The client ends while one thread is idle, one sleeps for a guard, and one is in a round. A fourth thread is about to
/// start or to be taken over. All of them end without any time passing.
pub fn the_client_ends() {
    let client = Client::new();
    let inner = LeaseInner::new(world::now(), Duration::from_secs(1));
    inner.server.set_silent(true);
    let working = client.guard(inner);
    let sleeping = client.guard(LeaseInner::every(Duration::from_secs(12)));
    client.guard(LeaseInner::every(Duration::from_secs(12))).end();
    let newcomer = {
        let client = client.clone();
        thread::spawn(move || client.guard(LeaseInner::every(Duration::from_secs(12))).end())
    };
    let end = thread::spawn({
        let renewer = Arc::clone(&client.renewer);
        move || renewer.close()
    });
    let working = working.retire();
    sleeping.end();
    working.server.set_silent(false);
    working.end();
    newcomer.join().unwrap();
    end.join().unwrap();
    world::until_all_threads_ended();
}

/// A lease is lost while its guard exists. Its thread plans no more rounds, stays with the guard, and serves the next
/// guard.
pub fn lost_before_its_guard_ends() {
    let client = Client::new();
    let guard = client.guard(LeaseInner::every(interval()));
    guard.inner.end();
    world::pass_until(guard.inner.due());
    guard.retire();
    let mut next = client.guard(LeaseInner::every(interval()));
    next.renewed();
    next.end();
    client.close();
}
