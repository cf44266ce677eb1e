//! The chaos run. Client processes contend for a few locks, or for the tasks of a queue, while a nemesis with a seed
//! causes faults of servers, network and clients. Then checkers judge the logs. `tests/CHAOS.md` says how to run it and
//! how to read its output.
//!
//! 1. `args.rs`, `timing.rs`, `names.rs`: the command line, the times, and the names of the locks.
//! 2. `plan.rs`: the schedule of faults, a function of the seed.
//! 3. `client/`: the processes that use the locks or work on the tasks. `nursery.rs`: the parents of forked clients.
//!    `event.rs`: the events in their logs. `store.rs`: the fenced store. `feeder.rs`: pushes the tasks.
//! 4. `nemesis/`: executes the faults. `group.rs`: the faults of a Sentinel group. `watch.rs`, `wire.rs`: observe
//!    servers and traffic. `until.rs`: the end of a run.
//! 5. `history.rs`, `checkers/`: the history of a run, and its rules. They do no I/O.
//! 6. `summary.rs`, `timeline.rs`: the report of a run, and the numbers of a picture.
//!
//! The program `controls` shows that the checkers notice a broken library.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a rig that cannot do its work fails with a message, and waits by the real clock"
)]

mod args;
mod checkers;
mod client;
mod clock;
mod event;
mod feeder;
mod group;
mod history;
mod names;
mod nemesis;
mod nursery;
mod plan;
mod run;
mod store;
mod summary;
mod timeline;
mod timing;
mod until;
mod watch;
mod wire;

use std::env;
use std::fs;
use std::panic;
use std::process::{self, ExitCode};

use args::{Options, Todo};

fn main() -> ExitCode {
    // If one thread panics, the whole process exits. Otherwise the other threads would wait for it forever.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        process::exit(101);
    }));
    let words: Vec<String> = env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "client") {
        client::main(&words[1..]);
        return ExitCode::SUCCESS;
    }
    if words.first().is_some_and(|word| word == "nursery") {
        nursery::main(&words[1..]);
        return ExitCode::SUCCESS;
    }
    match args::parse(words) {
        Ok(options) => match options.what {
            Todo::Run => chaos(&options),
            Todo::Schedule => schedule(&options),
            Todo::Help => {
                println!("{}", args::USAGE);
                ExitCode::SUCCESS
            }
        },
        Err(mistake) => {
            eprintln!("{mistake}\n\n{}", args::USAGE);
            ExitCode::from(2)
        }
    }
}

fn schedule(options: &Options) -> ExitCode {
    println!("seed {}", options.seed);
    for fault in plan::schedule(options) {
        println!("{fault}");
    }
    ExitCode::SUCCESS
}

/// Makes one run, judges it, and writes its reports. The exit code is 1 if a rule was violated.
fn chaos(options: &Options) -> ExitCode {
    println!("seed {}", options.seed);
    if options.safety {
        timing::judge_safety_only();
    }
    let dir = run::folder(options);
    let history = run::run(options, &dir);
    let verdicts = checkers::judge(&history);
    let text = summary::text(options, &history, &verdicts, &dir);
    print!("{text}");
    fs::write(dir.join("summary.txt"), &text).expect("the summary can be written");
    fs::write(dir.join(run::FOUND), summary::found(&history, &verdicts)).expect("what was found can be written");
    fs::write(dir.join("timeline.txt"), timeline::numbers(&history)).expect("the numbers can be written");
    let is_good = verdicts.iter().all(|(name, _, verdict)| verdict.violations.is_empty() || !checkers::is_judged(name));
    ExitCode::from(u8::from(!is_good))
}
