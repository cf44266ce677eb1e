//! Jobs that are run once, and leaders. Both are built on mutexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Cancel, Error, LeaderHandle, Lease, RunOutcome};

use super::job::{check, held, nanos, outcome};
use super::styles::Play;
use crate::clock::now;
use crate::event::{Op, Outcome, Session, Wants, What};
use crate::names::{self, LEADER};
use crate::timing::{JOB_LIFE, JOB_ROUND, TIMEOUT};

const MS: Duration = Duration::from_millis(1);
/// The pause of a candidate after a term.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest term, without the time in which its thread does not run.
const TERM: Duration = Duration::from_millis(400);

/// The error of a call for a job. `None` is an error of the body itself.
struct OfBody(Option<Error>);

impl From<Error> for OfBody {
    fn from(error: Error) -> OfBody {
        OfBody(Some(error))
    }
}

impl Play<'_> {
    /// Makes one call for the current job, or for an older job, which has most likely been run.
    pub(super) fn once(&mut self) {
        let age = if self.random.u8(..4) == 0 { self.random.u64(1..8) } else { 0 };
        let number = now() / JOB_ROUND - age;
        let lease = self.lease();
        let job = self.locks.once(names::job(number)).lease(lease).remember(JOB_LIFE).fenced(self.random.bool());
        // Some calls take longer than the lease.
        let length = if self.random.u8(..8) == 0 { lease.mul_f64(1.6) } else { self.millis(0, 40) };
        let (looks, fails) = (self.random.bool(), self.random.u8(..4) == 0);
        // The limit covers two checks and one mark of two round trips each, the lock, and its release. The library
        // repeats the mark for up to one lease.
        let limit = nanos(lease + length) + 12 * TIMEOUT;
        self.job.note(What::Call { op: Op::Once, limit });
        let ran = job.run(|lease| {
            thread::sleep(length);
            if looks {
                lease.check()?;
            }
            if fails { Err(OfBody(None)) } else { Ok(()) }
        });
        let outcome = match &ran {
            Ok(RunOutcome::Ran(()) | RunOutcome::Done) => Outcome::Ok,
            Ok(RunOutcome::Busy) => Outcome::Busy,
            Err(OfBody(None)) => Outcome::Skipped,
            Err(OfBody(Some(error))) => outcome::<()>(&Err(error.clone())),
        };
        self.job.note(What::Return { op: Op::Once, outcome });
        if matches!(ran, Ok(RunOutcome::Ran(()))) {
            self.job.note(What::Ran { job: number });
        }
    }

    /// Runs a candidate for a while. The candidate leads for some terms. Then it resigns or is cancelled.
    pub(super) fn lead(&mut self, is_over: &AtomicBool) {
        let (cancel, lease, long) = (Cancel::new(), self.lease(), self.millis(200, 2000));
        let candidate = self.locks.leader(names::of(LEADER)).lease(lease).pause(PAUSE).cancel(&cancel);
        // The limit has one round trip to acquire the lock, one to leave its queue, and three for the end of a term.
        let limit = nanos(long + TERM) + 6 * TIMEOUT;
        self.job.note(What::Call { op: Op::Lead, limit });
        let ended = candidate.spawn(self.body(lease)).and_then(|leading| {
            let until = now() + nanos(long);
            while now() < until && !is_over.load(Ordering::SeqCst) {
                thread::sleep(10 * MS);
            }
            self.end(&leading, &cancel);
            leading.join()
        });
        self.job.note(What::Return { op: Op::Lead, outcome: outcome(&ended) });
    }

    /// Returns the body of a term. Each term is a session of its own.
    fn body(&mut self, length: Duration) -> impl FnMut(&Lease) -> Result<(), Error> + Send + use<> {
        let (log, mut session, mut random) = (Arc::clone(self.job.log), self.job.session, self.random.fork());
        move |lease| {
            session = Session { number: session.number + 1, ..session };
            log.note(session, LEADER, What::Wants(Wants::plain(nanos(length))));
            held(&log, session, LEADER, lease);
            let end = now() + random.u64(..nanos(TERM));
            while check(&log, session, LEADER, lease) && now() < end {
                thread::sleep(MS * random.u32(1..8));
            }
            Ok(())
        }
    }

    fn end(&mut self, leading: &LeaderHandle, cancel: &Cancel) {
        if self.random.bool() {
            _ = self.job.call(Op::Resign, 2 * TIMEOUT, || {
                leading.resign();
                Ok(())
            });
        } else {
            cancel.cancel();
        }
    }
}
