//! Runs a command under a distributed lock: `flock` for more than one machine.
//!
//! ```text
//! cargo run --example exclusive -- nightly-report -- sh -c 'echo working; sleep 1'
//! REDIS_URL=redis://db.example/ exclusive --nonblock nightly-report -- ./report.sh
//! ```
//!
//! The options and exit codes are like those of `flock`; `exclusive --help` lists them. The command finds the lock's fencing token in its
//! environment. Without `REDIS_URL` a private server is started, which is good for a try and excludes no other process.

#[path = "exclusive/options.rs"]
mod options;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, thread};

use options::{HELP, OnLost, Options, Wait};
use redlock_examples::Redis;
use redlock_sync::{Error, Lease, MutexGuard, Redlock};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

// As in <sysexits.h>, which flock uses too.
const USAGE: u8 = 64;
const NO_INPUT: u8 = 66;
const UNAVAILABLE: u8 = 69;
const OS_ERROR: u8 = 71;
const TRY_LATER: u8 = 75;

fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            say(&format!("{error}\n\n{HELP}"));
            return USAGE.into();
        }
    };
    let (urls, _private) = servers();
    match lock(&options, &urls) {
        Ok(guard) => run(&options, guard).into(),
        Err(error) => {
            say(&error.to_string());
            exit_code(&error, options.conflict).into()
        }
    }
}

/// `REDLOCK_NODES`, else `REDIS_URL`, else a server of our own.
fn servers() -> (Vec<String>, Option<Redis>) {
    if let Ok(nodes) = env::var("REDLOCK_NODES") {
        return (nodes.split(',').map(|url| url.trim().to_owned()).collect(), None);
    }
    let redis = Redis::any();
    if !redis.servers().is_empty() {
        say("REDIS_URL is not set: a private server is used, which excludes no other process");
    }
    (redis.urls().to_vec(), Some(redis))
}

fn lock(options: &Options, urls: &[String]) -> Result<MutexGuard, Error> {
    let locks = Redlock::builder().nodes(urls).lease(options.lease).build()?;
    let mutex = locks.mutex(&options.key);
    match options.wait {
        Wait::Forever => mutex.lock(),
        Wait::No => mutex.try_lock(),
        Wait::For(wait) => mutex.try_lock_for(wait),
    }
}

/// Why the command did not run.
fn exit_code(error: &Error, conflict: u8) -> u8 {
    match error {
        Error::Busy { .. } => conflict,
        Error::Config { .. } | Error::WrongType { .. } => NO_INPUT,
        _ => UNAVAILABLE,
    }
}

/// Runs the command to its end, or to the end of the lock.
fn run(options: &Options, guard: MutexGuard) -> u8 {
    let mut child = match start(options, &guard) {
        Ok(child) => child,
        Err(code) => return code,
    };
    let status = watch(&mut child, &guard, options.on_lost);
    // `unlock` also tells of a loss that came too late to be acted upon.
    match (status, guard.unlock()) {
        (Err(error), _) => {
            say(&error.to_string());
            OS_ERROR
        }
        (Ok(_), Err(lost @ Error::Lost { .. })) => {
            say(&lost.to_string());
            TRY_LATER
        }
        (Ok(status), Ok(())) => code_of(status),
        (Ok(status), Err(error)) => {
            say(&error.to_string()); // a doubtful release: the work is done, others may have to wait for the lease
            code_of(status)
        }
    }
}

fn start(options: &Options, lease: &Lease) -> Result<Child, u8> {
    let Some((program, args)) = options.command.split_first() else { return Err(USAGE) };
    let token = lease.fencing_token().map_err(|error| {
        say(&error.to_string());
        if error.is_lost() { TRY_LATER } else { UNAVAILABLE }
    })?;
    let mut command = Command::new(program);
    command.args(args).env("REDLOCK_KEY", lease.key()).env("REDLOCK_FENCING_TOKEN", token.to_string());
    command.spawn().map_err(|error| {
        say(&format!("{}: {error}", program.display()));
        if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    })
}

enum Event {
    Ended,
    Lost(Error),
}

/// Waits for the end of the command; acts when the lock is lost before.
fn watch(child: &mut Child, lease: &Lease, on_lost: OnLost) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("no such process"))?;
    let (sender, events) = mpsc::channel();
    let lost = sender.clone();
    lease.on_lost(move |error| _ = lost.send(Event::Lost(error)));
    thread::spawn(move || {
        // Leaves the child unreaped: until we `wait` below its id is its own, and a signal cannot hit another process.
        _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        _ = sender.send(Event::Ended);
    });
    if let Ok(Event::Lost(error)) = events.recv() {
        say(&error.to_string());
        end(child, pid, on_lost, &events)?;
    }
    child.wait()
}

/// Ends the command, whose lock is lost.
fn end(child: &mut Child, pid: Pid, on_lost: OnLost, events: &mpsc::Receiver<Event>) -> io::Result<()> {
    match on_lost {
        OnLost::Tell => Ok(()),
        OnLost::Kill => {
            say("ending the command");
            child.kill()
        }
        OnLost::Term => {
            say("ending the command");
            kill_process(pid, Signal::TERM)?;
            if events.recv_timeout(GRACE).is_err() {
                child.kill()?; // it did not heed SIGTERM
            }
            Ok(())
        }
    }
}

/// As a shell tells it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OS_ERROR)
}

fn say(what: &str) {
    eprintln!("exclusive: {what}");
}
