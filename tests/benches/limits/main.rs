//! What the library costs, as ratios to the raw limit. See the README beside this file.
//!
//! 1. `rows/`: what is measured, one idea to a file.
//! 2. `worker/`: other processes, which are this binary with a hidden argument.
//!
//! What it shares with other benches is in `redlock_tests::bench`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark that cannot do its work ends with a message; it measures by the real clock"
)]

mod rows;
mod worker;

use std::process::ExitCode;

use redlock_tests::bench::Bench;

fn main() -> ExitCode {
    Bench { name: "limits", rows: rows::ROWS, worker: worker::serve }.main()
}
