//! Jobs with other kinds of lock than mutexes: read-write locks, semaphores, latches and multi-locks.

use std::thread;
use std::time::Duration;

use redlock_sync::{MultiLockGuard, RwLockWriteGuard};

use super::job::{Guard, Lock, Wait, nanos};
use super::styles::Play;
use super::terms::Terms;
use crate::clock::now;
use crate::event::{Op, Outcome, UNKNOWN, What};
use crate::names::{self, ACCOUNT, CROWD, LATCH, PERMIT, PERMITS, READ, SEVERAL, WRITE};
use crate::timing::{LATCH_LIFE, LATCH_ROUND, LONGEST_LEASE, TIMEOUT, WORKERS};

const MS: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(LONGEST_LEASE);
/// The time limit of a call to a latch. It is `unavailable_after`, in which no majority answers, and up to three round
/// trips for each check.
const LATCH_LIMIT: u64 = 2_000_000_000 + 4 * TIMEOUT;

impl Play<'_> {
    /// Makes one job on the lock of this session.
    pub(super) fn of_its_kind(&mut self) {
        match self.job.key {
            SEVERAL => self.several(),
            LATCH => self.latch(),
            key => self.alone(key),
        }
    }

    fn alone(&mut self, key: usize) {
        let terms = Terms::any(self.lease(), self.random);
        let name = names::of(key);
        let lock = match key {
            PERMIT.. => {
                let most = PERMITS[key - PERMIT];
                // Some clients use one permit less. While the numbers differ, the larger one is the bound.
                let permits = if key > PERMIT && self.random.bool() { most - 1 } else { most };
                let many = if self.nodes == 1 && self.random.u8(..4) == 0 { 2 } else { 1 };
                Lock::Semaphore(terms.semaphore(self.locks.semaphore(name, permits)), many)
            }
            WRITE.. => Lock::Writer(terms.rw_lock(self.locks.rw_lock(name))),
            _ => Lock::Reader(terms.rw_lock(self.locks.rw_lock(name))),
        };
        let wait = match self.random.u8(..10) {
            0 => Wait::No,
            1 => Wait::Forever,
            _ => Wait::For(self.millis(20, 1500)),
        };
        let Ok(guard) = self.job.take(&lock, terms.wants(), wait) else { return };
        if let Guard::Permit(permit) = &guard {
            self.job.note(What::Slots { slots: permit.slots().iter().fold(0, |slots, slot| slots | 1 << slot) });
        }
        // Some holds last longer than the lease.
        let length = if self.random.u8(..8) == 0 { terms.lease.mul_f64(1.6) } else { self.millis(0, 40) };
        let end = now() + nanos(length);
        if self.random.u8(..4) == 0 {
            self.job.fence(&guard);
        }
        while self.job.check(&guard) && now() < end {
            let pause = self.millis(1, 8);
            thread::sleep(pause);
            if self.random.u8(..30) == 0 {
                self.job.extend(&guard, terms.lease);
            }
        }
        match guard {
            Guard::Writer(writer) if self.random.u8(..5) == 0 => self.downgrade(writer, &terms, key - WRITE + READ),
            guard => self.give_up(guard),
        }
    }

    /// Turns the writer into a reader, which has a session of its own.
    fn downgrade(&mut self, writer: RwLockWriteGuard, terms: &Terms, key: usize) {
        let pause = self.millis(0, 30);
        self.job.note(What::Call { op: Op::Drop, limit: 3 * TIMEOUT });
        let reader = writer.downgrade();
        self.job.note(What::Return { op: Op::Drop, outcome: Outcome::Ok });
        let Ok(reader) = reader else { return };
        let part = self.job.part(0, key);
        part.note(What::Wants(terms.wants()));
        part.held(&reader);
        part.check(&reader);
        thread::sleep(pause);
        part.check(&reader);
        part.unlock(Guard::Reader(reader));
    }

    /// Arrives at the current latch, checks it, or waits for it.
    fn latch(&mut self) {
        let from = now();
        let number = from / LATCH_ROUND;
        let latch = self.locks.count_down_latch(names::latch(number), WORKERS.into()).lifetime(LATCH_LIFE);
        let is_open = match self.random.u8(..4) {
            0 | 1 => {
                let worker = self.random.u8(..WORKERS);
                self.job.note(What::Arrives { latch: number, worker });
                _ = self.job.call(Op::Arrive, LATCH_LIMIT, || latch.count_down_as(&worker.to_string()));
                return;
            }
            2 => self.job.call(Op::Look, 4 * TIMEOUT, || latch.is_open()).ok(),
            _ => {
                let wait = self.millis(20, 800);
                let waited = self.job.call(Op::Await, nanos(wait) + 4 * TIMEOUT, || latch.wait_for(wait));
                waited.ok().map(|()| true)
            }
        };
        if let Some(is_open) = is_open {
            self.job.note(What::Saw { latch: number, from, is_open });
        }
    }

    /// Acquires two or three of the mutexes at once. Each key is a session of its own, so the checkers judge it like
    /// any mutex.
    fn several(&mut self) {
        let mut keys: Vec<usize> = (ACCOUNT..CROWD).collect();
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.usize(2..=3));
        // If a hold ends because of its settings and its lease is long, one key can be held without the others.
        let terms = match self.random.u8(..3) {
            0 => Terms::fixed(LONGEST),
            1 => Terms::bounded(self.lease(), self.random),
            _ => Terms::plain(self.lease()),
        };
        let lock = terms.several(self.locks.multi_lock(keys.iter().map(|&key| names::of(key))));
        // The wait is short, because the keys that the call holds in this time belong to no session.
        let wait = self.millis(0, 300);
        let limit = nanos(wait) + 3 * TIMEOUT;
        let Ok(guard) = self.job.call(Op::TryLockFor, limit, || lock.try_lock_for(wait)) else { return };
        let keys: Vec<usize> =
            guard.keys().filter_map(|name| (ACCOUNT..CROWD).find(|&key| names::of(key) == name)).collect();
        self.job.note(What::Wants(terms.wants()));
        self.job.note(What::Held { token: UNKNOWN.to_owned() });
        for (nth, (&key, lease)) in keys.iter().zip(guard.leases()).enumerate() {
            let part = self.job.part(nth, key);
            part.note(What::Wants(terms.wants()));
            part.held(lease);
        }
        self.hold_several(&guard, &keys, &terms);
        self.give_up_several(guard, &keys);
    }

    /// Checks the multi-lock and each of its keys. Goes on for a while after one of them was lost.
    fn hold_several(&mut self, guard: &MultiLockGuard, keys: &[usize], terms: &Terms) {
        let is_to_end = terms.wants().renewals == 0 || self.random.u8(..4) == 0;
        let length = if is_to_end { terms.lease.mul_f64(1.2) } else { self.millis(0, 30) };
        let mut end = now() + nanos(length);
        let mut is_lost = false;
        loop {
            let at = now();
            let until = guard.check().is_ok().then(|| at + nanos(guard.remaining()));
            self.job.log.note_at(at, self.job.session, SEVERAL, What::Check { until });
            for (nth, (&key, lease)) in keys.iter().zip(guard.leases()).enumerate() {
                let at = now();
                // A key counts as held only while all keys are held. What its own lease promises beyond that does not
                // count.
                let until = lease.check().is_ok().then(|| until.unwrap_or(at));
                self.job.log.note_at(at, self.job.part(nth, key).session, key, What::Check { until });
            }
            if until.is_none() && !std::mem::replace(&mut is_lost, true) {
                // The hold goes on for long enough that a renewal of a key would show.
                end = now() + nanos(terms.lease.mul_f64(0.5)) + nanos(700 * MS);
            }
            if now() >= end {
                return;
            }
            if self.random.u8(..if is_lost { 4 } else { 30 }) == 0
                && let Some(first) = guard.leases().next()
            {
                // The other keys end before this one. Once one of them is lost, this one no longer counts.
                self.job.part(0, keys[0]).extend(first, terms.lease);
            }
            let pause = self.millis(1, 15);
            thread::sleep(pause);
        }
    }

    /// Releases the multi-lock. The outcome of the call is about the whole multi-lock, so each key is logged as
    /// dropped.
    fn give_up_several(&mut self, guard: MultiLockGuard, keys: &[usize]) {
        // The limit has five node timeouts, and one for each key whose lease has ended.
        let limit = (6 + 2 * keys.len() as u64) * TIMEOUT;
        for (nth, &key) in keys.iter().enumerate() {
            self.job.part(nth, key).note(What::Call { op: Op::Drop, limit });
        }
        if self.random.u8(..3) == 0 {
            _ = self.job.call(Op::Drop, limit, || {
                drop(guard);
                Ok(())
            });
        } else {
            _ = self.job.call(Op::Unlock, limit, || guard.unlock());
        }
        for (nth, &key) in keys.iter().enumerate() {
            let part = self.job.part(nth, key);
            part.note(What::Return { op: Op::Drop, outcome: Outcome::Ok });
        }
    }
}
