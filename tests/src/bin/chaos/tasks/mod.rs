//! A chaos run with workers: `chaos --tasks N`. One queue is on one server, which keeps its data, or on a Sentinel
//! group. Worker processes claim tasks, renew and lose claims, and end them in time or late. The nemesis kills some
//! workers.
//!
//! 1. `args.rs`: the command line. `feeder.rs`: pushes the tasks. `client.rs`: a worker process.
//! 2. `place.rs`: the servers of the queue. `nemesis.rs`: the faults, a function of the seed.
//! 3. `history.rs`: the history of the run. `checkers.rs`: the rules that it must keep to.

mod args;
mod checkers;
pub(crate) mod client;
mod feeder;
mod history;
mod nemesis;
mod place;

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Queue, Redlock, Retry};
use redlock_tests::{Server, poll};

use crate::clock::{SEC, now};
use crate::group;
use crate::run::FOUND;
use crate::timing;
use args::Options;
use checkers::{Verdicts, judge};
use feeder::Feeder;
use history::{History, Left};
use nemesis::Field;
use place::Place;

/// The time limit for the tasks that are left after all faults.
const LAST_WORK: Duration = Duration::from_secs(60);
/// The pause between two checks of the history so far.
const LOOK: Duration = Duration::from_millis(500);
/// The name of the log of the run itself.
const OWN: &str = "run.log";

/// True if these arguments select this run.
pub(crate) fn is_meant(words: &[String]) -> bool {
    words.iter().any(|word| word == "--tasks")
}

/// Makes the run. The exit code is 1 if a rule was violated.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let options = match args::parse(words) {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("{mistake}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    println!("seed {}", options.seed);
    if options.is_schedule {
        for fault in nemesis::schedule(&options) {
            println!("{fault}");
        }
        return ExitCode::SUCCESS;
    }
    if options.safety {
        timing::judge_safety_only();
    }
    let dir = folder(&options);
    let history = run(&options, &dir);
    let verdicts = judge(&history);
    let text = summary(&options, &history, &verdicts, &dir);
    print!("{text}");
    fs::write(dir.join("summary.txt"), &text).expect("the summary can be written");
    fs::write(dir.join(FOUND), found(&history, &verdicts)).expect("what was found can be written");
    ExitCode::from(u8::from(verdicts.iter().any(|verdict| !verdict.violations.is_empty() && verdict.is_judged())))
}

fn folder(options: &Options) -> PathBuf {
    let usual =
        || redlock_tests::find::target_dir().join("chaos").join(format!("{}-seed{}", options.name(), options.seed));
    let dir = options.out.clone().unwrap_or_else(usual);
    _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("cannot make `{}`: {error}", dir.display()));
    dir.canonicalize().expect("it is there")
}

/// The queue of the run. The number of attempts is practically unlimited, because a task that died would look like a
/// lost one.
fn queue(url: &str, lease: Duration) -> Queue {
    let settings = Redlock::builder().node(url).node_timeout(Duration::from_millis(150));
    let locks = group::guarded(settings, url).build().unwrap();
    let retry = Retry::every(Duration::from_millis(20)).max_attempts(1_000_000);
    locks.queue("tasks").lease(lease).retry(retry)
}

fn run(options: &Options, dir: &Path) -> History {
    let place = Place::start(options.sentinel);
    let url = place.url();
    let log = history::Log::new(File::create(dir.join(OWN)).expect("the log can be made"));
    let begin = now();
    let crew = nemesis::Crew::start(options, dir, &url);
    let is_over = AtomicBool::new(false);
    let field = Field { place: &place, crew: &crew, log: &log, is_over: &is_over };
    thread::scope(|scope| {
        let feeder = Feeder { options, queue: queue(&url, options.lease), log: &log, is_over: &is_over };
        let fed = scope.spawn(move || feeder.feed(begin));
        let nemesis = scope.spawn(|| nemesis::run(&field, options, begin));
        while !is_over.load(Ordering::SeqCst) && now() < begin + options.seconds * SEC {
            thread::sleep(LOOK);
            if checkers::find_any(&History::read(dir, begin), &options.until) {
                is_over.store(true, Ordering::SeqCst);
            }
        }
        is_over.store(true, Ordering::SeqCst);
        nemesis.join().expect("the nemesis did its work");
        fed.join().expect("the feeder did its work");
    });
    let mails = queue(&place.server().url(), options.lease);
    let is_done = poll(LAST_WORK, || mails.is_empty().unwrap_or(false).then_some(())).is_some();
    crew.end(&log);
    let end = now();
    History { left: Some(left(place.server(), is_done)), end, ..History::read(dir, begin) }
}

/// The data on the server at the end of the run.
fn left(server: &Server, is_done: bool) -> Left {
    let size = |command: &str, part: &str| server.ask::<usize>(cmd(command).arg(format!("{{tasks}}:q2:{part}")));
    Left {
        is_done,
        tasks: size("ZCARD", "due"),
        dead: size("ZCARD", "dead"),
        fields: size("HLEN", "tasks"),
        claims: size("HLEN", "claims"),
    }
}

fn summary(options: &Options, history: &History, verdicts: &Verdicts, dir: &Path) -> String {
    let (clients, threads, seed) = (options.clients, options.threads, options.seed);
    let seconds = (history.end - history.begin) / SEC;
    let mut out = format!(
        "\n{} tasks{}, {clients} workers with {threads} threads each, leases of {:?}, {seconds} s, seed {seed}\n\n{}\nVerdicts\n",
        options.tasks,
        if options.sentinel { " on a Sentinel group" } else { "" },
        options.lease,
        history.told()
    );
    for verdict in verdicts {
        let word = match verdict {
            verdict if verdict.violations.is_empty() => "ok",
            verdict if verdict.is_judged() => "FAILED",
            _ => "figure",
        };
        _ = writeln!(out, "  {:<9} {word:<7} {}", verdict.name, verdict.judged);
    }
    for verdict in verdicts {
        for violation in verdict.violations.iter().take(3) {
            let at = history.seconds(violation.at);
            _ = writeln!(out, "\n{}: at {at:.3} s, {}", verdict.name, violation.what);
            let slice = violation.task.map(|task| history.slice(task)).unwrap_or_default();
            for line in slice {
                _ = writeln!(out, "    {line}");
            }
        }
    }
    out + &format!("\nlogs: {}\n", dir.display())
}

/// Returns a line for each checker that found a violation: its name, the number of violations, and the second of the
/// first one.
fn found(history: &History, verdicts: &Verdicts) -> String {
    let line = |verdict: &checkers::Verdict| {
        let first = verdict.violations.iter().map(|violation| violation.at).min()?;
        Some(format!("{} {} {:.3}\n", verdict.name, verdict.violations.len(), history.seconds(first)))
    };
    verdicts.iter().filter_map(line).collect()
}
