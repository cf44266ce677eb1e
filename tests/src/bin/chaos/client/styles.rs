//! The styles of jobs. A style is drawn at random for each job.

use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Lease, Redlock, distributed_lock};

use super::job::{Job, Lock, Wait, nanos, outcome};
use super::terms::Terms;
use crate::clock::now;
use crate::event::{Op, Outcome, UNKNOWN, Wants, What};
use crate::names;
use crate::timing::{LEASES, SLOW_LEASES, TIMEOUT};

const MS: Duration = Duration::from_millis(1);
/// The lease of the annotated function.
const ATTRIBUTE_LEASE: Duration = Duration::from_millis(1500);

/// The lease of most threads. Threads with equal settings can hand a lock over unchanged.
const COMMON: Duration = Duration::from_millis(LEASES[1]);

/// The lease of jobs that hold a lock until its lease ends.
const SHORTEST: Duration = Duration::from_millis(LEASES[0]);

/// A job, and the data that its steps need.
pub(super) struct Play<'a> {
    pub(super) job: Job<'a>,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) locks: &'a Redlock,
    pub(super) nodes: usize,
}

impl Play<'_> {
    /// Makes one job in a random style on the lock of this session.
    pub(super) fn any(&mut self) {
        let lease = self.lease();
        let style = self.random.u8(..100);
        let wait = match style % 10 {
            0 => Wait::No,
            1 => Wait::Forever,
            _ => Wait::For(self.millis(20, 2500)),
        };
        let terms = Terms::any(lease, self.random);
        match style {
            0..61 => self.short(&terms, wait),
            61..74 => self.nested(&terms, wait),
            74..81 => self.until_lost(&Terms::fixed(SHORTEST), wait),
            81..84 => {
                let terms = Terms::bounded(SHORTEST, self.random);
                self.until_lost(&terms, wait);
            }
            84..88 => self.long(&terms, wait),
            88..90 => self.sleepy(&Terms::fixed(lease), wait),
            _ => self.attribute(),
        }
    }

    /// Makes a job in a crowd: many threads that acquire locks at the same time, with a deadline. Most of them use the
    /// same settings.
    pub(super) fn in_a_crowd(&mut self, deadline: Duration) {
        let terms = match self.random.u8(..4) {
            0 => Terms::any(self.lease(), self.random),
            _ => Terms::plain(COMMON),
        };
        let Ok(guard) = self.take(&terms, Wait::For(deadline)) else { return };
        let work = self.millis(0, 3);
        thread::sleep(work);
        self.job.check(&guard);
        self.give_up(guard);
    }

    /// Makes a short hold of a slow lock. Some of its leases are longer than a whole storm.
    pub(super) fn slow(&mut self) {
        // The largest of three draws makes long leases more likely.
        let lease = (0..3).map(|_| self.random.usize(..SLOW_LEASES.len())).max().unwrap_or(0);
        let lease = Duration::from_millis(SLOW_LEASES[lease]);
        let terms = Terms::any(lease, self.random);
        let wait = if self.random.u8(..4) == 0 { Wait::No } else { Wait::For(self.millis(20, 1500)) };
        let Ok(guard) = self.take(&terms, wait) else { return };
        self.job.check(&guard);
        let (renewals, most) = (terms.wants().renewals, 4 * nanos(SHORTEST));
        // If the settings of the hold end it soon, the job may hold until then. Otherwise it holds for a moment.
        let is_to_end = renewals == 0 && nanos(lease) < most && self.random.bool();
        let end = now() + if is_to_end { most } else { self.random.u64(..200) * nanos(MS) };
        while self.job.check(&guard) && now() < end {
            let pause = self.millis(5, 40);
            thread::sleep(pause);
        }
        self.give_up(guard);
    }

    /// Draws a lease. It is often the same one, because a lock is granted unchanged between threads with equal
    /// settings.
    pub(super) fn lease(&mut self) -> Duration {
        if self.random.u8(..5) < 2 {
            return COMMON;
        }
        let lease = self.random.usize(..LEASES.len()).min(self.random.usize(..LEASES.len()));
        Duration::from_millis(LEASES[lease])
    }

    pub(super) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.u64(least..most))
    }

    fn take(&self, terms: &Terms, wait: Wait) -> Result<super::job::Guard, Error> {
        let mutex = terms.mutex(self.locks.mutex(names::of(self.job.key)));
        self.job.take(&Lock::Mutex(mutex), terms.wants(), wait)
    }

    /// Releases the lock by `unlock()`, or by a drop of the guard.
    pub(super) fn give_up(&mut self, guard: super::job::Guard) {
        if self.random.u8(..3) == 0 {
            self.job.drop(guard);
        } else {
            self.job.unlock(guard);
        }
    }

    /// Acquires the lock, works, and releases the lock.
    fn short(&mut self, terms: &Terms, wait: Wait) {
        let Ok(guard) = self.take(terms, wait) else { return };
        self.work(&guard);
        self.give_up(guard);
    }

    /// Works for a moment, and usually writes to the store.
    fn work(&mut self, lease: &Lease) {
        if !self.job.check(lease) {
            return;
        }
        let work = self.millis(0, 8);
        thread::sleep(work);
        self.job.check(lease);
        if self.random.u8(..3) > 0
            && let Some(fence) = self.job.fence(lease)
            && self.job.check(lease)
        {
            self.job.put(fence);
        }
        self.job.check(lease);
    }

    /// Makes a hold within a hold.
    fn nested(&mut self, terms: &Terms, wait: Wait) {
        let lock = terms.reentrant(self.locks.reentrant_mutex(names::of(self.job.key)));
        let Ok(outer) = self.job.take(&Lock::Reentrant(lock.clone()), terms.wants(), wait) else { return };
        self.job.check(&outer);
        if let Ok(inner) = self.job.call(Op::Nested, TIMEOUT / 2, || lock.lock()) {
            self.work(&inner);
        }
        self.job.check(&outer);
        self.give_up(outer);
    }

    /// Holds until the settings of the hold end it.
    fn until_lost(&mut self, terms: &Terms, wait: Wait) {
        let Ok(guard) = self.take(terms, wait) else { return };
        let fence = if self.random.bool() { self.job.fence(&guard) } else { None };
        if terms.wants().renewals == 0 && self.random.u8(..4) == 0 {
            self.job.extend(&guard, SHORTEST);
        }
        // If the lock is not lost in time, the checkers report it. This thread must not wait for it forever.
        let end = now() + 4 * nanos(SHORTEST);
        while self.job.check(&guard) && now() < end {
            let pause = self.millis(2, 9);
            thread::sleep(pause);
        }
        if let Some(fence) = fence {
            self.job.put(fence);
        }
        self.job.unlock(guard);
    }

    /// Holds for about as long as the lease, or longer. The lease is renewed if the settings permit it.
    fn long(&mut self, terms: &Terms, wait: Wait) {
        let Ok(guard) = self.take(terms, wait) else { return };
        let fence = self.job.fence(&guard);
        // Some jobs hold for so long that the library must notice a lock that is gone from the servers.
        let more = if self.random.u8(..4) == 0 { nanos(1500 * MS) } else { 0 };
        let end = now() + nanos(terms.lease.mul_f64(0.3 + 1.5 * self.random.f64())) + more;
        while now() < end && self.job.check(&guard) {
            if let Some(fence) = fence
                && self.random.u8(..4) == 0
            {
                self.job.put(fence);
            }
            if self.random.u8(..30) == 0 {
                self.job.extend(&guard, terms.lease);
            }
            let pause = self.millis(3, 26);
            thread::sleep(pause);
        }
        self.job.check(&guard);
        self.give_up(guard);
    }

    /// Checks the lock, sleeps, and writes without a further check. Only the fencing token lets the store refuse the
    /// write.
    fn sleepy(&mut self, terms: &Terms, wait: Wait) {
        let Ok(guard) = self.take(terms, wait) else { return };
        if let Some(fence) = self.job.fence(&guard)
            && self.job.check(&guard)
        {
            thread::sleep(terms.lease.mul_f64(self.random.f64() * 1.6));
            self.job.put(fence);
            self.job.check(&guard);
        }
        self.job.unlock(guard);
    }

    /// Calls an annotated function. If it returns `Ok`, the library claims that it held the lock all the time.
    fn attribute(&mut self) {
        let work = self.millis(0, 8);
        self.job.note(What::Wants(Wants::plain(nanos(ATTRIBUTE_LEASE))));
        // The limit covers the wait, the lock, the work, and the release.
        let limit = nanos(200 * MS + work) + 5 * TIMEOUT;
        self.job.note(What::Call { op: Op::Attribute, limit });
        let mut inside = None;
        let key = self.job.key;
        let result = annotated(self.locks, &names::of(key), &mut || {
            self.job.note(What::Held { token: UNKNOWN.to_owned() });
            let entered = now();
            thread::sleep(work);
            inside = Some((entered, now()));
        });
        let result_is = if inside.is_none() && result.is_ok() { Outcome::Skipped } else { outcome(&result) };
        if let (Some((entered, left)), Ok(())) = (inside, &result) {
            self.job.log.note_at(entered, self.job.session, key, What::Check { until: Some(left) });
        }
        self.job.note(What::Return { op: Op::Attribute, outcome: result_is });
    }
}

#[distributed_lock("<name>", client = locks, lease = "1500ms", wait = "200ms", busy = skip, kind = mutex)]
fn annotated(locks: &Redlock, name: &str, body: &mut dyn FnMut()) -> Result<(), Error> {
    body();
    Ok(())
}
