//! Latches: the work of threads with them, and the rules.
//!
//! 1. A latch is open only if the number of workers that have begun to arrive has reached its count. A worker that
//!    arrives twice counts once.
//! 2. A latch stays open. If a thread has seen it open, or all arrivals were confirmed, then no check that begins later
//!    finds it closed. The exception is a majority of nodes that has lost its data.
//! 3. Without faults, a wait ends soon after the last arrival was confirmed.

use std::sync::Arc;
use std::time::Duration;

use super::invariants::LONGEST_GAP;
use super::known::LatchState;
use super::plan::{MS, Plan, Time, chance, nanos};
use super::thread::Thread;
use super::world::{World, with};
use crate::error::Error;
use crate::key::Key;
use crate::lock::count_down_latch::CountDownLatch;
use crate::options::LockOptions;
use crate::quorum::votes_needed;

/// The lifetime of latches. It is longer than any schedule. It is also shorter than the first uptime of the nodes. So
/// the library can tell that a restarted node has lost a latch.
pub(super) const LIFE: Duration = Duration::from_secs(1800);

/// Makes one call to a latch. Returns false if the client is closed.
pub(super) fn visit(thread: &Thread, key: usize, count: usize, plan: &Plan) -> bool {
    let name = Key::new("", plan.names[key]);
    let latch = CountDownLatch::new(Arc::clone(&thread.inner), name, count, &LockOptions::default()).lifetime(LIFE);
    let began = with(|world| world.now);
    let outcome = match fastrand::u32(0..10) {
        0..4 => return arrive(thread, key, count, &latch),
        4..6 => latch.is_open(),
        _ => match latch.wait_for(plan.pace.mul_f64(fastrand::f64() * 3.0)) {
            Err(Error::Busy { .. }) => Ok(false),
            other => other.map(|()| true),
        },
    };
    match outcome {
        _ if thread.is_dead() => true,
        Ok(is_open) => {
            with(|world| world.saw_latch(key, count, began, is_open));
            true
        }
        Err(error) => thread.note_error(&error),
    }
}

fn arrive(thread: &Thread, key: usize, count: usize, latch: &CountDownLatch) -> bool {
    let worker = fastrand::usize(0..count).to_string();
    let state = |f: &dyn Fn(&mut LatchState, Time)| {
        with(|world| f(world.invariants.latches.entry(key).or_default(), world.now));
    };
    state(&|latch, _| _ = latch.begun.insert(worker.clone()));
    let outcome = latch.count_down_as(&worker);
    if thread.is_dead() {
        return true;
    }
    with(|world| world.counts.arrivals += 1);
    if let Err(error) = outcome {
        return thread.note_error(&error);
    }
    state(&|latch, now| {
        latch.confirmed.insert(worker.clone());
        if latch.confirmed.len() >= count {
            latch.open_since.get_or_insert(now);
        }
    });
    // The worker may arrive again, like a worker that was restarted.
    if chance(200) {
        latch.count_down_as(&worker).map_or_else(|error| thread.note_error(&error), |()| true)
    } else {
        true
    }
}

impl World {
    fn saw_latch(&mut self, key: usize, count: usize, began: Time, is_open: bool) {
        let name = self.plan.names[key];
        let now = self.now;
        let may_have_forgotten = self.have_forgotten();
        let LatchState { begun, open_since, .. } = self.invariants.latches.entry(key).or_default();
        let arrived = begun.len();
        let since = *open_since;
        if is_open {
            open_since.get_or_insert(now);
            self.counts.opened += 1;
            let late = since.map_or(0, |since| now.saturating_sub(since.max(began)));
            if arrived < count {
                self.violate(format!("a latch opens early: `{name}` for {arrived} of {count} workers"));
            } else if self.plan.is_calm && late > LONGEST_GAP + nanos(self.plan.settings.node_timeout) {
                self.violate(format!("a latch wakes late: `{name}` a waiter {} ms after it was open", late / MS));
            }
        } else if let Some(since) = since.filter(|since| *since < began && !may_have_forgotten) {
            let ms = (began - since) / MS;
            self.violate(format!("a latch closes again: `{name}` is closed {ms} ms after it was open"));
        }
    }

    /// Returns true if a majority of the nodes has lost its data.
    pub(super) fn have_forgotten(&self) -> bool {
        let lost = self.servers.iter().filter(|server| server.epoch > 0 || !server.is_up).count();
        self.plan.nodes > 1 && lost >= votes_needed(self.plan.nodes)
    }
}
