//! Runs a bench, from its command line to its last line.

use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{env, fs, thread};

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

    /// Runs the rows. Returns true if all of them could be measured.
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

    fn measure(&mut self, row: &Row, plan: Plan) {
        match (row.run)(plan) {
            Ok(lines) => lines.iter().for_each(|line| self.add(row.name, line)),
            Err(error) => self.fail(row.name, &error.to_string()),
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

/// The version of the server.
fn server_version() -> String {
    let said = Command::new(find::server()).arg("--version").output();
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split(" sha=").next().unwrap_or_default().trim().to_owned()
}

fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}

/// The load average of the last minute. It shows other work on the machine.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
