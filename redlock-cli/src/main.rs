//! The command `redlock`: a program under a distributed lock, and a look at locks, servers and queues.
//!
//! 1. `args`: the command line. `help/`: what `--help` says, one text for each command.
//! 2. `ending`: exit codes.
//! 3. `run`: a program under a lock; `signals` and `program` are its parts.
//! 4. `look`: what holds which lock; taking a lock away. `doctor`: the servers. `queue`: queues of tasks.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "waits by the real clock")]

mod args;
mod doctor;
mod ending;
mod look;
mod program;
mod queue;
mod run;
mod signals;

use std::env;
use std::process::ExitCode;

use args::{Args, Command};
use ending::{Answer, Failure};

fn main() -> ExitCode {
    // Cannot fail: there is no other logger.
    _ = log::set_logger(&ending::Warnings).map(|()| log::set_max_level(log::LevelFilter::Warn));
    match Args::read(env::args_os().skip(1)).map_err(Failure::from).and_then(obey) {
        Ok(answer) => answer.give(),
        Err(failure) => failure.tell(),
    }
}

fn obey(args: Args) -> Result<Answer, Failure> {
    let servers = args.servers;
    match args.command {
        Command::Say(text) => Ok(Answer::well(text.to_owned())),
        Command::Run(order) => run::run(&servers.open()?, &order),
        Command::Inspect { key } => look::inspect(&servers.open()?, &key),
        Command::List { pattern } => look::list(&servers.open()?, &pattern),
        Command::Release { key, holder } => look::release(&servers.open()?, &key, &holder),
        Command::Doctor => doctor::doctor(&servers.open()?),
        Command::Queue(order) => queue::queue(&servers.open()?, &order),
    }
}
