//! Jobs that are run once, under the names of mutexes: what threads do with them, and what must hold.
//!
//! 1. At most one call for a name is `Ran`, unless a majority of the nodes has lost its data.
//! 2. Once a call was `Ran` or `Done`, no call that begins then runs the body; with the same exception.
//! 3. A call is `Done` only if a body has ended well.
//! 4. While the body has the lock, it is judged as any holder of the mutex.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::kinds::Access;
use super::known::{Claim, Holder, JobState};
use super::latches::LIFE;
use super::plan::{MS, Plan, Time, chance};
use super::thread::Thread;
use super::world::{World, sleep, with};
use super::{invariants, settings};
use crate::error::Error;
use crate::key::Key;
use crate::lease::Lease;
use crate::lock::handle::Handle;
use crate::lock::mutex::Mutex;
use crate::once::{Once, RunOnce};
use crate::options::LockOptions;
use crate::protocol::{Exclusive, Protocol};

/// One call for the job of that name. False if the client is closed.
pub(super) fn visit(thread: &Thread, key: usize, plan: &Plan) -> bool {
    let options = LockOptions { min_hold: Duration::ZERO, ..plan.draw_options() };
    let name = Key::new("", plan.names[key], 100);
    let handle =
        Handle::new(Arc::clone(&thread.inner), name, options.clone().into(), |key| Protocol::Mutex(Exclusive { key }));
    let job = RunOnce::new(Arc::clone(&thread.inner), Mutex::new(handle)).remember(LIFE);
    let began = with(|world| world.now);
    invariants::wants(key, &options);
    // The call has the lock before the body begins, and after it has ended.
    invariants::is_taking(key, true);
    let has_begun = Cell::new(false);
    let outcome = job.run(|lease| {
        has_begun.set(true);
        invariants::is_taking(key, false);
        invariants::has_waited(key);
        let ended_well = work(thread, key, lease, plan, &options, began);
        invariants::end(key, Duration::ZERO);
        invariants::is_taking(key, true);
        if ended_well { Ok(()) } else { Err(OfBody(None)) }
    });
    invariants::is_taking(key, false);
    if !has_begun.get() {
        invariants::has_waited(key);
    }
    match outcome {
        _ if thread.is_dead() => {}
        Ok(Once::Ran(())) => with(|world| world.saw_success(key, true)),
        Ok(Once::Done) => with(|world| world.saw_success(key, false)),
        Ok(Once::Busy) | Err(OfBody(None)) => {}
        Err(OfBody(Some(Error::Lost { .. }))) => invariants::ran_out(key),
        Err(OfBody(Some(error))) => return thread.note_error(&error),
    }
    true
}

/// What a call of a job returns as its error; `None` is one of the body itself.
struct OfBody(Option<Error>);

impl From<Error> for OfBody {
    fn from(error: Error) -> OfBody {
        OfBody(Some(error))
    }
}

/// The body. Whether it ends well.
fn work(thread: &Thread, key: usize, lease: &Lease, plan: &Plan, options: &LockOptions, began: Time) -> bool {
    with(|world| world.runs_job(key, began));
    if steps(thread, key, lease, plan, options).is_err() {
        // As a body that does not look.
        return !thread.is_dead() && chance(500);
    }
    let ends_well = !thread.is_dead() && chance(700);
    if ends_well {
        with(|world| world.invariants.jobs.entry(key).or_default().has_ended = true);
    }
    ends_well
}

/// Some steps of a thread that has just got the lock, with a look before each.
pub(super) fn steps(
    thread: &Thread,
    key: usize,
    lease: &Lease,
    plan: &Plan,
    options: &LockOptions,
) -> Result<(), Error> {
    let (task, claim) = (with(|world| world.current), Claim::Lease(Arc::clone(lease.core())));
    invariants::begin(key, lease.key(), Holder::new(thread.client, task, lease.id().as_str(), claim, Access::Alone));
    settings::begin(lease.key(), lease, options, None);
    for _ in 0..fastrand::u32(0..3) {
        sleep(thread.client, plan.pace.mul_f64(fastrand::f64().powi(3)));
        if thread.is_dead() {
            return Err(Error::Closed);
        }
        lease.check().inspect_err(|_| invariants::ran_out(key))?;
        invariants::act(key);
    }
    Ok(())
}

impl World {
    /// A body begins, of a call that began at this time.
    fn runs_job(&mut self, key: usize, began: Time) {
        let JobState { over_since, .. } = self.invariants.jobs.entry(key).or_default();
        if let Some(since) = over_since.filter(|&since| since < began)
            && !self.have_forgotten()
        {
            let (name, ms) = (self.plan.names[key], (began - since) / MS);
            self.violate(format!("a job runs again: `{name}`, {ms} ms after it was done"));
        }
    }

    /// A call is `Ran`, or `Done`.
    fn saw_success(&mut self, key: usize, has_run: bool) {
        let (now, name) = (self.now, self.plan.names[key]);
        self.log(|_| format!("job `{name}` is {}", if has_run { "run" } else { "done" }));
        self.counts.ran += u64::from(has_run);
        let may_have_forgotten = self.have_forgotten();
        let JobState { has_ended, has_run: before, over_since } = self.invariants.jobs.entry(key).or_default();
        let was_run = std::mem::replace(before, *before || has_run);
        let has_ended = *has_ended;
        over_since.get_or_insert(now);
        if has_run && was_run && !may_have_forgotten {
            self.violate(format!("a job is run twice: two calls for `{name}` are `Ran`"));
        } else if !has_ended {
            self.violate(format!("a job is done early: `{name}`, and no body has ended well"));
        }
    }
}
