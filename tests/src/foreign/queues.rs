//! Queues of other libraries, for the bench only.
//!
//! A program is called with its server, a number of jobs, and how many of them may be worked on at once. It prints
//! three rates, in jobs per second: pushed one by one, pushed in hundreds, and ended by one worker process whose
//! handler does nothing.

use super::languages::{IOREDIS, npm_packages, python};
use super::toolchain;

/// Another queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherQueue {
    /// For Node: scripts, a lease per job, and a list that wakes workers.
    Bullmq,
    /// For Python: no script for a job. Its worker here starts no process per job, unlike its default one.
    Rq,
}

/// Jobs per second.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Pushed one by one.
    pub one: f64,
    /// Pushed in hundreds.
    pub many: f64,
    /// Ended.
    pub ended: f64,
}

impl OtherQueue {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Bullmq, Self::Rq];

    /// Its name and version.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bullmq => "BullMQ 6.7.0",
            Self::Rq => "RQ 3.0.0",
        }
    }

    /// Like [`Library::is_here`](super::Library::is_here).
    pub fn is_here(self) -> bool {
        let tools: &[&str] = if self == Self::Bullmq { &["node", "npm"] } else { &["python3"] };
        toolchain::has(self.name(), tools)
    }

    /// Runs its program on an empty server.
    pub fn rates(self, url: &str, jobs: usize, at_once: usize) -> Rates {
        let mut command = match self {
            Self::Bullmq => npm_packages(&["bullmq@6.7.0", IOREDIS], include_str!("bullmq.js")),
            Self::Rq => python::with(&["rq==3.0.0", "redis==8.1.0"], include_str!("rq.py")),
        };
        let output = command.arg(url).args([jobs, at_once].map(|n| n.to_string())).output().expect("the program runs");
        let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{} failed: {why}", self.name());
        let numbers: Vec<f64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        Rates { one: numbers[0], many: numbers[1], ended: numbers[2] }
    }
}
