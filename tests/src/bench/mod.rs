//! The code that the benches share. They need Linux.
//!
//! 1. `run.rs`, `options.rs`: from the command line to the table.
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

/// The node timeout. It is long, so that a busy machine makes a slow row and not an error.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of a client of these servers: the defaults, but for the node timeout.
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
    /// The main function of a worker, by its kind and arguments.
    pub worker: fn(&str, &[String]) -> Outcome<()>,
}

/// A row: what is measured, in one or several lines.
#[derive(Debug)]
pub struct Row {
    /// The name by which it is selected.
    pub name: &'static str,
    /// The description for `--list`.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(Plan) -> Outcome<Vec<Line>>,
}

/// A row of a bench.
pub const fn row(name: &'static str, about: &'static str, run: fn(Plan) -> Outcome<Vec<Line>>) -> Row {
    Row { name, about, run }
}

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// A quick run, whose numbers mean nothing.
    pub quick: bool,
}

impl Plan {
    /// Rounds of a row: at least three, and the median is what counts.
    pub fn rounds(self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    /// Blocks in a round of a row whose blocks are short.
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
