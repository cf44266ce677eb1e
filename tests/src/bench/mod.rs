//! The code that the benches share. The benches need Linux.
//!
//! 1. `run.rs`, `options.rs`: a run from its command line to its table.
//! 2. [`clock`], [`stats`], [`table`]: time, numbers, and their output.
//! 3. [`raw`]: the raw limit.
//! 4. [`delay`]: a proxy that delays requests.
//! 5. [`worker`], [`ring`]: other processes, which run the binary of the bench with a hidden argument.
//! 6. [`counts`]: the number of requests to a server.
#![allow(clippy::missing_errors_doc, reason = "every error here ends a row of the table, with its message")]

pub mod clock;
pub mod counts;
pub mod delay;
mod options;
pub mod raw;
pub mod ring;
mod run;
pub mod stats;
pub mod table;
pub mod worker;

use std::error::Error;
use std::time::Duration;

use table::Line;

/// The result of a measurement.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The node timeout. It is long, so that a busy machine makes a row slow and does not make it fail.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings of a client of these servers. They are the defaults, except for the node timeout.
pub fn client(urls: &[String]) -> redlock_sync::Builder {
    redlock_sync::Redlock::builder().nodes(urls).node_timeout(NODE_TIMEOUT)
}

/// A bench: its rows, and the work of its other processes.
#[derive(Debug)]
pub struct Bench {
    /// The name for `cargo bench --bench`.
    pub name: &'static str,
    /// The rows, in the order in which they run.
    pub rows: &'static [Row],
    /// The main function of a worker. Its parameters are the kind and the arguments of the worker.
    pub worker: fn(&str, &[String]) -> Outcome<()>,
}

/// A row, which measures one thing in one or more lines.
#[derive(Debug)]
pub struct Row {
    /// The name that selects the row on the command line.
    pub name: &'static str,
    /// The description for `--list`.
    pub about: &'static str,
    /// The function that measures the row.
    pub run: fn(Plan) -> Outcome<Vec<Line>>,
}

/// Creates a row of a bench.
pub const fn row(name: &'static str, about: &'static str, run: fn(Plan) -> Outcome<Vec<Line>>) -> Row {
    Row { name, about, run }
}

/// The size of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// True for a quick run. Its numbers mean nothing.
    pub quick: bool,
}

impl Plan {
    /// The number of rounds of a row. It is at least three, and the median counts.
    pub fn rounds(self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    /// The number of blocks in a round, for rows with short blocks.
    pub fn blocks(self) -> usize {
        if self.quick { 3 } else { 15 }
    }

    /// The length of a block.
    pub fn span(self, full: Duration) -> Duration {
        if self.quick { full / 5 } else { full }
    }

    /// The size of a block.
    pub fn count(self, full: usize) -> usize {
        if self.quick { full / 5 } else { full }
    }
}
