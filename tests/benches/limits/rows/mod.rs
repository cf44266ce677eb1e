//! The rows of the table.

mod guards;
mod handover;
mod local;
mod nodes;
mod pair;
mod takeover;

use redlock_sync::Mutex;
use redlock_tests::Server;
use redlock_tests::bench::stats::timed;
use redlock_tests::bench::{Outcome, Row, client, ring, row};

/// The number of rounds of a row with blocks that take seconds.
const LONG_ROUNDS: usize = 5;

pub(crate) const ROWS: &[Row] = &[
    row("pair", "one thread, one server", pair::uncontended),
    row("nested", "a lock that this thread holds already", pair::nested),
    row("kinds", "other kinds of locks, one thread, one server", pair::kinds),
    row("observed", "a client with an observer", pair::observed),
    row("nodes5", "one thread, five servers", nodes::pair),
    row("stopped5", "five servers, one of them stopped", nodes::one_stopped),
    row("handover", "four processes and one lock, hold 1 ms, no pause", handover::one_node),
    row("handover5", "the same on five servers", handover::five_nodes),
    row("local8", "eight threads of one process and one lock, no hold", local::run),
    row("takeover", "a process is killed that holds 40 locks; a thread waits for each", takeover::run),
    row("guards1000", "1 000 locks held for 20 s, lease 6 s", guards::run),
];

/// The main function of a worker process.
pub(crate) fn worker(kind: &str, args: &[String]) -> Outcome<()> {
    match kind {
        "ring" => ring::child(args),
        "guards" => guards::child(args),
        "holder" => takeover::child(args),
        other => Err(format!("no such worker: {other}").into()),
    }
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// A mutex of a new client.
fn mutex(urls: &[String], key: &str) -> Outcome<Mutex> {
    Ok(client(urls).build()?.mutex(key))
}

/// Measures the time of each of `n` pairs of lock and unlock.
fn pairs(mutex: &Mutex, n: usize, samples: &mut Vec<u64>) -> Outcome<()> {
    timed(n, samples, || Ok(mutex.lock()?.unlock()?))
}
