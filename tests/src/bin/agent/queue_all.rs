//! A process that makes all sorts of calls for tasks. Several such processes share one queue.

use std::io::{BufWriter, Stdout, Write, stdout};
use std::time::Duration;

use redlock_sync::{IfQueued, Job, Pushed, Queue, Redlock, Retry, Task};
use rustix::time::{ClockId, clock_gettime};

const IDS: usize = 6;

/// `queue-all URL SEED OPERATIONS`: makes this many calls. Then it claims and acknowledges the tasks that are left. It
/// prints a line for each call that changed something: `WHAT ID FROM TO FENCE`.
pub(crate) fn main(args: &[String]) {
    let [url, seed, operations] = args else { panic!("a URL and two numbers are wanted, not {args:?}") };
    let locks = Redlock::builder().node(url).node_timeout(Duration::from_secs(2)).build().unwrap();
    let retry = Retry::every(Duration::from_millis(1)).jitter(0.0).max_attempts(1_000_000);
    let mails = locks.queue("q").lease(Duration::from_secs(30)).retry(retry);
    let random = fastrand::Rng::with_seed(seed.parse().unwrap());
    let mut run = Run { mails, random, out: BufWriter::new(stdout()), held: Vec::new() };
    for _ in 0..operations.parse::<usize>().unwrap() {
        run.step();
    }
    while let Some(job) = run.held.pop() {
        run.end(job, 0);
    }
    while run.claim() {
        let job = run.held.pop().unwrap();
        run.end(job, 0);
    }
    run.out.flush().unwrap();
    // Other processes may still have claims. They end these tasks themselves.
}

struct Run {
    mails: Queue,
    random: fastrand::Rng,
    out: BufWriter<Stdout>,
    held: Vec<Job>,
}

impl Run {
    fn step(&mut self) {
        let from = now();
        match self.random.u32(0..12) {
            0..5 => self.push(),
            5..7 => drop(self.claim()),
            7..10 => {
                if let Some(job) = self.held.pop() {
                    let how = self.random.u32(0..3);
                    self.end(job, how);
                }
            }
            10 => {
                let popped = self.mails.pop_due(1).unwrap();
                for entry in popped {
                    self.tell("popped", entry.id(), from, 0);
                }
            }
            _ => {
                let id = self.any_id();
                if self.mails.remove(&id).unwrap() {
                    self.tell("removed", &id, from, 0);
                }
            }
        }
    }

    fn push(&mut self) {
        let (id, from) = (self.any_id(), now());
        let policy = [IfQueued::Keep, IfQueued::Replace, IfQueued::Earlier][self.random.usize(0..3)];
        match self.mails.push(Task::new("x").id(id.as_str()).if_queued(policy)).unwrap() {
            Pushed::New => self.tell("new", &id, from, 0),
            Pushed::Again | Pushed::RunsAgain => self.tell("again", &id, from, 0),
            _ => {}
        }
    }

    fn claim(&mut self) -> bool {
        let from = now();
        let Some(job) = self.mails.try_claim().unwrap() else { return false };
        self.tell("claimed", job.id(), from, job.fencing_token().unwrap());
        self.held.push(job);
        true
    }

    /// Ends the claim. The server may refuse the end only if the task was removed in between.
    fn end(&mut self, job: Job, how: u32) {
        let (id, fence, from) = (job.id().to_owned(), job.fencing_token().unwrap(), now());
        let (what, ended) = match how {
            0 => ("acked", job.ack()),
            1 => ("later", job.again_after(Duration::ZERO)),
            _ => ("retried", job.retry_after(Duration::ZERO, "boom")),
        };
        match ended {
            Ok(()) => self.tell(what, &id, from, fence),
            Err(error) => {
                assert!(error.is_lost(), "{error}");
                self.tell("lost", &id, from, fence);
            }
        }
    }

    fn tell(&mut self, what: &str, id: &str, from: u64, fence: u64) {
        writeln!(self.out, "{what} {id} {from} {} {fence}", now()).unwrap();
    }

    fn any_id(&mut self) -> String {
        format!("{}", self.random.usize(0..IDS))
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |part: i64| u64::try_from(part).unwrap();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
