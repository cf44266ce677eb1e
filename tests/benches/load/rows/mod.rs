//! The rows of the table.

mod crates;
mod crowd;
mod foreign;
mod idle;
mod queue;
mod queues;
mod threads;

use redlock_tests::bench::{Outcome, Row, ring, row};

pub(crate) const ROWS: &[Row] = &[
    row("threads", "a key for each thread, no hold", threads::run),
    row("crates", "a key for each thread or task, no hold: other Rust crates", crates::run),
    row("crowd", "1 000 threads with a key each, hold 20 ms, pause 20 ms", crowd::run),
    row("stopped", "200 such threads, and the server is stopped for 3 s", crowd::stopped),
    row("idle", "1 000 threads that only wait", idle::run),
    row("foreign", "processes and one lock, hold 2 ms, pause 2 ms: other libraries", foreign::run),
    row("queue", "a queue of tasks, bodies of 100 bytes", queue::run),
    row("queues", "a queue of tasks, a worker whose handler does nothing: other queues", queues::run),
];

/// The main function of a worker process.
pub(crate) fn worker(kind: &str, args: &[String]) -> Outcome<()> {
    match kind {
        "ring" => ring::child(args),
        "waiters" => idle::child(args),
        other => Err(format!("no such worker: {other}").into()),
    }
}
