//! A worker process. Its threads claim tasks and end them in time, late, or not at all.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Job, Queue};

use super::history::Log;
use super::queue;
use crate::clock::{MS, now};

/// The longest time for which a slow task runs. It exceeds a short lease.
const SLOW: Duration = Duration::from_secs(2);
/// The time for which a thread waits for a task in one call.
const WAIT: Duration = Duration::from_secs(5);

/// The main function of a worker. The arguments are `URL LOG LEASE-IN-MS SEED THREADS`. The worker runs until the end
/// of stdin.
pub(crate) fn main(args: &[String]) {
    let [url, log, lease, seed, threads] = args else { panic!("five words are wanted, not {args:?}") };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let log = Arc::new(Log::new(File::create(Path::new(log)).expect("the log can be made")));
    let is_over = Arc::new(AtomicBool::new(false));
    let mails = queue(url, lease);
    let seed: u64 = seed.parse().unwrap();
    let threads: Vec<_> = (0..threads.parse().unwrap())
        .map(|thread: u64| {
            let random = fastrand::Rng::with_seed(seed * 1000 + thread);
            let worker = Worker {
                thread,
                mails: mails.clone(),
                lease,
                log: Arc::clone(&log),
                is_over: Arc::clone(&is_over),
                random,
            };
            thread::spawn(move || worker.work())
        })
        .collect();
    stdin().read_to_end(&mut Vec::new()).expect("stdin can be read");
    is_over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().expect("a thread of the worker has panicked");
    }
}

struct Worker {
    thread: u64,
    mails: Queue,
    lease: Duration,
    log: Arc<Log>,
    is_over: Arc<AtomicBool>,
    random: fastrand::Rng,
}

impl Worker {
    fn work(mut self) {
        while !self.is_over.load(Ordering::SeqCst) {
            let mails = self.settings();
            let from = now();
            self.log.line(&format!("wait {} {from}", self.thread));
            // If the worker does not run for the length of a lease after the claim, the claim is lost. Then its fencing
            // token is not known.
            let with_fence = |job: Job| job.fencing_token().map(|fence| (job, fence));
            match mails.try_claim_for(WAIT).and_then(|job| job.map(with_fence).transpose()) {
                Ok(Some((job, fence))) => {
                    let to = now();
                    self.log.line(&format!("claim {} {from} {to} {} {fence} {}", self.thread, job.id(), job.attempt()));
                    self.handle(job, fence);
                }
                Ok(None) => self.log.line(&format!("none {} {from} {}", self.thread, now())),
                Err(error) => self.log.line(&format!("failed {} {from} {} {}", self.thread, now(), word(&error))),
            }
        }
    }

    /// Draws the settings of a claim. Most claims are renewed. The others can expire during the work.
    fn settings(&mut self) -> Queue {
        match self.random.u32(0..20) {
            0..3 => self.mails.clone().renew(false),
            3 => self.mails.clone().max_hold(self.lease),
            _ => self.mails.clone(),
        }
    }

    fn handle(&mut self, job: Job, fence: u64) {
        let is_slow = self.random.u32(0..100) < 3;
        let length = if is_slow { SLOW.min(self.lease * 3 / 2) } else { Duration::from_millis(self.random.u64(1..40)) };
        let until = now() + u64::try_from(length.as_nanos()).unwrap();
        while now() < until {
            thread::sleep(Duration::from_nanos((until - now().min(until)).min(20 * MS)));
            let from = now();
            if job.check().is_ok() {
                self.log.line(&format!("check {} {fence} {from}", job.id()));
            }
        }
        self.end(job, fence);
    }

    fn end(&mut self, job: Job, fence: u64) {
        let (id, from) = (job.id().to_owned(), now());
        let how = ["ack", "ack", "ack", "ack", "ack", "ack", "ack", "retry", "drop", "fail"][self.random.usize(0..10)];
        self.log.line(&format!("ending {id} {fence} {from} {how}"));
        let ended = match how {
            "ack" => job.ack(),
            "retry" => job.retry("on purpose"),
            "fail" => job.fail("on purpose"),
            _ => {
                drop(job);
                Err(Error::Closed)
            }
        };
        let outcome = if how == "drop" { "unknown" } else { ended.as_ref().map_or_else(word, |()| "ok") };
        self.log.line(&format!("ended {id} {fence} {from} {} {how} {outcome}", now()));
    }
}

fn word(error: &Error) -> &'static str {
    match error {
        Error::Lost { .. } => "lost",
        Error::Unconfirmed { .. } => "unconfirmed",
        Error::Unavailable { .. } => "unavailable",
        _ => "other",
    }
}
