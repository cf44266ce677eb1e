//! `redlock doctor --try`: uses each kind of lock on the servers, under names of its own, and removes all of them.
//! `checks`: what it does.

mod checks;

use std::collections::BTreeMap;
use std::env;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_sync::{Error, Redlock};
use serde::Serialize;

use crate::args::Servers;
use crate::ending::{Answer, Failure};
use crate::look::columns;
use crate::text::printable;

/// What a check has found.
enum Found {
    Works(Option<Duration>, String),
    /// It works, but not as well as it should.
    Poorly(Duration, String),
    Skipped(String),
}

type Outcome = Result<Found, Box<dyn StdError>>;

/// A check as it is shown.
#[derive(Serialize)]
struct Shown {
    check: &'static str,
    result: &'static str,
    /// The time that it is about, in milliseconds.
    ms: Option<f64>,
    says: String,
    /// What it means if the check does not succeed.
    meaning: &'static str,
}

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
    ("a waiter is notified", Trial::wait, "waiters poll: PUBLISH or SUBSCRIBE does not work"),
    ("a lease ends on time", Trial::lease, "keys end late or early: locks of dead holders stay, or live ones are lost"),
    ("fencing tokens rise", Trial::fences, "do not rely on fencing tokens"),
    ("read-write lock", Trial::rw_lock, "read-write locks do not work"),
    ("semaphore", Trial::permits, "semaphores do not work"),
    ("latch", Trial::latch, "latches do not work"),
    ("once", Trial::once, "jobs that are run once do not work"),
    ("queue of tasks", Trial::queue, "queues do not work"),
    ("a task of 512 KiB", Trial::body, "tasks with large bodies do not work"),
    ("everything is removed", Trial::removed, "keys with the printed prefix may be left: delete them"),
];

pub(crate) fn trial(servers: &Servers, as_json: bool) -> Result<Answer, Failure> {
    let prefix = format!("{}redlock-doctor:{:08x}:", env::var("REDLOCK_KEY_PREFIX").unwrap_or_default(), id());
    let open = || servers.open_with(|builder| builder.key_prefix(&prefix));
    let trial = Trial { locks: open()?, other: open()? };
    let mut shown: Vec<Shown> = Vec::new();
    let mut is_away = false;
    for (check, run, meaning) in CHECKS {
        let outcome = if is_away { Ok(Found::Skipped("the server does not answer".into())) } else { run(&trial) };
        let ms = |time: Duration| Some((time.as_secs_f64() * 1e5).round() / 100.0);
        let (result, ms, says) = match outcome {
            Ok(Found::Works(time, says)) => ("ok", time.and_then(ms), says),
            Ok(Found::Poorly(time, says)) => ("poor", ms(time), says),
            Ok(Found::Skipped(why)) => ("skipped", None, why),
            Err(error) => {
                is_away |= error.downcast_ref().is_some_and(|error: &Error| error.is_unavailable()) && shown.is_empty();
                ("FAILED", None, error.to_string())
            }
        };
        shown.push(Shown { check, result, ms, says, meaning });
    }
    let has = |result| shown.iter().any(|shown| shown.result == result);
    let code = if has("FAILED") { 2 } else { u8::from(has("poor")) };
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
    _ = writeln!(text, "\nThe names of the keys began with `{}`.", printable(prefix));
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
