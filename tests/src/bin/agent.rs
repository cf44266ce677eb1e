//! Processes that tests start, to have several processes, or one to kill: `agent SUBCOMMAND [ARGUMENTS]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test process fails with a message, and waits by the real clock"
)]

use std::io::Read;
use std::{env, io};

use redlock_tests::Server;

#[path = "agent/built.rs"]
mod built;
#[path = "agent/contend.rs"]
mod contend;
#[path = "agent/cycles.rs"]
mod cycles;
#[path = "agent/environment.rs"]
mod environment;
#[path = "agent/holders.rs"]
mod holders;
#[path = "agent/journal.rs"]
mod journal;
#[path = "agent/paused.rs"]
mod paused;
#[path = "agent/queue.rs"]
mod queue;
#[path = "agent/queue_all.rs"]
mod queue_all;
#[path = "agent/readers.rs"]
mod readers;
#[path = "agent/starved.rs"]
mod starved;
#[path = "agent/stopping.rs"]
mod stopping;
#[path = "agent/tls.rs"]
mod tls;
#[path = "agent/waiters.rs"]
mod waiters;
#[path = "agent/workers.rs"]
mod workers;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("server") => server(),
        Some("environment") => environment::main(),
        Some("replaced") => environment::replaced(),
        Some("forked-beside-users") => environment::forked_beside_users(),
        Some("paused") => paused::run(args.get(1..).unwrap_or_default()),
        Some("hold" | "fork" | "fork-after-drop" | "fork-often" | "hear") => holders::main(&args),
        Some("built") => built::main(&args[1..]),
        Some("contend") => contend::main(&args[1..]),
        Some("wait") => waiters::main(&args[1..]),
        Some("journal") => journal::main(&args[1..]),
        Some("starved") => starved::main(&args[1..]),
        Some("starving") => starved::starving(&args[1..]),
        Some("stopping") => stopping::main(&args[1..]),
        Some("tls") => tls::main(&args[1..]),
        Some("workers") => workers::main(&args[1..]),
        Some("rw") => readers::main(&args[1..]),
        Some("queue") => queue::main(&args[1..]),
        Some("queue-all") => queue_all::main(&args[1..]),
        Some("cycles") => cycles::main(&args[1..]),
        other => panic!("no such subcommand: {other:?}"),
    }
}

/// Holds a server in a static, which is never dropped. Prints the process id and the directory of the server. Then
/// waits until stdin ends.
fn server() {
    static SERVER: std::sync::LazyLock<Server> = std::sync::LazyLock::new(Server::start);
    println!("{}\n{}", SERVER.pid(), SERVER.dir().display());
    io::stdin().read_to_end(&mut Vec::new()).expect("stdin can be read");
}
