//! Queues of other libraries, for the bench only.
//!
//! The arguments of a program are its server, a number of jobs, and how many jobs it may handle at once. It prints
//! three rates in jobs per second: pushed one by one, pushed in hundreds, and ended. One worker process ends the jobs,
//! and its handler does nothing.

use super::languages::{IOREDIS, npm_packages, python, rust};
use super::toolchain;

/// A queue of another library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherQueue {
    /// A queue for Node. It uses scripts, a lease for each job, and a list that wakes workers.
    Bullmq,
    /// The official client of `BullMQ` for Rust, which runs on Tokio.
    BullmqRust,
    /// A queue for Python. It uses no script for a job. Its default worker starts a process for each job, but the
    /// worker here does not.
    Rq,
}

/// The measured rates, in jobs per second.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// The rate of jobs that are pushed one by one.
    pub one: f64,
    /// The rate of jobs that are pushed in hundreds.
    pub many: f64,
    /// The rate of jobs that are ended.
    pub ended: f64,
}

impl Rates {
    /// The rates in the order of the fields.
    pub fn all(self) -> [f64; 3] {
        [self.one, self.many, self.ended]
    }
}

impl OtherQueue {
    /// The name and version of the queue.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bullmq => "BullMQ 6.7.0",
            Self::BullmqRust => "BullMQ for Rust 1.4.4",
            Self::Rq => "RQ 3.0.0",
        }
    }

    /// Works like [`Library::is_here`](super::Library::is_here).
    pub fn is_here(self) -> bool {
        let tools: &[&str] = match self {
            Self::Bullmq => &["node", "npm"],
            Self::BullmqRust => &[],
            Self::Rq => &["python3"],
        };
        toolchain::has(self.name(), tools)
    }

    /// Runs the program on an empty server.
    pub fn rates(self, url: &str, jobs: usize, at_once: usize) -> Rates {
        let mut command = match self {
            Self::Bullmq => npm_packages(&["bullmq@6.7.0", IOREDIS], include_str!("bullmq.js")),
            Self::BullmqRust => rust("bullmq"),
            Self::Rq => python::with(&["rq==3.0.0", "redis==8.1.0"], include_str!("rq.py")),
        };
        let output = command.arg(url).args([jobs, at_once].map(|n| n.to_string())).output().expect("the program runs");
        let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{} failed: {why}", self.name());
        let numbers: Vec<f64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        Rates { one: numbers[0], many: numbers[1], ended: numbers[2] }
    }
}
