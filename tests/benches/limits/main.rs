//! What the library costs, as ratios to the raw limit. See the README beside this file.
//!
//! 1. `options.rs`: the command line.
//! 2. `clock.rs`, `stats.rs`, `table.rs`: time, numbers, and how they are shown.
//! 3. `raw.rs`: the raw limit.
//! 4. `delay.rs`: a proxy that makes the way to a server longer.
//! 5. `worker/`: other processes, which are this binary with a hidden argument.
//! 6. `rows/`: what is measured, one idea to a file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark that cannot do its work ends with a message; it measures by the real clock"
)]

mod clock;
mod delay;
mod options;
mod raw;
mod rows;
mod stats;
mod table;
mod worker;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use options::{Options, USAGE};
use rows::{Plan, ROWS, Row};
use table::Line;

/// How long a node may take: so long that a busy machine makes a slow row and not an error.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of a client of these servers: the defaults, but for the node timeout.
pub(crate) fn client(urls: &[String]) -> redlock_sync::Builder {
    redlock_sync::Redlock::builder().nodes(urls).node_timeout(NODE_TIMEOUT)
}

/// What went well, or why not.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == worker::HIDDEN) {
        return worker::child::serve(&args[1..]);
    }
    if args.is_empty() {
        println!("{USAGE}"); // `cargo test --all-targets` starts benches too, without an argument.
        return ExitCode::SUCCESS;
    }
    match Options::read(&args).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the rows; whether all of them could be measured.
fn run(options: &Options) -> Outcome<bool> {
    let chosen = choose(options)?;
    if options.list {
        for row in chosen {
            println!("{:13} {}", row.name, row.about);
        }
        return Ok(true);
    }
    let (start, load) = (Instant::now(), load());
    let server = rows::server_version();
    let mut report = Report { json: options.json, ..Report::default() };
    report.say(&format!(
        "{server}, {} cores, load {load} before{}",
        cores(),
        if options.quick { ", quick" } else { "" }
    ));
    report.say(&table::head());
    for row in chosen {
        match (row.run)(Plan { quick: options.quick }) {
            Ok(lines) => {
                for line in &lines {
                    report.add(row.name, line);
                }
            }
            Err(error) => report.fail(row.name, &error.to_string()),
        }
    }
    let seconds = start.elapsed().as_secs();
    report.say(&format!("{} of {} bars met; {seconds} s", report.met, report.bars));
    if report.json {
        let (lines, failures) = (report.lines.join(","), report.failures.join(","));
        let (server, load) = (table::quoted(&server), table::quoted(&load));
        println!(
            "{{\"server\":{server},\"cores\":{},\"load\":{load},\"quick\":{},\"seconds\":{seconds},\
             \"lines\":[{lines}],\"errors\":[{failures}]}}",
            cores(),
            options.quick
        );
    }
    Ok(report.failures.is_empty())
}

fn choose(options: &Options) -> Outcome<Vec<&'static Row>> {
    let Some(only) = &options.only else { return Ok(ROWS.iter().collect()) };
    let find = |name: &String| {
        ROWS.iter().find(|row| row.name == name).ok_or_else(|| format!("no row `{name}`; see --list").into())
    };
    only.iter().map(find).collect()
}

/// What came out: told at once as text, or kept for one JSON object.
#[derive(Default)]
struct Report {
    json: bool,
    lines: Vec<String>,
    failures: Vec<String>,
    bars: usize,
    met: usize,
}

impl Report {
    fn say(&self, text: &str) {
        if self.json {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
    }

    fn add(&mut self, row: &str, line: &Line) {
        self.say(&line.text(row));
        self.lines.push(line.json(row));
        self.bars += usize::from(line.met().is_some());
        self.met += usize::from(line.met() == Some(true));
    }

    fn fail(&mut self, row: &str, error: &str) {
        self.say(&format!("| {row} | ERROR: {error} |"));
        self.failures.push(format!("{{\"row\":{},\"error\":{}}}", table::quoted(row), table::quoted(error)));
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}

/// The load average of the last minute: what else this machine is doing.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
