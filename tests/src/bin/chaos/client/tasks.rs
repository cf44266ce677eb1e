//! A worker of the queue of tasks. Its threads claim tasks and end them in time, late, or not at all.

use std::io::{Read, copy, sink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Job, Queue, Retry};

use super::job::{check, nanos, outcome};
use super::log::Log;
use super::{Order, build, settings};
use crate::clock::now;
use crate::event::{Op, Outcome, Session, What};
use crate::names::{self, QUEUE};
use crate::timing::TIMEOUT;

const MS: Duration = Duration::from_millis(1);
/// The longest time for which a slow task runs. It exceeds a short lease.
const SLOW: Duration = Duration::from_secs(2);
/// The time for which a thread waits for a task in one call.
const WAIT: Duration = Duration::from_secs(5);

/// The queue of the run. The number of attempts is practically unlimited, because a task that died would look like a
/// lost one.
pub(crate) fn queue(urls: &[String], lease: Duration) -> Queue {
    let retry = Retry::every(20 * MS).max_attempts(1_000_000);
    // A call for a task that returns an error counts as one that may have claimed a task. So there are few of them.
    let locks = build(settings(urls).unavailable_after(2 * WAIT));
    locks.queue(names::of(QUEUE)).lease(lease).retry(retry)
}

/// Runs the threads of the worker until the pipe ends.
pub(super) fn work(order: &Order, mut line: impl Read, log: &Arc<Log>) {
    let lease = Duration::from_millis(order.lease);
    let tasks = queue(&order.urls, lease);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..u16::try_from(order.threads).expect("few threads") {
            let session = Session { client: order.client, life: order.life, thread, number: 0 };
            let parts = [u64::from(order.client), u64::from(order.life), u64::from(thread)];
            let seed = parts.into_iter().fold(order.seed, |seed, part| seed.wrapping_mul(1000).wrapping_add(part));
            let random = fastrand::Rng::with_seed(seed);
            let mut worker = Worker { tasks: tasks.clone(), lease, log, session, random };
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    worker.claim();
                }
            });
        }
        copy(&mut line, &mut sink()).expect("the pipe can be read");
        is_over.store(true, Ordering::SeqCst);
    });
}

/// One thread of a worker. Each call for a task is a session.
struct Worker<'a> {
    tasks: Queue,
    lease: Duration,
    log: &'a Log,
    session: Session,
    random: fastrand::Rng,
}

impl Worker<'_> {
    fn claim(&mut self) {
        self.session.number += 1;
        let tasks = self.settings();
        let from = now();
        self.note(What::Call { op: Op::Claim, limit: nanos(WAIT) + 4 * TIMEOUT });
        let claimed = tasks.try_claim_for(WAIT).and_then(|job| job.map(|job| self.claimed(job, from)).transpose());
        let outcome = if matches!(claimed, Ok(None)) { Outcome::Busy } else { outcome(&claimed) };
        self.note(What::Return { op: Op::Claim, outcome });
        if let Ok(Some(job)) = claimed {
            self.handle(&job);
            self.end(job);
        }
    }

    /// Logs the claim. If the worker does not run for the length of a lease after the call, the claim is lost. Then its
    /// fencing token is not known.
    fn claimed(&self, job: Job, from: u64) -> Result<Job, Error> {
        let fence = job.fencing_token()?;
        let task = job.id().parse().expect("the ids of tasks are numbers");
        self.note(What::Claimed { task, fence, attempt: job.attempt().into(), from });
        Ok(job)
    }

    /// Draws the settings of a claim. Most claims are renewed. The others can expire during the work.
    fn settings(&mut self) -> Queue {
        match self.random.u32(0..20) {
            0..3 => self.tasks.clone().renew(false),
            3 => self.tasks.clone().max_hold(self.lease),
            _ => self.tasks.clone(),
        }
    }

    fn handle(&mut self, job: &Job) {
        let is_slow = self.random.u32(0..100) < 3;
        let length = if is_slow { SLOW.min(self.lease * 3 / 2) } else { MS * self.random.u32(1..40) };
        let until = now() + nanos(length);
        while now() < until {
            thread::sleep(Duration::from_nanos(until.saturating_sub(now())).min(20 * MS));
            check(self.log, self.session, QUEUE, job);
        }
    }

    fn end(&mut self, job: Job) {
        let op = [Op::Ack, Op::Ack, Op::Ack, Op::Ack, Op::Ack, Op::Ack, Op::Ack, Op::Retry, Op::Drop, Op::Fail];
        let op = op[self.random.usize(0..op.len())];
        // The limit covers a round trip under way, and the round trip of the call itself.
        self.note(What::Call { op, limit: if op == Op::Drop { TIMEOUT } else { 3 * TIMEOUT } });
        let ended = match op {
            Op::Ack => job.ack(),
            Op::Retry => job.retry("on purpose"),
            Op::Fail => job.fail("on purpose"),
            _ => {
                drop(job);
                Ok(())
            }
        };
        self.note(What::Return { op, outcome: outcome(&ended) });
    }

    fn note(&self, what: What) {
        self.log.note(self.session, QUEUE, what);
    }
}
