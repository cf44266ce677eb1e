//! Measures what hundreds of threads, hanging servers and long distances cost. See the README beside this file.
//!
//! 1. `rows/`: the measurements, one idea in each file.
//! 2. `crew.rs`: threads that lock and unlock, with the library and with bare connections.
//! 3. `sides.rs`: the servers and connections of both sides.
//! 4. `witness.rs`: leases that must outlive a load.
//! 5. `worker/`: other processes, which run this binary with a hidden argument.
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
