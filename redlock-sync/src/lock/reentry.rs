//! What this thread holds: a thread-local list by client and key.
//!
//! Reentrant locks find their lease here and add one to its count, without I/O; every kind detects here that a thread is about to wait for itself.
//! Guards of a thread-bound kind never leave their thread, so an entry is always removed where it was made. A thread holds few locks, and gives back the
//! last one first: a list that is searched from its end is faster than any map.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use crate::error::Error;
use crate::lease::{Core, Lease};
use crate::options::Kind;

// Never dropped: guards can be in other thread-locals, and find their entries at the end of the thread too, in whatever order these are destroyed.
thread_local!(static HELD: RefCell<ManuallyDrop<Vec<Place>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) });

/// What a thread holds that is a coroutine.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Belongings(Vec<Place>);

#[cfg(test)]
impl Belongings {
    /// Puts them in the place of what is there.
    pub(crate) fn exchange(&mut self) {
        with(|places| std::mem::swap(places, &mut self.0));
    }
}

#[derive(Debug)]
struct Place {
    client: u64,
    key: Arc<str>,
    held: Held,
}

/// How this thread holds a key.
#[derive(Debug)]
enum Held {
    /// By a guard that does not nest.
    Once(Weak<Core>),
    /// By `count` guards that share a lease, `alone` of which need the lock alone.
    Nested { lease: Arc<Lease>, count: usize, alone: usize },
}

/// What a thread that wants a key has already.
#[derive(Debug)]
pub(crate) enum Mine {
    Nothing,
    Once(Arc<Core>),
    Nested(Arc<Lease>),
}

/// The last entry to go takes the memory of the list with it. Nothing is known here at the end of a thread on systems where all thread-locals are destroyed.
fn with<R>(f: impl FnOnce(&mut Vec<Place>) -> R) -> Option<R> {
    let look = |held: &RefCell<ManuallyDrop<Vec<Place>>>| {
        let mut places = held.try_borrow_mut().ok()?;
        let done = f(&mut places);
        if places.is_empty() {
            **places = Vec::new();
        }
        Some(done)
    };
    HELD.try_with(look).ok().flatten()
}

fn find(places: &[Place], client: u64, key: &str) -> Option<usize> {
    places.iter().rposition(|place| place.client == client && *place.key == *key)
}

/// Puts a hold in the place of an older one, which can be there if its lease was lost.
fn put(client: u64, key: &Arc<str>, held: Held) {
    let old = with(|places| {
        let old = find(places, client, key).map(|i| places.swap_remove(i));
        places.push(Place { client, key: Arc::clone(key), held });
        old
    });
    // Outside: it can be the last reference to a lease, which is released then.
    drop(old);
}

/// How this thread holds the key. A non-nesting hold whose guard is gone, or whose lease is lost, is nothing.
pub(crate) fn mine(client: u64, key: &str) -> Mine {
    let found = with(|places| match &places.get(find(places, client, key)?)?.held {
        Held::Once(core) => core.upgrade().map(Mine::Once),
        Held::Nested { lease, .. } => Some(Mine::Nested(Arc::clone(lease))),
    });
    match found.flatten() {
        Some(Mine::Once(core)) if core.check().is_err() => Mine::Nothing,
        Some(mine) => mine,
        None => Mine::Nothing,
    }
}

/// A non-nesting hold in this thread's list, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    core: Arc<Core>,
}

impl Entry {
    pub(crate) fn new(client: u64, core: &Arc<Core>) -> Entry {
        put(client, core.key.name(), Held::Once(Arc::downgrade(core)));
        Entry { core: Arc::clone(core) }
    }
}

impl Drop for Entry {
    /// Unless a later lease of this thread has taken its place: it could, if this one was lost.
    fn drop(&mut self) {
        let is_mine =
            |place: &Place| matches!(&place.held, Held::Once(core) if Weak::as_ptr(core) == Arc::as_ptr(&self.core));
        with(|places| places.iter().rposition(is_mine).map(|i| places.swap_remove(i)));
    }
}

/// What becomes of a lease when one of the guards that share it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It was the last: the lease has to be released.
    All,
    /// It was the last that needs the lock alone: others can share it now.
    Alone,
    Nothing,
}

/// The first of the guards that share this lease, and whether it needs the lock alone.
pub(crate) fn enter_first(client: u64, key: &Arc<str>, lease: &Arc<Lease>, is_alone: bool) {
    put(client, key, Held::Nested { lease: Arc::clone(lease), count: 1, alone: is_alone.into() });
}

/// One guard more on a lease that this thread holds, if it holds one that nests, of a kind that serves, and that is still good.
pub(crate) fn enter_again(
    client: u64,
    key: &str,
    is_alone: bool,
    serves: impl Fn(Kind) -> bool,
) -> Option<Result<Arc<Lease>, Error>> {
    let nest = |places: &mut Vec<Place>| {
        let i = find(places, client, key)?;
        let Held::Nested { lease, count, alone } = &mut places.get_mut(i)?.held else { return None };
        if !serves(lease.core().protocol().kind()) {
            return None;
        }
        *count += 1;
        *alone += usize::from(is_alone);
        Some(Arc::clone(lease))
    };
    let lease = with(nest).flatten()?;
    // Not within: a handler of a loss may use locks.
    Some(match lease.check() {
        Ok(()) => Ok(lease),
        Err(lost) => {
            leave(&lease, is_alone);
            Err(lost)
        }
    })
}

/// One guard less.
pub(crate) fn leave(lease: &Arc<Lease>, was_alone: bool) -> Left {
    let left = with(|places| {
        let Some(i) = places.iter().rposition(|place| is_of(place, lease)) else { return Left::All };
        if let Some(Place { held: Held::Nested { count, alone, .. }, .. }) = places.get_mut(i) {
            *count -= 1;
            *alone -= usize::from(was_alone);
            if *count > 0 {
                return if was_alone && *alone == 0 { Left::Alone } else { Left::Nothing };
            }
        }
        // The caller has the lease still: nothing is released in here.
        places.swap_remove(i);
        Left::All
    });
    left.unwrap_or(Left::All)
}

/// A guard that needed the lock alone shares it from now on; true if it was the last of them.
pub(crate) fn step_down(lease: &Arc<Lease>) -> bool {
    let is_last = with(|places| match places.iter_mut().rfind(|place| is_of(place, lease)) {
        Some(Place { held: Held::Nested { alone, .. }, .. }) => {
            *alone -= 1;
            *alone == 0
        }
        _ => true,
    });
    is_last.unwrap_or(true)
}

/// Forgets the only guard of this thread that has this lease: it may be given up on another thread. False if there are others.
pub(crate) fn let_go(lease: &Arc<Lease>) -> bool {
    let is_only = with(|places| {
        let Some(i) = places.iter().rposition(|place| is_of(place, lease)) else { return true };
        let is_only = matches!(places.get(i), Some(Place { held: Held::Nested { count: 1, .. }, .. }));
        if is_only {
            // The caller has the lease still: nothing is released in here.
            places.swap_remove(i);
        }
        is_only
    });
    is_only.unwrap_or(true)
}

fn is_of(place: &Place, lease: &Arc<Lease>) -> bool {
    matches!(&place.held, Held::Nested { lease: mine, .. } if Arc::ptr_eq(mine, lease))
}
