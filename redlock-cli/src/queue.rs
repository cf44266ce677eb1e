//! `redlock queue`: queues of tasks.

use redlock_sync::{Entry, Error, Redlock};

use crate::args::Queue;
use crate::ending::{Answer, BUSY, Failure};
use crate::look::columns;

/// So much of a body is shown.
const SHOWN: usize = 60;

pub(crate) fn queue(locks: &Redlock, order: &Queue) -> Result<Answer, Failure> {
    match order {
        Queue::List => list(locks),
        Queue::Peek { name, most, due: false } => Ok(Answer::well(waiting(&locks.queue(name).peek(*most)?))),
        Queue::Peek { name, most, due: true } => Ok(Answer::well(waiting(&locks.queue(name).peek_due(*most)?))),
        Queue::Dead { name, most } => Ok(Answer::well(dead(&locks.queue(name).dead(*most)?))),
        Queue::Revive { name, ids } => revive(&locks.queue(name), ids),
    }
}

fn list(locks: &Redlock) -> Result<Answer, Failure> {
    let row = |name: &String| {
        let queue = locks.queue(name);
        let [tasks, dead, error] = match queue.len().and_then(|tasks| Ok((tasks, queue.dead_len()?))) {
            Ok((tasks, dead)) => [tasks.to_string(), dead.to_string(), String::new()],
            // The others would fail as well.
            Err(error @ (Error::Unavailable { .. } | Error::Closed)) => return Err(error),
            Err(error) => ["-".to_owned(), "-".to_owned(), error.to_string()],
        };
        Ok([name.escape_debug().to_string(), tasks, dead, error])
    };
    let rows = locks.queues()?.iter().map(row).collect::<Result<Vec<_>, Error>>()?;
    let error = if rows.iter().any(|[.., error]| !error.is_empty()) { "ERROR" } else { "" };
    Ok(Answer::well(columns(["NAME", "TASKS", "DEAD", error], rows.into_iter())))
}

fn waiting(tasks: &[Entry]) -> String {
    let row = |task: &Entry| {
        let due = format!("{:.1?}", task.due_in());
        let state = if task.is_claimed() { "claimed until then" } else { "waits" }.to_owned();
        [due, state, task.attempts().to_string(), task.id().escape_debug().to_string(), body(task)]
    };
    columns(["DUE IN", "STATE", "ATTEMPTS", "ID", "BODY"], tasks.iter().map(row))
}

fn dead(tasks: &[Entry]) -> String {
    let row = |task: &Entry| {
        let why = task.why().escape_debug().to_string();
        [task.attempts().to_string(), task.id().escape_debug().to_string(), why, body(task)]
    };
    columns(["ATTEMPTS", "ID", "WHY", "BODY"], tasks.iter().map(row))
}

fn body(task: &Entry) -> String {
    let text = String::from_utf8_lossy(task.body());
    let first: String = text.chars().take(SHOWN).collect();
    let rest = if first.len() < text.len() { "…" } else { "" };
    format!("{}{rest}", first.escape_debug())
}

fn revive(queue: &redlock_sync::Queue, ids: &[String]) -> Result<Answer, Failure> {
    if ids.is_empty() {
        return Ok(Answer::well(format!("{} revived\n", queue.revive_all()?)));
    }
    let (mut revived, mut missing) = (0, Vec::new());
    for id in ids {
        if queue.revive(id)? { revived += 1 } else { missing.push(id.escape_debug().to_string()) }
    }
    if missing.is_empty() {
        return Ok(Answer::well(format!("{revived} revived\n")));
    }
    Err(Failure::new(BUSY, format!("{revived} revived; not among the dead: {}", missing.join(", "))))
}
