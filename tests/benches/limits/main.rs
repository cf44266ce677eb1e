//! Measures what one operation of the library costs, beside bare connections in the same run.
//!
//! ```text
//! cargo bench --bench limits                   measures all rows: three minutes
//! cargo bench --bench limits -- --list         names the rows
//! cargo bench --bench limits -- pair local8    measures these rows
//! cargo bench --bench limits -- --quick        shorter blocks, and no gates: to try it
//! ```
//!
//! Each row is in a file of `rows/`. A *gate* is a limit that a line must keep: if it does not, the exit code is 1. A
//! line without a gate is a reading. The columns *ours* and *raw* are medians over the rounds, and *ours/raw* is the
//! median of the ratios of the rounds. *Spread* is the least and the greatest round of the value that the gate judges.
//!
//! A round is a series of short blocks: raw, ours, raw, ours. So other work of the machine slows both, and ratios vary
//! less than times. Blocks of one thread take a few milliseconds, and blocks of several processes seconds. One block of
//! each comes first and does not count. The first line of the output has the load of the machine before the run.
//!
//! *Raw* is what no implementation can avoid, by bare connections of the crate `redis` and requests that are packed
//! beforehand: `SET NX PX` and a script that compares and deletes, or a list with LPUSH and BLPOP.
//!
//! Clients have default settings, except for a node timeout of 2 s where it plays no part. Then a server that gets no
//! processor time makes a row slow, and fails no call. Two holders at once end a row with an error.
//!
//! On a virtual machine whose idle cores sleep, waking a core takes longer than all else. This loop of the lowest
//! priority, one for each core, keeps them awake: `chrt -i 0 sh -c 'while :; do :; done' &`.
//!
//! The benches need Linux, and a server like the tests. The code that they share is in `redlock_tests::bench`. Other
//! processes are this program with the argument `--worker`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark that cannot do its work ends with a message; it measures by the real clock"
)]

mod rows;

use std::process::ExitCode;

use redlock_tests::bench::Bench;

fn main() -> ExitCode {
    Bench { name: "limits", rows: rows::ROWS, worker: rows::worker }.main()
}
