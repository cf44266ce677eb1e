//! Fixtures for the tests of `redlock-sync`: real servers, and a proxy that disturbs the traffic to them.
//!
//! 1. [`Server`]: one private `redis-server` (or Valkey) process. It never outlives its test process.
//! 2. [`Proxy`]: a TCP proxy in front of one server. It acts on whole commands and whole replies.
//! 3. [`eventually`]: waits for a condition with a deadline. Tests use it in place of a fixed sleep.
//! 4. [`Stopwatch`]: measures durations, so that their bounds hold on a busy machine too.
//! 5. [`fork`](fork()): forks a child process.
//! 6. [`mod@bench`]: the code that the benches share.
//! 7. [`foreign`]: programs that use other libraries.
//! 8. [`control`]: the patches that break the library for the negative controls.
//! 9. [`mod@pictures`]: the data of pictures.
//! 10. [`stand_in`]: private servers for the code in README.md and `docs/`.
//!
//! All fixtures panic with a message if the environment lacks something. A missing server fails a test and never skips
//! it.
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
