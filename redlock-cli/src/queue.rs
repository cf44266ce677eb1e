//! `redlock queue`: queues of tasks.

use std::collections::BTreeMap;

use redlock_sync::{Redlock, SeenQueue, SnapshotOptions, TaskInfo};
use serde::Serialize;

use crate::args::Queue;
use crate::ending::{Answer, BUSY, Failure};
use crate::look::columns;
use crate::text::{cut, escaped, length};

/// The number of characters of a body that are shown.
const SHOWN: usize = 60;

pub(crate) fn queue(locks: &Redlock, order: &Queue, as_json: bool) -> Result<Answer, Failure> {
    let show = |tasks: Vec<TaskInfo>, table: fn(&[TaskInfo]) -> String| {
        if as_json { Answer::json(BTreeMap::from([("tasks", &tasks)]), 0) } else { Answer::well(table(&tasks)) }
    };
    match order {
        Queue::List => list(locks, as_json),
        Queue::Peek { name, most, due: false } => Ok(show(locks.queue(name).peek(*most)?, waiting)),
        Queue::Peek { name, most, due: true } => Ok(show(locks.queue(name).peek_due(*most)?, waiting)),
        Queue::Dead { name, most } => Ok(show(locks.queue(name).dead(*most)?, dead)),
        Queue::Revive { name, ids } => revive(&locks.queue(name), ids, as_json),
        Queue::Pause { name } => {
            let is_new = locks.queue(name).pause()?;
            Ok(changed(is_new, "paused", "it was paused already", as_json))
        }
        Queue::Resume { name } => {
            let is_new = locks.queue(name).resume()?;
            Ok(changed(is_new, "resumed", "it was not paused", as_json))
        }
        Queue::Clear { name, dead } => {
            let queue = locks.queue(name);
            let removed = if *dead { queue.purge_dead() } else { queue.clear() }?;
            let said = || Answer::well(format!("{removed} removed\n"));
            Ok(if as_json { Answer::json(BTreeMap::from([("removed", removed)]), 0) } else { said() })
        }
    }
}

/// The answer to a call that has changed something, or has found it done.
fn changed(is_new: bool, done: &str, already: &str, as_json: bool) -> Answer {
    if as_json {
        return Answer::json(BTreeMap::from([("changed", is_new)]), 0);
    }
    Answer::well(format!("{}\n", if is_new { done } else { already }))
}

fn list(locks: &Redlock, as_json: bool) -> Result<Answer, Failure> {
    let seen = locks.snapshot(&SnapshotOptions::default().only_queues())?;
    if as_json {
        return Ok(Answer::json(BTreeMap::from([("queues", &seen.queues)]), 0));
    }
    Ok(Answer::well(table(&seen.queues)))
}

pub(crate) fn table(queues: &[SeenQueue]) -> String {
    let error = if queues.iter().any(|queue| queue.problem.is_some()) { "ERROR" } else { "" };
    columns(["NAME", "TASKS", "DUE", "CLAIMED", "DEAD", "OLDEST", error], queues.iter().map(row))
}

/// The name and the numbers of a queue, and its error.
pub(crate) fn row(queue: &SeenQueue) -> [String; 7] {
    let number = |number: u64| if queue.problem.is_some() { "?".to_owned() } else { number.to_string() };
    let [tasks, due, claimed, dead] = [queue.tasks, queue.due, queue.claimed, queue.dead].map(number);
    let oldest = if queue.due == 0 { "-".to_owned() } else { length(queue.oldest) };
    let error = queue.problem.clone().unwrap_or_default();
    let state = if queue.is_paused { " (paused)" } else { "" };
    [format!("{}{state}", escaped(&queue.name)), tasks, due, claimed, dead, oldest, error]
}

fn waiting(tasks: &[TaskInfo]) -> String {
    let row = |task: &TaskInfo| {
        let due = format!("{:.1?}", task.due_in());
        let state = if task.is_claimed() { "claimed until then" } else { "waits" }.to_owned();
        [due, state, task.attempts().to_string(), escaped(task.id()), body(task)]
    };
    columns(["DUE IN", "STATE", "ATTEMPTS", "ID", "BODY"], tasks.iter().map(row))
}

fn dead(tasks: &[TaskInfo]) -> String {
    let row = |task: &TaskInfo| {
        let why = escaped(task.why());
        [task.attempts().to_string(), escaped(task.id()), why, body(task)]
    };
    columns(["ATTEMPTS", "ID", "WHY", "BODY"], tasks.iter().map(row))
}

fn body(task: &TaskInfo) -> String {
    escaped(&cut(&String::from_utf8_lossy(task.body()), SHOWN))
}

#[derive(Serialize)]
struct Revived<'a> {
    revived: u64,
    missing: Vec<&'a str>,
}

fn revive(queue: &redlock_sync::Queue, ids: &[String], as_json: bool) -> Result<Answer, Failure> {
    let mut done = Revived { revived: 0, missing: Vec::new() };
    if ids.is_empty() {
        done.revived = queue.revive_all()?;
    }
    for id in ids {
        if queue.revive(id)? { done.revived += 1 } else { done.missing.push(id) }
    }
    let missing: Vec<String> = done.missing.iter().map(|id| escaped(id)).collect();
    if as_json {
        return Ok(Answer::json(&done, if missing.is_empty() { 0 } else { BUSY }));
    }
    if missing.is_empty() {
        return Ok(Answer::well(format!("{} revived\n", done.revived)));
    }
    Err(Failure::new(BUSY, format!("{} revived; not among the dead tasks: {}", done.revived, missing.join(", "))))
}
