//! The kinds of jobs, drawn at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Lease, Redlock, distributed_lock};

use super::Order;
use super::job::{Job, Lock, Wait, nanos, outcome};
use super::log::Log;
use super::resource::{Counter, Store};
use crate::clock::now;
use crate::event::{Op, Outcome, Session, UNKNOWN, What};
use crate::timing::{LEASES, TIMEOUT};

const MS: Duration = Duration::from_millis(1);
/// That of the annotated function.
const ATTRIBUTE_LEASE: Duration = Duration::from_millis(1500);

/// For those who hold until the end of their lease.
const SHORTEST: Duration = Duration::from_millis(LEASES[0]);

/// One thread of a client.
pub(super) struct Worker {
    locks: Redlock,
    log: Arc<Log>,
    counter: Counter,
    store: Store,
    random: fastrand::Rng,
    session: Session,
    keys: usize,
}

impl Worker {
    pub(super) fn new(order: &Order, thread: usize, locks: Redlock, log: &Arc<Log>) -> Self {
        let thread = u8::try_from(thread).expect("few threads");
        let session = Session { client: order.client, life: order.life, thread, number: 0 };
        let seed = order.seed ^ u64::from(order.client) << 40 ^ u64::from(order.life) << 48 ^ u64::from(thread) << 56;
        Worker {
            locks,
            log: Arc::clone(log),
            counter: Counter::open(&order.dir),
            store: Store::connect(order.store),
            random: fastrand::Rng::with_seed(seed),
            session,
            keys: order.keys,
        }
    }

    pub(super) fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.one();
            let pause = self.random.u64(..15);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    fn one(&mut self) {
        self.session.number += 1;
        let key = self.random.usize(..self.keys);
        let lease = LEASES[self.random.usize(..LEASES.len()).min(self.random.usize(..LEASES.len()))];
        let lease = Duration::from_millis(lease);
        let name = format!("k{key}");
        let style = self.random.u8(..100);
        let wait = match style % 10 {
            0 => Wait::No,
            1 => Wait::Forever,
            _ => Wait::For(Duration::from_millis(self.random.u64(20..2500))),
        };
        let mutex = self.locks.mutex(name.as_str()).lease(lease);
        let mut play = Play {
            job: Job {
                log: &self.log,
                counter: &self.counter,
                store: &mut self.store,
                session: self.session,
                key,
                lease,
                writes: 0,
            },
            random: &mut self.random,
        };
        match style {
            0..60 => play.short(&Lock::Mutex(mutex), wait),
            60..75 => play.nested(&self.locks, &name, wait),
            75..85 => play.until_lost(&Lock::Mutex(mutex.lease(SHORTEST).renew(false)), wait),
            85..88 => play.long(&Lock::Mutex(mutex), wait),
            88..91 => play.sleepy(&Lock::Mutex(mutex.renew(false)), wait),
            91..93 => play.short(&Lock::Mutex(mutex.at_least(lease / 4)), wait),
            93..94 => play.long(&Lock::Mutex(mutex.max_hold(lease)), wait),
            _ => play.attribute(&self.locks),
        }
    }
}

/// A job, and what it is drawn from.
struct Play<'a> {
    job: Job<'a>,
    random: &'a mut fastrand::Rng,
}

impl Play<'_> {
    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.u64(least..most))
    }

    /// In and out.
    fn short(&mut self, lock: &Lock, wait: Wait) {
        let Ok(guard) = self.job.take(lock, wait) else { return };
        self.work(&guard);
        self.job.unlock(guard);
    }

    /// The counter, and most times the store.
    fn work(&mut self, lease: &Lease) {
        if !self.job.check(lease) {
            return;
        }
        let work = self.millis(0, 8);
        self.job.count(lease, work);
        if self.random.u8(..3) > 0
            && let Some(fence) = self.job.fence(lease)
            && self.job.check(lease)
        {
            self.job.put(fence);
        }
        self.job.check(lease);
    }

    /// A hold within a hold.
    fn nested(&mut self, locks: &Redlock, name: &str, wait: Wait) {
        let lock = locks.reentrant_mutex(name).lease(self.job.lease);
        let Ok(outer) = self.job.take(&Lock::Reentrant(lock.clone()), wait) else { return };
        self.job.check(&outer);
        if let Ok(inner) = self.job.call(Op::Nested, TIMEOUT / 2, || lock.lock()) {
            self.work(&inner);
        }
        self.job.check(&outer);
        self.job.unlock(outer);
    }

    /// Holds without renewal until the lease has run out, or an extension of it.
    fn until_lost(&mut self, lock: &Lock, wait: Wait) {
        self.job.lease = SHORTEST;
        let Ok(guard) = self.job.take(lock, wait) else { return };
        self.job.note(What::Fixed);
        let fence = if self.random.bool() { self.job.fence(&guard) } else { None };
        if self.random.u8(..4) == 0 {
            self.job.extend(&guard, SHORTEST);
        }
        // A lock that is not lost in time is a finding; it must not keep this thread for ever.
        let end = now() + 4 * nanos(SHORTEST);
        while self.job.check(&guard) && now() < end {
            self.job.count(&guard, MS);
            let pause = self.millis(1, 8);
            thread::sleep(pause);
        }
        if let Some(fence) = fence {
            self.job.put(fence);
        }
        self.job.unlock(guard);
    }

    /// Holds for longer than the lease, which is renewed meanwhile.
    fn long(&mut self, lock: &Lock, wait: Wait) {
        let Ok(guard) = self.job.take(lock, wait) else { return };
        let fence = self.job.fence(&guard);
        let end = now() + nanos(self.job.lease.mul_f64(0.3 + 1.5 * self.random.f64()));
        while now() < end && self.job.check(&guard) {
            self.job.count(&guard, MS);
            if let Some(fence) = fence
                && self.random.u8(..4) == 0
            {
                self.job.put(fence);
            }
            if self.random.u8(..30) == 0 {
                self.job.extend(&guard, self.job.lease);
            }
            let pause = self.millis(2, 25);
            thread::sleep(pause);
        }
        self.job.check(&guard);
        self.job.unlock(guard);
    }

    /// Looks, falls asleep, and writes without looking again: only the store's fence keeps it out.
    fn sleepy(&mut self, lock: &Lock, wait: Wait) {
        let Ok(guard) = self.job.take(lock, wait) else { return };
        self.job.note(What::Fixed);
        if let Some(fence) = self.job.fence(&guard)
            && self.job.check(&guard)
        {
            thread::sleep(self.job.lease.mul_f64(self.random.f64() * 1.6));
            self.job.put(fence);
            self.job.check(&guard);
        }
        self.job.unlock(guard);
    }

    /// An annotated function. If it returns `Ok`, the library says that it was alone in there all the time.
    fn attribute(&mut self, locks: &Redlock) {
        let work = self.millis(0, 8);
        self.job.lease = ATTRIBUTE_LEASE;
        // It waits, takes the lock, does its work, and gives the lock up.
        let limit = nanos(200 * MS + work) + 5 * TIMEOUT;
        self.job.note(What::Call { op: Op::Attribute, limit, lease: nanos(ATTRIBUTE_LEASE) });
        let mut inside = None;
        let key = self.job.key;
        let result = annotated(locks, key, &mut || {
            self.job.note(What::Held { token: UNKNOWN.to_owned() });
            let entered = now();
            let wrote = self.job.count_bare(work);
            inside = Some((entered, wrote, now()));
        });
        let result_is = if inside.is_none() && result.is_ok() { Outcome::Skipped } else { outcome(&result) };
        if let (Some((entered, wrote, left)), Ok(())) = (inside, &result) {
            self.job.log.note_at(entered, self.job.session, key, What::Check { until: Some(left) });
            self.job.note(wrote);
        }
        self.job.note(What::Return { op: Op::Attribute, outcome: result_is });
        self.job.note(What::Over);
    }
}

#[distributed_lock("k<key>", client = locks, lease = "1500ms", wait = "200ms", busy = skip, kind = mutex)]
fn annotated(locks: &Redlock, key: usize, body: &mut dyn FnMut()) -> Result<(), Error> {
    body();
    Ok(())
}
