//! Leaders, under the names of mutexes. Each term is checked as a hold of the mutex: when one leader begins, no other
//! leader's `check` is `Ok`.

use std::sync::Arc;
use std::time::Duration;

use super::plan::Plan;
use super::thread::Thread;
use super::world::with;
use super::{invariants, jobs};
use crate::key::Key;
use crate::leader::Leader;
use crate::lock::handle::Handle;
use crate::lock::mutex::Mutex;
use crate::options::LockOptions;
use crate::protocol::{Exclusive, Protocol};

/// The shortest pause between two terms that the library permits.
const MIN_READ_TIMEOUT: Duration = Duration::from_millis(10);

/// Runs a candidate until it is cancelled. Returns false if the client is closed.
pub(super) fn visit(thread: &Thread, key: usize, plan: &Plan) -> bool {
    let options = LockOptions { min_hold: Duration::ZERO, ..plan.draw_options() };
    let name = Key::new("", plan.names[key]);
    let handle =
        Handle::new(Arc::clone(&thread.inner), name, options.clone().into(), |key| Protocol::Mutex(Exclusive { key }));
    let cancel = thread.cancel_after(plan.pace.mul_f64(fastrand::f64() * 2.0));
    let candidate = Leader::new(Arc::clone(&thread.inner), Mutex::new(handle)).cancel(&cancel);
    // The candidate holds the lock before its body begins and after it has ended. In its pauses, it does not want the
    // lock.
    let wants = || {
        invariants::wants(key, &options);
        invariants::is_taking(key, true);
    };
    let has_waited = || {
        invariants::is_taking(key, false);
        invariants::has_waited(key);
    };
    wants();
    let outcome = candidate.pause(plan.pace.mul_f64(fastrand::f64() / 2.0).max(MIN_READ_TIMEOUT)).run(|lease| {
        has_waited();
        with(|world| world.counts.led += 1);
        let outcome = jobs::steps(thread, key, lease, plan, &options);
        invariants::end(key, Duration::ZERO);
        wants();
        outcome
    });
    has_waited();
    thread.is_dead() || outcome.map_or_else(|error| thread.note_error(&error), |()| true)
}
