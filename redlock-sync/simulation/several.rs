//! Multi-locks. Each mutex of a multi-lock is checked like any other mutex. If one of them is lost, all are given up.

use std::sync::Arc;
use std::time::Duration;

use super::kinds::{Access, DrawnKind};
use super::known::{Claim, Holder};
use super::plan::{Plan, chance};
use super::thread::Thread;
use super::world::{sleep, with};
use super::{invariants, settings};
use crate::key::Key;
use crate::lock::handle::Handle;
use crate::lock::multi::{MultiLock, MultiLockGuard};
use crate::lock::mutex::Mutex;
use crate::options::LockOptions;
use crate::protocol::{Exclusive, Protocol};

/// Draws some of the mutexes, in any order. Returns `None` if there are fewer than two.
pub(super) fn draw(plan: &Plan) -> Option<Vec<usize>> {
    let mut keys: Vec<usize> = (0..plan.names.len()).filter(|&key| plan.kinds[key] == DrawnKind::Mutex).collect();
    fastrand::shuffle(&mut keys);
    keys.truncate(fastrand::usize(2..=3));
    (keys.len() > 1).then_some(keys)
}

/// Acquires and releases the multi-lock. Returns false if the client is closed.
pub(super) fn visit(thread: &Thread, keys: &[usize], plan: &Plan) -> bool {
    let options = LockOptions { min_hold: Duration::ZERO, ..plan.draw_options() };
    let mutex = |&key: &usize| {
        let name = Key::new("", plan.names[key]);
        Mutex::new(Handle::new(Arc::clone(&thread.inner), name, options.clone().into(), |key| {
            Protocol::Mutex(Exclusive { key })
        }))
    };
    let lock = MultiLock::new(Arc::clone(&thread.inner), keys.iter().map(mutex).collect());
    for &key in keys {
        invariants::wants(key, &options);
        invariants::is_taking(key, true);
    }
    with(|world| world.log(|world| format!("client {} wants keys {keys:?}, {options:?}", world.client)));
    let outcome = match fastrand::u32(0..10) {
        0..2 => lock.try_lock(),
        2..6 => lock.try_lock_for(plan.pace.mul_f64(fastrand::f64() * 3.0)),
        _ => lock.lock(),
    };
    for &key in keys {
        invariants::is_taking(key, false);
        invariants::has_waited(key);
    }
    match outcome {
        _ if thread.is_dead() => true,
        Ok(guard) => {
            hold(thread, keys, guard, plan, &options);
            true
        }
        Err(error) => thread.note_error(&error),
    }
}

fn hold(thread: &Thread, keys: &[usize], guard: MultiLockGuard, plan: &Plan, options: &LockOptions) {
    with(|world| world.counts.several += 1);
    let task = with(|world| world.current);
    let key_of = |name: &str| keys.iter().copied().find(|&key| plan.names[key] == name).unwrap();
    for lease in guard.leases() {
        let (key, token, claim) = (key_of(lease.key()), lease.id().as_str(), Claim::Lease(Arc::clone(lease.inner())));
        invariants::begin(key, lease.key(), Holder::new(thread.client, task, token, claim, Access::Alone));
        settings::begin(lease.key(), lease, options, None);
        if chance(plan.careless) {
            lease.inner().renew_no_more();
        }
    }
    for _ in 0..fastrand::u32(0..4) {
        sleep(thread.client, plan.pace.mul_f64(fastrand::f64().powi(3) * 1.5));
        if thread.is_dead() || guard.check().is_err() {
            break;
        }
        guard.leases().for_each(settings::observe);
        for &key in keys {
            invariants::act(key);
        }
    }
    if !thread.is_dead() && guard.check().is_err() {
        for &key in keys {
            invariants::ran_out(key);
        }
        none_is_kept(thread, &guard, plan);
    }
    for &key in keys {
        invariants::end(key, Duration::ZERO);
    }
    if chance(800) { drop(guard.unlock()) } else { drop(guard) }
}

/// Checks that a multi-lock that has lost one key gives up the others.
fn none_is_kept(thread: &Thread, guard: &MultiLockGuard, plan: &Plan) {
    sleep(thread.client, plan.settings.node_timeout * 2);
    if let Some(kept) = guard.leases().find(|lease| lease.check().is_ok()).filter(|_| !thread.is_dead()) {
        let key = kept.key().to_owned();
        with(|world| world.violate(format!("a multi-lock is half held: `{key}` is kept although another key is lost")));
    }
}
