//! Fault 15: entries were removed or damaged by hand. No script fails, and no task that still has its time is lost.

use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, IfQueued, Queue, Task, TaskInfo};
use redlock_tests::Server;

use super::rig::{ask, assert_empty, ms, place, plain, queue, server_time, task};

type Operation = (&'static str, fn(&Queue, redlock_sync::Job) -> Result<(), Error>);

const OPERATIONS: [Operation; 11] = [
    ("push", |mails, _job| mails.push(task("a")).map(drop)),
    ("replace", |mails, _job| mails.push(Task::new("b").id("a").if_queued(IfQueued::Replace)).map(drop)),
    ("claim", |mails, _job| mails.try_claim().map(drop)),
    ("extend", |_, job| job.extend(ms(5000))),
    ("ack", |_, job| job.ack()),
    ("retry", |_, job| job.retry_after(Duration::ZERO, "boom")),
    ("fail", |_, job| job.fail("boom")),
    ("again", |_, job| job.again_after(Duration::ZERO)),
    ("pop", |mails, _job| mails.pop_due(3).map(drop)),
    ("peek", |mails, _job| mails.peek(3).map(drop)),
    ("remove", |mails, _job| mails.remove("a").map(drop)),
];

#[test]
fn queue_fault_15_damaged_entries_fail_no_call() {
    let server = Server::start();
    let mails = queue(&server.url());
    for is_over in [false, true] {
        for part in ["s:", "b:", "claims"] {
            for damage in [None, Some(""), Some("9 9 9 9"), Some("1764340000000000 9 9 9 9 x y"), Some("\u{1} garbage")]
            {
                for (name, operation) in OPERATIONS {
                    server.ask::<()>(&redis::cmd("FLUSHALL"));
                    mails.push(task("a")).unwrap();
                    let job = mails.try_claim().unwrap().unwrap_or_else(|| {
                        let due: Vec<String> = ask(&server, "ZRANGE", "due", &["0", "-1", "WITHSCORES"]);
                        panic!("{name} with {part} = {damage:?}, over {is_over}: {due:?} at {:?}", server_time(&server))
                    });
                    if is_over {
                        ask::<()>(&server, "ZADD", "due", &["1", &place(&server, "a")]);
                    }
                    let lease: &redlock_sync::Lease = &job;
                    let (key, field) = match part {
                        "claims" => ("claims", lease.id().as_str().to_owned()),
                        of_task => ("tasks", format!("{of_task}a")),
                    };
                    match damage {
                        None => ask::<()>(&server, "HDEL", key, &[&field]),
                        Some(text) => ask::<()>(&server, "HSET", key, &[&field, text]),
                    }
                    let outcome = operation(&mails, job);
                    let is_fine = matches!(outcome, Ok(()) | Err(Error::Lost { .. }));
                    assert!(is_fine, "{name} with {part} = {damage:?}, over {is_over}: {outcome:?}");
                }
            }
        }
    }
}

/// A claim that finds no task ends what was left.
#[test]
fn queue_fault_15_an_empty_queue_keeps_nothing_of_damaged_entries() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let job = mails.try_claim().unwrap().unwrap();
    mails.push(task("a").if_queued(IfQueued::Replace)).unwrap();
    ask::<()>(&server, "HDEL", "tasks", &["s:a"]);
    std::mem::forget(job);
    assert_eq!(mails.pop_due(9).unwrap().len() + usize::from(mails.remove("a").unwrap()), 1);
    assert_eq!(ask::<usize>(&server, "HLEN", "claims", &[]), 1);
    assert!(mails.try_claim().unwrap().is_none());
    assert_empty(&server);
}

#[test]
fn a_task_without_state_is_run_as_a_new_one() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    ask::<()>(&server, "HSET", "tasks", &["s:a", "nonsense"]);
    let job = mails.try_claim().unwrap().unwrap();
    assert_eq!((job.body(), job.attempt()), (&b"body of a"[..], 1));
    job.ack().unwrap();
    assert!(mails.is_empty().unwrap());
}

/// A task without a body must not run as one with an empty body.
#[test]
fn a_task_whose_body_is_lost_is_dead() {
    let server = Server::start();
    let mails = plain(&server, "q");
    let lose = |ids: &[&str]| {
        let fields: Vec<String> = ids.iter().map(|id| format!("b:{id}")).collect();
        server.ask::<()>(cmd("HDEL").arg("{q}:q2:tasks").arg(fields));
    };
    let are_dead = |ids: &[&str]| {
        let dead = mails.dead(9).unwrap();
        assert_eq!(dead.iter().map(TaskInfo::id).collect::<Vec<_>>(), ids);
        assert!(dead.iter().all(|dead| dead.why() == "its body is missing"), "{dead:?}");
        assert!(mails.purge_dead().is_ok() && mails.is_empty().unwrap());
    };
    // Task `a` was claimed before, task `b` is pushed again during its claim, and task `c` was never claimed.
    mails.push_all(["a", "b", "c", "d"].map(|id| Task::new("body").id(id))).unwrap();
    mails.try_claim().unwrap().unwrap().retry_after(Duration::ZERO, "boom").unwrap();
    let job = mails.try_claim().unwrap().unwrap();
    mails.push(Task::new("more").id("b")).unwrap();
    job.ack().unwrap();
    lose(&["a", "b", "c"]);
    let job = mails.try_claim().unwrap().expect("the task behind them");
    assert_eq!((job.id(), job.body()), ("d", &b"body"[..]));
    job.ack().unwrap();
    assert!(mails.try_claim().unwrap().is_none());
    are_dead(&["c", "a", "b"]);
    // `pop_due` also skips tasks without a body.
    mails.push_all(["a", "b", "c"].map(|id| Task::new("body").id(id))).unwrap();
    lose(&["a", "c"]);
    let popped = mails.pop_due(1).unwrap();
    assert_eq!(popped.iter().map(TaskInfo::id).collect::<Vec<_>>(), ["b"]);
    assert_eq!(mails.pop_due(9), Ok(Vec::new()));
    are_dead(&["a", "c"]);
}
