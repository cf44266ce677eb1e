//! Runs a bench, from its command line to its last line.

use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{env, fs, thread};

use serde_json::{Value, json};

use super::options::{self, Options};
use super::table::{self, Line};
use super::worker;
use super::{Bench, Outcome, Plan, Row};
use crate::find;

impl Bench {
    /// The main function of the bench.
    pub fn main(&self) -> ExitCode {
        let args: Vec<String> = env::args().skip(1).collect();
        if args.first().is_some_and(|first| first == worker::HIDDEN) {
            return worker::serve(self.worker, &args[1..]);
        }
        if args.is_empty() {
            println!("{}", options::usage(self.name)); // `cargo test --all-targets` starts benches without an argument.
            return ExitCode::SUCCESS;
        }
        match Options::read(self.name, &args).and_then(|options| self.run(&options)) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Runs the rows. Returns true if all of them could be measured, and each line keeps its gate. A quick run has no
    /// gates, since its blocks are too short.
    fn run(&self, options: &Options) -> Outcome<bool> {
        let chosen = self.choose(&options.only)?;
        if options.list {
            for row in chosen {
                println!("{:13} {}", row.name, row.about);
            }
            return Ok(true);
        }
        let (start, load) = (Instant::now(), load());
        let server = server_version();
        let mut report = Report { json: options.json, ..Report::default() };
        report.say(&format!(
            "{server}, {} cores, load {load} before{}",
            cores(),
            if options.quick { ", quick" } else { "" }
        ));
        report.say(&table::head());
        for row in chosen {
            report.measure(row, Plan { quick: options.quick });
        }
        let seconds = start.elapsed().as_secs();
        report.say(&format!("{seconds} s"));
        report.failures.iter().for_each(|failure| eprintln!("FAILED: {failure}"));
        if report.json {
            let head = json!({
                "server": server, "date": date(), "cores": cores(), "load": load, "quick": options.quick,
                "seconds": seconds, "failed": report.failures,
            });
            let lines: Vec<String> = report.lines.iter().map(Value::to_string).collect();
            println!("{{\"head\":{head},\n\"lines\":[\n{}\n]}}", lines.join(",\n"));
        }
        Ok(report.failures.is_empty())
    }

    /// The rows with these names, or all rows.
    fn choose(&self, names: &[String]) -> Outcome<Vec<&'static Row>> {
        if names.is_empty() {
            return Ok(self.rows.iter().collect());
        }
        let find = |name: &String| {
            self.rows.iter().find(|row| row.name == name).ok_or_else(|| format!("no row `{name}`; see --list").into())
        };
        names.iter().map(find).collect()
    }
}

/// The results. They are printed at once as text, or collected for one JSON object.
#[derive(Default)]
struct Report {
    json: bool,
    lines: Vec<Value>,
    /// The rows that ended with an error, and the lines that do not keep their gates.
    failures: Vec<String>,
}

impl Report {
    fn say(&self, text: &str) {
        if self.json {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
    }

    fn measure(&mut self, row: &Row, plan: Plan) {
        match (row.run)(plan) {
            Ok(lines) => lines.iter().for_each(|line| self.add(row, line, plan)),
            Err(error) => self.failures.push(format!("{}: {error}", row.name)),
        }
    }

    fn add(&mut self, row: &Row, line: &Line, plan: Plan) {
        self.say(&line.text(row.name));
        self.lines.push(line.json(row));
        if !plan.quick && !line.is_kept() {
            self.failures.push(line.text(row.name));
        }
    }
}

/// The name and version of the server, as `Valkey 9.1.2`.
fn server_version() -> String {
    let text = said(find::server().as_os_str(), &["--version"]);
    let version = text.split_once("v=").map_or("", |(_, rest)| rest.split(' ').next().unwrap_or_default());
    let name = if text.contains("Valkey") { "Valkey" } else { "Redis" };
    format!("{name} {version}")
}

fn date() -> String {
    said("date".as_ref(), &["--utc", "+%F"]).trim().to_owned()
}

fn said(program: &OsStr, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}

/// The load average of the last minute. It shows other work on the machine.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
