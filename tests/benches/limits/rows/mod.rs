//! The rows of the table.

mod annotated;
mod guards;
mod handover;
mod keys;
mod local;
mod lost;
mod nodes;
mod observed;
mod outage;
mod pair;
mod permit;
mod readers;
mod takeover;
mod threads;

use std::time::Duration;

use redlock_sync::Mutex;
use redlock_tests::Server;
use redlock_tests::bench::{Outcome, Row, client, clock, row};

/// The length of a block in rows that count operations. It is short, so that raw and ours see the same machine.
const BLOCK: Duration = Duration::from_millis(60);

/// The number of rounds of a row with blocks that take seconds.
const LONG_ROUNDS: usize = 5;

pub(crate) const ROWS: &[Row] = &[
    row("uncontended", "lock + unlock, one node, renewal on", pair::uncontended),
    row("nested", "lock + unlock of a lock that this thread holds", pair::nested),
    row("annotated", "an annotated function against a hand-written guard", annotated::run),
    row("observed", "lock + unlock, and a job, with an observer, against none", observed::run),
    row("threads8", "8 threads, each with a key of its own, one node", threads::own_keys),
    row("handover", "4 processes, one key, hold 1 ms, pause 2 ms", handover::with_pause),
    row("handover0", "4 processes, one key, hold 1 ms, no pause", handover::without_pause),
    row("queue20", "20 threads of one process, one key, 200 ms each", threads::queue),
    row("local8", "8 threads of one process, one key, no hold", local::alone),
    row("local8x2", "the same beside a second such process", local::beside),
    row("nodes5", "lock + unlock, 5 nodes", nodes::loopback),
    row("nodes5delay", "lock + unlock, 5 nodes, each 1 ms away", nodes::delayed),
    row("permits", "acquire + release of a permit, one node", permit::permits),
    row("keys8", "lock of 8 free keys", permit::several_keys),
    row("stopped", "5 nodes, one of them stopped", outage::stopped),
    row("killed", "5 nodes, one of them killed", outage::killed),
    row(
        "readers",
        "a read-write lock: read + unlock, write + unlock, and beside a reader of the same process",
        readers::run,
    ),
    row("takeover", "100 locks whose holder is killed, lease 1.5 s", takeover::one_node),
    row("takeover5", "the same on 5 nodes", takeover::five_nodes),
    row("lost", "300 locks whose keys are deleted one by one", lost::one_node),
    row("lost3", "the same on 3 nodes", lost::three_nodes),
    row("contended5", "4 processes, one key, 5 nodes, hold 1 ms", nodes::contended),
    row("guards1000", "1 000 guards with a lease of 6 s", guards::run),
    row("keys100k", "100 000 other keys on the server, against none", keys::run),
];

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// A mutex of a new client.
fn mutex(urls: &[String], key: &str) -> Outcome<Mutex> {
    Ok(client(urls).build()?.mutex(key))
}

/// Measures the time of each of `n` pairs of lock and unlock.
fn pairs(mutex: &Mutex, n: usize, samples: &mut Vec<u64>) -> Outcome<()> {
    for _ in 0..n {
        let start = clock::now();
        mutex.lock()?.unlock()?;
        samples.push(clock::now() - start);
    }
    Ok(())
}
