//! The locks that this thread holds: a thread-local list by client and key.
//!
//! A reentrant lock finds its lease here and raises its count, without I/O. Every kind detects here that a thread is
//! about to wait for itself. Guards of a thread-bound kind never leave their thread, so a hold is always removed by the
//! thread that added it. A thread holds few locks, and releases the last one first. So a list that is searched from its
//! end is faster than any map.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::error::Error;
use crate::lease::{Lease, LeaseInner};
use crate::options::{Kind, Mode};

/// A thread mostly holds one lock, which needs no allocation.
type Holds = SmallVec<[ThreadHold; 1]>;

// Never dropped. Guards can be in other thread-locals, and use this list when those are destroyed at the end of the
// thread, in whatever order.
thread_local!(static HOLDS: RefCell<ManuallyDrop<Holds>> = const { RefCell::new(ManuallyDrop::new(Holds::new_const())) });

/// The list of a coroutine, which the simulation runs as a thread.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct ThreadHolds(Holds);

#[cfg(test)]
impl ThreadHolds {
    /// Exchanges this list with that of the current thread.
    pub(crate) fn exchange(&mut self) {
        with(|holds| std::mem::swap(holds, &mut self.0));
    }
}

/// A lock that this thread holds.
#[derive(Debug)]
struct ThreadHold {
    client: u64,
    key: Arc<str>,
    inner: Weak<LeaseInner>,
    /// The lease that nested guards share. `None` for a guard of a kind that is not reentrant.
    nested: Option<Arc<Lease>>,
    /// The number of guards. `exclusive` of them need the lock exclusively.
    count: usize,
    exclusive: usize,
}

impl ThreadHold {
    fn is_for(&self, client: u64, key: &str) -> bool {
        self.client == client && *self.key == *key
    }

    fn has(&self, lease: &Arc<Lease>) -> bool {
        self.nested.as_ref().is_some_and(|nested| Arc::ptr_eq(nested, lease))
    }
}

/// Calls `f` with the list. An empty list keeps no memory. On systems that destroy all thread-locals, there is no list
/// at the end of the thread, and the result is `None`.
fn with<R>(f: impl FnOnce(&mut Holds) -> R) -> Option<R> {
    let access = |cell: &RefCell<ManuallyDrop<Holds>>| {
        let mut holds = cell.try_borrow_mut().ok()?;
        let done = f(&mut holds);
        if holds.is_empty() {
            **holds = Holds::new();
        }
        Some(done)
    };
    HOLDS.try_with(access).ok().flatten()
}

/// Adds a hold. There is an older one for the same key only if its lease was lost. The older one stays: its guards
/// still have to report the loss. So a removal keeps the order, and a search finds the latest.
fn add(client: u64, inner: &Arc<LeaseInner>, nested: Option<Arc<Lease>>, is_exclusive: bool) {
    let (key, inner, exclusive) = (Arc::clone(inner.key.name()), Arc::downgrade(inner), is_exclusive.into());
    with(|holds| holds.push(ThreadHold { client, key, inner, nested, count: 1, exclusive }));
}

/// The lease by which this thread holds the lock, and whether it is a nested hold. A single hold does not count if its
/// guard is gone or its lease is lost. A nested one counts, since the outer code still relies on the lock.
pub(crate) fn held_by_thread(client: u64, key: &str) -> Option<(Arc<LeaseInner>, bool)> {
    let found = with(|holds| {
        let hold = holds.iter().rfind(|hold| hold.is_for(client, key))?;
        Some((hold.inner.upgrade()?, hold.nested.is_some()))
    });
    let (inner, is_nested) = found.flatten()?;
    // Checked outside of the closure: a handler of the loss may use locks.
    (is_nested || inner.check().is_ok()).then_some((inner, is_nested))
}

/// A single hold, which stays in the list of this thread until this value is dropped.
#[derive(Debug)]
pub(crate) struct SingleHold {
    /// `None` once it has ended.
    inner: Option<Arc<LeaseInner>>,
}

impl SingleHold {
    pub(crate) fn new(client: u64, inner: &Arc<LeaseInner>) -> SingleHold {
        add(client, inner, None, true);
        SingleHold { inner: Some(Arc::clone(inner)) }
    }

    /// Ends the hold of this thread, so that the guard may leave it.
    pub(crate) fn ended(self) -> SingleHold {
        drop(self);
        SingleHold { inner: None }
    }
}

impl Drop for SingleHold {
    fn drop(&mut self) {
        let Some(inner) = &self.inner else { return };
        let is_this = |hold: &ThreadHold| hold.nested.is_none() && hold.inner.as_ptr() == Arc::as_ptr(inner);
        with(|holds| holds.iter().rposition(is_this).map(|i| holds.remove(i)));
    }
}

/// What the removal of a guard means for the lease that it shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It was the last guard: the lease has to be released.
    Last,
    /// It was the last guard that needs the lock exclusively: the lease can be downgraded to a shared one.
    LastExclusive,
    /// Other guards need the lease as it is.
    OthersRemain,
}

/// Adds the first of the guards that share this lease. `is_exclusive` says whether it needs the lock exclusively.
pub(crate) fn add_first(client: u64, lease: &Arc<Lease>, is_exclusive: bool) {
    add(client, lease.inner(), Some(Arc::clone(lease)), is_exclusive);
}

/// Adds a guard of this kind to the lease by which this thread holds the key. A thread that writes may also read.
///
/// Returns `None` if the thread has no such lease, or has one of another kind. Returns an error if the lease is lost.
pub(crate) fn add_nested(client: u64, key: &str, kind: Kind) -> Option<Result<Arc<Lease>, Error>> {
    let is_exclusive = kind.mode == Mode::Exclusive;
    let accepts = |held: Kind| held.name == kind.name && (held.mode == Mode::Exclusive || !is_exclusive);
    let nest = |holds: &mut Holds| {
        let hold = holds.iter_mut().rfind(|hold| hold.is_for(client, key))?;
        let lease = hold.nested.clone().filter(|lease| accepts(lease.inner().protocol().kind()))?;
        hold.count += 1;
        hold.exclusive += usize::from(is_exclusive);
        Some(lease)
    };
    let lease = with(nest).flatten()?;
    // Checked outside of the closure: a handler of the loss may use locks.
    Some(match lease.check() {
        Ok(()) => Ok(lease),
        Err(lost) => {
            remove(&lease, is_exclusive);
            Err(lost)
        }
    })
}

/// Removes one guard.
pub(crate) fn remove(lease: &Arc<Lease>, was_exclusive: bool) -> Removed {
    let left = with(|holds| {
        let hold = holds.iter_mut().rfind(|hold| hold.has(lease))?;
        hold.count -= 1;
        hold.exclusive -= usize::from(was_exclusive);
        let left = match hold.count {
            0 => Removed::Last,
            _ if was_exclusive && hold.exclusive == 0 => Removed::LastExclusive,
            _ => Removed::OthersRemain,
        };
        // The caller still has a reference to the lease, so it is not released in here.
        holds.retain(|hold| hold.count > 0);
        Some(left)
    });
    left.flatten().unwrap_or(Removed::Last)
}

/// Marks one exclusive guard as shared. Returns true if no other guard needs the lock exclusively.
pub(crate) fn downgrade(lease: &Arc<Lease>) -> bool {
    let is_last = with(|holds| {
        let Some(hold) = holds.iter_mut().rfind(|hold| hold.has(lease)) else { return true };
        hold.exclusive -= 1;
        hold.exclusive == 0
    });
    is_last.unwrap_or(true)
}

/// Removes the guard if it is the only one of this thread that has this lease, so that it may be released on another
/// thread. Returns false if there are others.
pub(crate) fn remove_only(lease: &Arc<Lease>) -> bool {
    let is_only = with(|holds| {
        // The caller still has a reference to the lease, so it is not released in here.
        holds.retain(|hold| hold.count > 1 || !hold.has(lease));
        !holds.iter().any(|hold| hold.has(lease))
    });
    is_only.unwrap_or(true)
}
