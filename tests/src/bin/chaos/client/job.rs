//! One acquire of a lock and the work under it. Each step is logged.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use redlock_sync::{
    Error, Lease, Mutex, MutexGuard, ReentrantMutex, ReentrantMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    Semaphore, SemaphorePermit,
};

use super::log::Log;
use super::store::Store;
use crate::clock::now;
use crate::event::{Op, Outcome, Session, Wants, What};
use crate::timing::TIMEOUT;

/// The way in which a thread waits for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    Forever,
    No,
    For(Duration),
}

pub(super) enum Lock {
    Mutex(Mutex),
    Reentrant(ReentrantMutex),
    Reader(RwLock),
    Writer(RwLock),
    /// A semaphore, and the number of permits to acquire at once.
    Semaphore(Semaphore, u32),
}

pub(super) enum Guard {
    Mutex(MutexGuard),
    Reentrant(ReentrantMutexGuard),
    Reader(RwLockReadGuard),
    Writer(RwLockWriteGuard),
    Permit(SemaphorePermit),
}

impl Lock {
    pub(super) fn take(&self, wait: Wait) -> Result<Guard, Error> {
        Ok(match (self, wait) {
            (Lock::Mutex(lock), Wait::Forever) => Guard::Mutex(lock.lock()?),
            (Lock::Mutex(lock), Wait::No) => Guard::Mutex(lock.try_lock()?),
            (Lock::Mutex(lock), Wait::For(time)) => Guard::Mutex(lock.try_lock_for(time)?),
            (Lock::Reentrant(lock), Wait::Forever) => Guard::Reentrant(lock.lock()?),
            (Lock::Reentrant(lock), Wait::No) => Guard::Reentrant(lock.try_lock()?),
            (Lock::Reentrant(lock), Wait::For(time)) => Guard::Reentrant(lock.try_lock_for(time)?),
            (Lock::Reader(lock), Wait::Forever) => Guard::Reader(lock.read()?),
            (Lock::Reader(lock), Wait::No) => Guard::Reader(lock.try_read()?),
            (Lock::Reader(lock), Wait::For(time)) => Guard::Reader(lock.try_read_for(time)?),
            (Lock::Writer(lock), Wait::Forever) => Guard::Writer(lock.write()?),
            (Lock::Writer(lock), Wait::No) => Guard::Writer(lock.try_write()?),
            (Lock::Writer(lock), Wait::For(time)) => Guard::Writer(lock.try_write_for(time)?),
            (Lock::Semaphore(lock, many), Wait::Forever) => Guard::Permit(lock.acquire_many(*many)?),
            (Lock::Semaphore(lock, many), Wait::No) => Guard::Permit(lock.try_acquire_many(*many)?),
            (Lock::Semaphore(lock, many), Wait::For(time)) => Guard::Permit(lock.try_acquire_many_for(*many, time)?),
        })
    }
}

impl Guard {
    fn unlock(self) -> Result<(), Error> {
        match self {
            Guard::Mutex(guard) => guard.unlock(),
            Guard::Reentrant(guard) => guard.unlock().map(drop),
            Guard::Reader(guard) => guard.unlock().map(drop),
            Guard::Writer(guard) => guard.unlock().map(drop),
            Guard::Permit(permit) => permit.release(),
        }
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Guard::Mutex(guard) => guard,
            Guard::Reentrant(guard) => guard,
            Guard::Reader(guard) => guard,
            Guard::Writer(guard) => guard,
            Guard::Permit(permit) => permit,
        }
    }
}

pub(super) fn outcome<T>(result: &Result<T, Error>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(Error::Busy { .. }) => Outcome::Busy,
        Err(Error::Unavailable { .. }) => Outcome::Unavailable,
        Err(Error::Lost { .. }) => Outcome::Lost,
        Err(Error::Unconfirmed { .. }) => Outcome::Unconfirmed,
        Err(Error::Config { .. }) => Outcome::Config,
        Err(Error::WouldDeadlock { .. }) => Outcome::Deadlock,
        Err(Error::WrongType { .. }) => Outcome::WrongType,
        Err(Error::Closed) => Outcome::Closed,
        Err(_) => Outcome::Other,
    }
}

/// A session under way.
pub(super) struct Job<'a> {
    pub(super) log: &'a Arc<Log>,
    pub(super) store: &'a mut Store,
    pub(super) session: Session,
    pub(super) key: usize,
}

impl Job<'_> {
    /// The job of one key of a multi-lock.
    pub(super) fn part(&mut self, nth: usize, key: usize) -> Job<'_> {
        let session = self.session.part(nth);
        Job { log: self.log, store: &mut *self.store, session, key }
    }

    pub(super) fn note(&self, what: What) {
        self.log.note(self.session, self.key, what);
    }

    /// Makes a call and logs it. Its limit is in ns.
    pub(super) fn call<T>(&self, op: Op, limit: u64, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.note(What::Call { op, limit });
        let result = work();
        self.note(What::Return { op, outcome: outcome(&result) });
        result
    }

    pub(super) fn take(&self, lock: &Lock, wants: Wants, wait: Wait) -> Result<Guard, Error> {
        self.note(What::Wants(wants));
        let (op, limit) = match wait {
            Wait::Forever => (Op::Lock, u64::MAX),
            Wait::No => (Op::TryLock, TIMEOUT),
            Wait::For(time) => (Op::TryLockFor, nanos(time) + TIMEOUT),
        };
        let guard = self.call(op, limit, || lock.take(wait))?;
        self.held(&guard);
        Ok(guard)
    }

    /// Logs that the lock is held, and later that it was lost.
    pub(super) fn held(&self, lease: &Lease) {
        held(self.log, self.session, self.key, lease);
    }

    /// Calls `check()`, and logs until when the library claims the lock.
    pub(super) fn check(&self, lease: &Lease) -> bool {
        check(self.log, self.session, self.key, lease)
    }

    pub(super) fn fence(&self, lease: &Lease) -> Option<u64> {
        // The limit covers a round trip under way, and two round trips of the call itself.
        let fence = self.call(Op::Fence, 4 * TIMEOUT, || lease.fencing_token()).ok()?;
        self.note(What::Number { fence });
        Some(fence)
    }

    pub(super) fn extend(&self, lease: &Lease, by: Duration) {
        _ = self.call(Op::Extend, 3 * TIMEOUT, || lease.extend(by));
    }

    /// Writes to the store with this fencing token, whether or not the lock is still held. The store must refuse late
    /// writes.
    pub(super) fn put(&mut self, fence: u64) {
        self.store.write(self.session, self.key, fence);
    }

    pub(super) fn unlock(&self, guard: Guard) {
        // The limit covers a round trip under way, and the round trip of the call itself.
        _ = self.call(Op::Unlock, 3 * TIMEOUT, || guard.unlock());
    }

    /// Drops the guard. The drop ends within one node timeout and has no result.
    pub(super) fn drop(&self, guard: Guard) {
        _ = self.call(Op::Drop, TIMEOUT, || {
            drop(guard);
            Ok(())
        });
    }
}

/// Works like [`Job::held`], without a job.
pub(super) fn held(log: &Arc<Log>, session: Session, key: usize, lease: &Lease) {
    log.note(session, key, What::Held { token: lease.id().as_str().to_owned() });
    let log = Arc::clone(log);
    lease.on_lost(move |_| log.note(session, key, What::Told));
}

/// Works like [`Job::check`], without a job.
pub(super) fn check(log: &Log, session: Session, key: usize, lease: &Lease) -> bool {
    let at = now();
    // The time is taken before the check. If the process stops in between, the log claims a shorter time and never a
    // longer one.
    let until = lease.check().is_ok().then(|| at + nanos(lease.remaining()));
    log.note_at(at, session, key, What::Check { until });
    until.is_some()
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
