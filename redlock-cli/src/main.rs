//! The command `redlock`: runs a program under a distributed lock, and shows locks, servers and queues.
//!
//! 1. `args`: parses the command line. `help/`: the text of `--help` for each command.
//! 2. `ending`: output and exit codes. `json`: the output with `--json`. `stderr`: the lines on stderr.
//! 3. `run`: runs a program under a lock, with `signals` and `program`.
//! 4. `top`: a screen with locks and queues. `dash`: a web page. Both show the snapshots of `watch`. `text`: formats
//!    names and lengths of time.
//! 5. `look`: shows and releases locks. `doctor`: checks the servers. `trial`: tries them out. `queue`:
//!    queues of tasks.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr, clippy::unreachable))]
#![allow(clippy::disallowed_methods, reason = "waits by the real clock")]

mod args;
#[cfg(feature = "dash")]
mod dash;
mod doctor;
mod ending;
mod json;
mod look;
mod program;
mod queue;
mod run;
mod signals;
mod stderr;
mod text;
#[cfg(feature = "top")]
mod top;
mod trial;
#[cfg(any(feature = "top", feature = "dash"))]
mod watch;

use std::env;
use std::process::ExitCode;

use args::{Args, Command};
use ending::{Answer, Failure};
use nix::sys::signal::SigSet;

fn main() -> ExitCode {
    // A caller may have blocked signals. Then this process and what it starts would not get them.
    _ = SigSet::empty().thread_set_mask();
    // This cannot fail: there is no other logger.
    _ = log::set_logger(&stderr::Warnings).map(|()| log::set_max_level(log::LevelFilter::Warn));
    let code = match Args::read(env::args_os().skip(1)) {
        Ok(args) => answer(args),
        Err(failure) => failure.tell(),
    };
    stderr::flush();
    code
}

fn answer(args: Args) -> ExitCode {
    let as_json = args.as_json;
    match obey(args) {
        Ok(answer) => answer.give(),
        Err(failure) if as_json => failure.as_json().give(),
        Err(failure) => failure.tell(),
    }
}

fn obey(args: Args) -> Result<Answer, Failure> {
    let (servers, as_json) = (args.servers, args.as_json);
    match args.command {
        Command::Say(text) => Ok(Answer::well(text.to_owned())),
        Command::Run(order) => run::run(&servers, &order),
        Command::Inspect { key } => look::inspect(&servers.open()?, &key, as_json),
        Command::List { pattern } => look::list(&servers.open()?, &pattern, as_json),
        Command::Release { key, holder } => look::release(&servers.open()?, &key, &holder),
        Command::Try => trial::trial(&servers, as_json),
        Command::Doctor => doctor::doctor(&servers.open()?, as_json),
        #[cfg(feature = "top")]
        Command::Top(view) => top::top(&servers.open()?, &view),
        #[cfg(not(feature = "top"))]
        Command::Top(_) => Err(without("top")),
        #[cfg(feature = "dash")]
        Command::Dash(order) => dash::dash(&servers.open()?, &order),
        #[cfg(not(feature = "dash"))]
        Command::Dash(_) => Err(without("dash")),
        Command::Queue(order) => queue::queue(&servers.open()?, &order, as_json),
    }
}

#[cfg(not(all(feature = "top", feature = "dash")))]
fn without(feature: &str) -> Failure {
    let how = format!("this `redlock` was built without `{feature}`: install it with `--features {feature}`");
    Failure::new(ending::USAGE, how)
}
