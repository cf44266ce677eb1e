//! Measures hundreds of threads, hanging servers, programs of other libraries, and queues. Under such loads a client
//! that is fast with eight threads can collapse.
//!
//! ```text
//! cargo bench --bench load                     measures all rows: seven minutes
//! cargo bench --bench load -- --list           names the rows
//! cargo bench --bench load -- threads crowd    measures these rows
//! ```
//!
//! The head of the bench `limits` says how to read the output, and what *raw* and a *gate* are.
//!
//! - Clients have default settings, including the node timeout of 250 ms. So a row also shows whether a busy client
//!   takes its own queue for a silent server. Errors go to stderr, with the first one of each load.
//! - `threads`: each thread has a bare connection, or a lock of its own of one client. rslock and other async crates
//!   run as many tasks, in a process of their own.
//! - `crates`: programs of other Rust crates. If threads use an async crate, each calls `block_on`.
//! - `foreign`: one program of another library beside four processes of ours, and four such programs alone. They lock
//!   by their defaults, and try again when these give up. A program beside ours begins 0.2 s later, and ends 0.2 s
//!   earlier. Its longest wait counts from its first turn on, since ours learn of it then.
//! - `queues`: a worker whose handler does nothing.
//!
//! The bench needs what `limits` needs, and 4 000 file descriptors. The rows `crates`, `foreign` and `queues` also need
//! python3 with pip, node with npm, Go, Java with Maven, and cargo with its registry. They leave out what is missing,
//! and name it. Other libraries are downloaded once, into the target directory, and built there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark that cannot do its work ends with a message; it measures by the real clock"
)]

mod crew;
mod rows;
mod sides;

use std::process::ExitCode;

use redlock_tests::bench::Bench;

fn main() -> ExitCode {
    Bench { name: "load", rows: rows::ROWS, worker: rows::worker }.main()
}
