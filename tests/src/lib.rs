//! Fixtures for the tests of `redlock-sync`: real servers and a proxy that injures the traffic to them.
//!
//! 1. [`Server`]: one private `redis-server` (or Valkey) process, that never outlives its test process.
//! 2. [`Proxy`]: a TCP proxy in front of one server that acts on whole commands and whole replies.
//! 3. [`eventually`]: waits for a condition with a deadline; no test sleeps and hopes.
//! 4. [`Stopwatch`]: bounds on durations that a busy machine keeps too.
//! 5. [`fork`](fork()): a forked child.
//! 6. [`mod@bench`]: what the benches share.
//! 7. [`foreign`]: programs of other libraries.
//! 8. [`control`]: the patches that break the library for the negative controls.
//! 9. [`mod@pictures`]: what the program of that name shares with its test.
//! 10. [`stand_in`]: private servers for the code in README.md and `docs/`.
//!
//! Everything here panics with a message when the environment fails it: a missing server fails a test, it never
//! skips one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::disallowed_methods,
    reason = "a fixture that cannot do its work fails the test at once, with a message; it also waits by the real clock"
)]

pub mod bench;
pub mod control;
pub mod foreign;
mod fork;
mod pace;
pub mod pictures;
mod proxy;
mod samples;
mod server;
mod wait;

pub use fork::{ended, fork, wait_for};
pub use pace::{Stopwatch, Took, open, patient, rounds};
pub use proxy::{Act, Fault, Proxy, Seen};
pub use samples::stand_in;
pub use server::{Builder, Cluster, Group, Server, find, servers};
pub use wait::{eventually, poll};
