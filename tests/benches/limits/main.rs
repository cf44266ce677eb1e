//! Measures what the library costs, as ratios to the raw limit. See the README beside this file.
//!
//! 1. `rows/`: the measurements, one idea in each file.
//! 2. `worker/`: other processes, which run this binary with a hidden argument.
//!
//! The code that benches share is in `redlock_tests::bench`.
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
