//! The rows of the table.

mod crates;
mod crowd;
mod drops;
mod foreign;
mod handover;
mod idle;
mod mixed;
mod order;
mod queue;
mod queues;
mod readers;
mod slow;
mod stopped;
mod threads;
mod trylocks;
mod twohang;
mod wakes;

use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Row, row};

pub(crate) const ROWS: &[Row] = &[
    row("threads", "1 to 600 threads with a key each, no hold, one node, beside rslock", threads::run),
    row("crates", "1, 8 and 128 threads with a key each, no hold, beside other Rust crates of locks", crates::run),
    row("threads1ms", "1, 8, 32 threads with a key each, no hold, 1 ms away", threads::run_delayed),
    row("fanout", "1 and 32 threads with a key each, no hold, five nodes", threads::run_on_five),
    row("crowd", "600 and 1 000 threads with a key each, hold 20 ms, pause 20 ms", crowd::run),
    row("stopped", "200 such threads, the server stopped for 3 s", stopped::run),
    row("drops", "100 guards dropped while the server hangs", drops::run),
    row("trylocks", "500 threads try_lock free locks at once, 10 ms round trip", trylocks::run),
    row("slow", "300 threads with a key each, no hold, 10 ms round trip", slow::run),
    row("wakes", "threads that wait for a key each, of which one is freed each 5 ms", wakes::run),
    row("idle", "400 and 1 000 threads that only wait", idle::run),
    row("mixed", "one key, three processes, one of them with 16 other waits", mixed::run),
    row("order", "one key, 30 clients: the order of service", order::run),
    row("handover", "4 processes, one key, hold 1 ms, no pause", handover::run),
    row("readers", "8 processes that read one key, and a writer beside 64 readers of one process", readers::run),
    row("foreign", "4 processes and a program of another library, one key, hold 2 ms, pause 2 ms", foreign::run),
    row("twohang", "two of three nodes hang while a waiter arrives", twohang::run),
    row("queue", "tasks: push, claim + ack, push to claimed, a million waiting, a thousand idle threads", queue::run),
    row("queues", "tasks beside BullMQ (Node, Rust) and RQ: pushes, and a worker whose handler is empty", queues::run),
];

/// A line with one number.
fn alone(measure: impl Into<String>, unit: &'static str, value: f64, bar: Bar) -> Line {
    Line::new(measure, unit, Rounds::alone(vec![value]), bar)
}

/// A line with a count that must be zero.
fn none(measure: impl Into<String>, count: u64) -> Line {
    alone(measure, "", float(count), Bar::AtMost(0.0))
}
