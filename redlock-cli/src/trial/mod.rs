//! `redlock doctor --try`: uses each kind of lock on the servers, under names of its own, and removes all of them.
//! `checks`: what it does.

mod checks;

use std::collections::BTreeMap;
use std::env;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_sync::{ConfigKind, Error, Redlock};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::Servers;
use crate::ending::{Answer, Failure};
use crate::look::columns;
use crate::text::printable;

/// What a check has found.
enum Found {
    Works(Option<Duration>, String),
    /// It works, but not as well as it should. The last text is what that means.
    Poorly(Duration, String, &'static str),
    Skipped(String),
}

type Outcome = Result<Found, Box<dyn StdError>>;

/// What a check means that ended with this error, whatever it is about. `None`: what the check is about is wrong.
fn meaning_of(error: &Error) -> Option<&'static str> {
    match error {
        Error::Config { kind: ConfigKind::Permission, .. } => {
            Some("a permission is missing: what needs it does not work")
        }
        Error::Config { .. } => Some("the server cannot be used so: the text says what to correct"),
        Error::Unavailable { .. } => Some("a server did not answer in time, or refused the call: the text says which"),
        _ => None,
    }
}

/// True from the first SIGINT or SIGTERM on. A second one ends the process.
fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&is_interrupted))?;
        flag::register(signal, Arc::clone(&is_interrupted))?;
    }
    Ok(is_interrupted)
}

/// A check as it is shown.
#[derive(Serialize)]
struct Shown {
    check: &'static str,
    result: &'static str,
    /// The time that it is about, in milliseconds.
    ms: Option<f64>,
    says: String,
    /// What it means if the check did not succeed; else empty.
    meaning: &'static str,
}

/// The exit status after a signal.
const INTERRUPTED: u8 = 130;
const REMOVED: &str = "everything is removed";
const LEFT: &str = "keys with the printed text in their names may be left: delete them";

type Check = (&'static str, fn(&Trial) -> Outcome, &'static str);

const CHECKS: [Check; 14] = [
    ("lock and unlock", Trial::lock, "nothing works without it"),
    ("a script the server has not seen", Trial::unseen, "calls fail after each restart of the server"),
    ("a lock excludes another client", Trial::busy, "DO NOT USE this server: it does not keep locks"),
    (
        "clients see each other's writes",
        Trial::visibility,
        "DO NOT USE this server: a read or a write goes to another one",
    ),
    ("a waiter is notified", Trial::wait, "waiters do not get the lock when it is free"),
    ("a lease ends on time", Trial::lease, "keys end late or early: locks of dead holders stay, or live ones are lost"),
    ("fencing tokens rise", Trial::fences, "do not rely on fencing tokens"),
    ("read-write lock", Trial::rw_lock, "read-write locks do not work"),
    ("semaphore", Trial::permits, "semaphores do not work"),
    ("latch", Trial::latch, "latches do not work"),
    ("once", Trial::once, "jobs that are run once do not work"),
    ("queue of tasks", Trial::queue, "queues do not work"),
    ("a task of 512 KiB", Trial::body, "tasks with large bodies do not work"),
    (REMOVED, Trial::removed, LEFT),
];

pub(crate) fn trial(servers: &Servers, as_json: bool) -> Result<Answer, Failure> {
    let prefix = format!("{}redlock-doctor:{:08x}:", env::var("REDLOCK_KEY_PREFIX").unwrap_or_default(), id());
    let open = || servers.open_with(|builder| builder.key_prefix(&prefix));
    let trial = Trial { locks: open()?, other: open()? };
    let is_interrupted = interruption()?;
    let mut shown: Vec<Shown> = Vec::new();
    let mut is_away = false;
    for (check, run, meaning) in CHECKS {
        let is_last = check == REMOVED;
        let outcome = match is_interrupted.load(Ordering::Relaxed) {
            true if !is_last => Ok(Found::Skipped("it was interrupted".into())),
            _ if is_away && !(is_last && shown.iter().any(|shown| shown.result == "ok")) => {
                Ok(Found::Skipped("a server could not be used in an earlier check".into()))
            }
            _ => run(&trial),
        };
        let ms = |time: Duration| Some((time.as_secs_f64() * 1e5).round() / 100.0);
        let (result, ms, says, meaning) = match outcome {
            Ok(Found::Works(time, says)) => ("ok", time.and_then(ms), says, ""),
            Ok(Found::Poorly(time, says, meaning)) => ("poor", ms(time), says, meaning),
            Ok(Found::Skipped(why)) => ("skipped", None, why, ""),
            Err(error) => {
                let cause = error.downcast_ref::<Error>();
                // Each further call would wait as long.
                is_away |= cause.is_some_and(Error::is_unavailable);
                ("FAILED", None, error.to_string(), cause.and_then(meaning_of).unwrap_or(meaning))
            }
        };
        shown.push(Shown { check, result, ms, says, meaning });
    }
    let has = |result| shown.iter().any(|shown| shown.result == result);
    let code = match is_interrupted.load(Ordering::Relaxed) {
        true => INTERRUPTED,
        false if has("FAILED") => 2,
        false => u8::from(has("poor")),
    };
    if as_json {
        return Ok(Answer::json(BTreeMap::from([("try", &shown)]), code));
    }
    Ok(Answer::new(table(&shown, &prefix), code))
}

fn table(shown: &[Shown], prefix: &str) -> String {
    let row = |shown: &Shown| {
        let time = shown.ms.map_or_else(String::new, |ms| format!("{ms} ms"));
        [shown.check.to_owned(), shown.result.to_owned(), time, printable(&shown.says)]
    };
    let mut text = columns(["CHECK", "RESULT", "TIME", ""], shown.iter().map(row));
    for bad in shown.iter().filter(|shown| ["FAILED", "poor"].contains(&shown.result)) {
        _ = write!(text, "\n{}: {}", bad.check, bad.meaning);
    }
    _ = writeln!(text, "\nThe names of all keys had `{}`.", printable(prefix));
    text
}

/// A number for the prefix, so that two trials do not meet.
fn id() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.subsec_nanos() ^ process::id().rotate_left(16)
}

/// Two clients, as of two processes.
struct Trial {
    locks: Redlock,
    other: Redlock,
}
