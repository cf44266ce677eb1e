//! What this thread holds: a thread-local map by client and key.
//!
//! Reentrant locks find their lease here and add one to its count, without I/O; all kinds find out here that a thread is about to wait for
//! itself. Guards of a thread-bound kind never leave their thread, so an entry is always removed where it was made.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::lease::{Core, Lease};

type Map = HashMap<u64, HashMap<Arc<str>, Held>>;

thread_local!(static HELD: RefCell<Map> = RefCell::new(HashMap::new()));

/// How this thread holds a key.
#[derive(Debug)]
pub(crate) enum Held {
    /// By a guard that does not nest.
    Once(Weak<Core>),
    /// By `count` guards that share a lease.
    Nested { lease: Arc<Lease>, count: usize },
}

/// What a thread that wants a key has already.
#[derive(Debug)]
pub(crate) enum Mine {
    Nothing,
    Once(Arc<Core>),
    Nested(Arc<Lease>),
}

/// During the destruction of thread-locals the map is gone; then nothing is held here.
fn with<R>(f: impl FnOnce(&mut Map) -> R) -> Option<R> {
    HELD.try_with(|held| held.try_borrow_mut().ok().map(|mut map| f(&mut map))).ok().flatten()
}

/// How this thread holds the key. A non-nesting hold whose guard is gone, or whose lease is lost, is nothing.
pub(crate) fn mine(client: u64, key: &str) -> Mine {
    let found = with(|map| match map.get(&client)?.get(key)? {
        Held::Once(core) => core.upgrade().map(Mine::Once),
        Held::Nested { lease, .. } => Some(Mine::Nested(Arc::clone(lease))),
    });
    match found.flatten() {
        Some(Mine::Once(core)) if core.check().is_err() => Mine::Nothing,
        Some(mine) => mine,
        None => Mine::Nothing,
    }
}

/// A non-nesting hold in this thread's map, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    client: u64,
    core: Arc<Core>,
}

impl Entry {
    pub(crate) fn new(client: u64, core: &Arc<Core>) -> Entry {
        let held = Held::Once(Arc::downgrade(core));
        with(|map| map.entry(client).or_default().insert(core.key.shared(), held));
        Entry { client, core: Arc::clone(core) }
    }
}

impl Drop for Entry {
    /// Unless a later lease of this thread has taken its place: it could, if this one was lost.
    fn drop(&mut self) {
        with(|map| {
            let Some(keys) = map.get_mut(&self.client) else { return };
            let key = self.core.key.as_str();
            if matches!(keys.get(key), Some(Held::Once(mine)) if Weak::as_ptr(mine) == Arc::as_ptr(&self.core)) {
                keys.remove(key);
                forget_if_empty(map, self.client);
            }
        });
    }
}

/// The first of the guards that share this lease.
pub(crate) fn enter_first(client: u64, key: &Arc<str>, lease: &Arc<Lease>) {
    let held = Held::Nested { lease: Arc::clone(lease), count: 1 };
    with(|map| map.entry(client).or_default().insert(Arc::clone(key), held));
}

/// One guard more.
pub(crate) fn enter_again(client: u64, key: &str) {
    with(|map| {
        if let Some(Held::Nested { count, .. }) = map.get_mut(&client).and_then(|keys| keys.get_mut(key)) {
            *count += 1;
        }
    });
}

/// One guard less; true if it was the last, and the lease has to be released.
pub(crate) fn leave(client: u64, key: &str, lease: &Arc<Lease>) -> bool {
    with(|map| {
        let Some(keys) = map.get_mut(&client) else { return true };
        match keys.get_mut(key) {
            Some(Held::Nested { lease: mine, count }) if Arc::ptr_eq(mine, lease) => {
                *count -= 1;
                if *count > 0 {
                    return false;
                }
                keys.remove(key);
                forget_if_empty(map, client);
                true
            }
            _ => true,
        }
    })
    .unwrap_or(true)
}

fn forget_if_empty(map: &mut Map, client: u64) {
    if map.get(&client).is_some_and(HashMap::is_empty) {
        map.remove(&client);
    }
}
