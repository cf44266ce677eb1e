//! A held lock that threads of one process share: which threads may join, and which one leaves last.
//!
//! A thread must not join while the last one releases the lock. And exactly one thread must be the last. The number of
//! threads and whether more may join are therefore one atomic number ([`HolderCount`]). A thread that joins sees the
//! gate open and is counted in one step. The last thread that leaves closes the gate in the step in which it leaves. A
//! gate that is closed while threads are in, because others want the lock exclusively, is never opened again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Tick;
use crate::options::{Kind, LockOptions};
use crate::sync::AtomicUsize;

/// After this time, or after [`JOINS_PER_CHECK`] threads, the next thread that joins asks the servers whether another
/// process is kept out.
const CHECK_EVERY: Duration = Duration::from_millis(20);
pub(super) const JOINS_PER_CHECK: u32 = 4096;

/// Twice the number of threads that hold the lease, plus 1 if more may join.
#[derive(Debug)]
pub(crate) struct HolderCount(AtomicUsize);

const OPEN: usize = 1;
const THREAD: usize = 2;

impl HolderCount {
    /// A closed gate, held by the thread that makes it.
    pub(crate) fn new() -> HolderCount {
        HolderCount(AtomicUsize::new(THREAD))
    }

    /// Lets more threads join. Only a thread that holds the lease may call it.
    pub(crate) fn open(&self) {
        // Pairs with `try_join`: a thread that joins sees all that was written before the gate was opened.
        self.0.fetch_or(OPEN, Ordering::AcqRel);
    }

    pub(crate) fn close(&self) {
        // Pairs with `try_join`: both are one step on the same number, so no thread joins after this.
        self.0.fetch_and(!OPEN, Ordering::AcqRel);
    }

    pub(crate) fn is_open(&self) -> bool {
        // Pairs with `close` and `leave`. A late value is allowed, since only `try_join` lets a thread in.
        self.0.load(Ordering::Acquire) & OPEN != 0
    }

    /// Counts one more thread; false if the gate is closed.
    pub(crate) fn try_join(&self) -> bool {
        let more = |state: usize| (state & OPEN != 0).then_some(state + THREAD);
        // Pairs with `open`, `close` and `leave`.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Counts one thread less. True if it was the last; then the gate is closed.
    pub(crate) fn leave(&self) -> bool {
        let is_last = |state: usize| state <= THREAD | OPEN;
        let less = |state: usize| Some(if is_last(state) { 0 } else { state - THREAD });
        // The last thread to leave sees the writes of all that left before. See also `try_join` and `is_open`.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok_and(is_last)
    }
}

/// A lease that the threads of a process share, as their thread queue knows it.
pub(crate) struct SharedLease<T> {
    kind: Kind,
    options: Arc<LockOptions>,
    gate: Arc<HolderCount>,
    /// Makes one more hold, for a thread that the gate has just counted.
    another: Box<dyn Fn(Tick) -> T + Send + Sync>,
    checked: Tick,
    joins: u32,
}

impl<T> SharedLease<T> {
    pub(crate) fn new(
        kind: Kind,
        options: Arc<LockOptions>,
        gate: Arc<HolderCount>,
        another: Box<dyn Fn(Tick) -> T + Send + Sync>,
    ) -> SharedLease<T> {
        SharedLease { kind, options, gate, another, checked: Tick::ZERO, joins: 0 }
    }

    /// Lets threads join from now on.
    pub(crate) fn open(self, now: Tick) -> SharedLease<T> {
        self.gate.open();
        SharedLease { checked: now, ..self }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.gate.is_open()
    }

    /// One more hold, for a thread that wants the same kind of lock with the same settings.
    pub(crate) fn join(&mut self, kind: Kind, options: &LockOptions, now: Tick) -> Option<T> {
        let is_wanted =
            self.kind == kind && (std::ptr::eq(Arc::as_ptr(&self.options), options) || *self.options == *options);
        (is_wanted && self.gate.try_join()).then(|| {
            self.joins = self.joins.saturating_add(1);
            (self.another)(now)
        })
    }

    /// True if the thread that just joined must ask the servers whether another process is kept out. Other threads join
    /// meanwhile.
    pub(crate) fn is_check_due(&mut self, now: Tick) -> bool {
        let is_due = self.joins >= JOINS_PER_CHECK || now.since(self.checked) >= CHECK_EVERY;
        if is_due {
            self.joins = 0;
            self.checked = now;
        }
        is_due
    }
}

impl<T> fmt::Debug for SharedLease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLease").field("kind", &self.kind).field("gate", &self.gate).finish_non_exhaustive()
    }
}
