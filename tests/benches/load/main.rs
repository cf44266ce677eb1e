//! What hundreds of threads, hanging servers and long ways cost. See the README beside this file.
//!
//! 1. `rows/`: what is measured, one idea to a file.
//! 2. `crew.rs`: threads that lock and unlock, by the library and by bare connections.
//! 3. `sides.rs`: the servers and connections of both.
//! 4. `witness.rs`: leases that must outlive a load.
//! 5. `census.rs`: how many connections a client has.
//! 6. `worker.rs`: other processes, which are this binary with a hidden argument.
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

mod census;
mod crew;
mod rows;
mod sides;
mod witness;
mod worker;

use std::process::ExitCode;

use redlock_tests::bench::Bench;

fn main() -> ExitCode {
    Bench { name: "load", rows: rows::ROWS, worker: worker::serve }.main()
}
