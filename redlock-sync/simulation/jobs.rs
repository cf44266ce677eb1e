//! Jobs that are run once, under the names of mutexes: the calls that threads make, and the rules.
//!
//! 1. At most one call for a name is `Ran`, unless a majority of the nodes has lost its data.
//! 2. After a call was `Ran` or `Done`, no call that begins later runs the body. The same exception applies.
//! 3. A call is `Done` only if a body has succeeded.
//! 4. While the body holds the lock, it is checked like any holder of the mutex.

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
use crate::once::{Once, RunOutcome};
use crate::options::LockOptions;
use crate::protocol::{Exclusive, Protocol};

/// Makes one call for the job of that name. Returns false if the client is closed.
pub(super) fn visit(thread: &Thread, key: usize, plan: &Plan) -> bool {
    let options = LockOptions { min_hold: Duration::ZERO, ..plan.draw_options() };
    let name = Key::new("", plan.names[key]);
    let handle =
        Handle::new(Arc::clone(&thread.inner), name, options.clone().into(), |key| Protocol::Mutex(Exclusive { key }));
    let job = Once::new(Arc::clone(&thread.inner), Mutex::new(handle)).remember(LIFE);
    let began = with(|world| world.now);
    invariants::wants(key, &options);
    // The call holds the lock already before the body begins, and still after the body has ended.
    invariants::is_taking(key, true);
    let has_begun = Cell::new(false);
    let body = |lease: &Lease| {
        has_begun.set(true);
        invariants::is_taking(key, false);
        invariants::has_waited(key);
        let ended_well = work(thread, key, lease, plan, &options, began);
        invariants::end(key, Duration::ZERO);
        invariants::is_taking(key, true);
        if ended_well { Ok(()) } else { Err(OfBody(None)) }
    };
    let wait = plan.pace.mul_f64(fastrand::f64() * 3.0);
    let outcome = if chance(500) { job.run_for(wait, body) } else { job.run(body) };
    invariants::is_taking(key, false);
    if !has_begun.get() {
        invariants::has_waited(key);
    }
    match outcome {
        _ if thread.is_dead() => {}
        Ok(RunOutcome::Ran(())) => with(|world| world.saw_success(key, true)),
        Ok(RunOutcome::Done) => with(|world| world.saw_success(key, false)),
        Ok(RunOutcome::Busy) | Err(OfBody(None)) => {}
        Err(OfBody(Some(Error::Lost { .. }))) => invariants::ran_out(key),
        Err(OfBody(Some(error))) => return thread.note_error(&error),
    }
    true
}

/// The error that a call of a job returns. `None` is an error of the body itself.
struct OfBody(Option<Error>);

impl From<Error> for OfBody {
    fn from(error: Error) -> OfBody {
        OfBody(Some(error))
    }
}

/// Runs the body. Returns true if it succeeds.
fn work(thread: &Thread, key: usize, lease: &Lease, plan: &Plan, options: &LockOptions, began: Time) -> bool {
    with(|world| world.runs_job(key, began));
    if steps(thread, key, lease, plan, options).is_err() {
        // The body may also succeed here, like a body that ignores the loss of its lock.
        return !thread.is_dead() && chance(500);
    }
    let ends_well = !thread.is_dead() && chance(700);
    if ends_well {
        with(|world| world.invariants.jobs.entry(key).or_default().has_ended = true);
    }
    ends_well
}

/// Runs some steps of a thread that has just acquired the lock. Each step first checks the lease.
pub(super) fn steps(
    thread: &Thread,
    key: usize,
    lease: &Lease,
    plan: &Plan,
    options: &LockOptions,
) -> Result<(), Error> {
    let (task, claim) = (with(|world| world.current), Claim::Lease(Arc::clone(lease.inner())));
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
    /// Checks that the body may begin. Its call began at this time.
    fn runs_job(&mut self, key: usize, began: Time) {
        let JobState { over_since, .. } = self.invariants.jobs.entry(key).or_default();
        if let Some(since) = over_since.filter(|&since| since < began)
            && !self.have_forgotten()
        {
            let (name, ms) = (self.plan.names[key], (began - since) / MS);
            self.violate(format!("a job runs again: `{name}`, {ms} ms after it was done"));
        }
    }

    /// Checks and records a call that was `Ran` or `Done`.
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
