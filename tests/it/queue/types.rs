//! Keys of another type. Each call that uses such a key reports it and changes nothing.

use std::thread;

use redis::cmd;
use redlock_sync::{Error, IfQueued, Job, Queue, Retry, Task};
use redlock_tests::{Server, eventually};

use super::rig::{SOON, ms, open};

const PARTS: [&str; 6] = ["due", "tasks", "claims", "dead", "waits", "fence"];
const LEASE: u64 = 60_000;

/// A queue with a dead task, a claimed one, and two that are due.
struct Case {
    mails: Queue,
    job: Option<Job>,
}

type Prepare = fn(&Case);
type Run = fn(&mut Case) -> Result<(), Error>;

/// Calls, the keys that each call uses, and what happens before the call.
const CALLS: [(&str, &[&str], Prepare, Run); 26] = [
    ("push, a new task", &["due", "tasks", "waits"], no, |case| case.mails.push(task("new")).map(drop)),
    ("push, later", &["due", "tasks", "waits"], no, |case| case.mails.push(task("new").after(ms(LEASE))).map(drop)),
    ("push, a queued task", &["due", "tasks", "dead", "waits"], no, |case| case.mails.push(task("due")).map(drop)),
    ("push, a dead task", &["due", "tasks", "dead", "waits"], no, |case| case.mails.push(task("dead")).map(drop)),
    ("push, several", &["due", "tasks", "dead", "waits"], no, |case| {
        case.mails.push_all(["claimed", "new"].map(task)).map(drop)
    }),
    ("push, replacing", &["due", "tasks", "dead", "waits"], no, |case| {
        case.mails.push(task("claimed").if_queued(IfQueued::Replace)).map(drop)
    }),
    ("claim", &["due", "tasks", "claims", "waits", "fence"], no, |case| case.mails.try_claim().map(forget)),
    ("claim, a claim is over", &["due", "tasks", "claims", "waits", "fence"], claim_shortly, |case| {
        case.mails.try_claim().map(forget)
    }),
    ("claim, a task dies", &["due", "tasks", "claims", "dead", "waits", "fence"], claim_shortly, |case| {
        case.mails.clone().retry(Retry::every(ms(1)).max_attempts(1)).try_claim().map(forget)
    }),
    ("claim, none is due", &["due", "tasks", "claims", "dead", "fence"], claim_all, |case| {
        case.mails.try_claim().map(forget)
    }),
    ("claim, waiting", &["due", "tasks", "claims", "dead", "waits", "fence"], claim_all, |case| {
        case.mails.try_claim_for(ms(500)).map(forget)
    }),
    ("ack", &["due", "tasks", "claims"], no, |case| case.job.take().unwrap().ack()),
    ("ack, pushed again", &["due", "tasks", "claims", "waits"], push_again, |case| case.job.take().unwrap().ack()),
    ("retry", &["due", "tasks", "claims", "waits"], no, |case| case.job.take().unwrap().retry("later")),
    ("fail", &["due", "tasks", "claims", "dead", "waits"], no, |case| case.job.take().unwrap().fail("never")),
    ("extend", &["due", "tasks"], no, |case| case.job.as_ref().unwrap().extend(ms(2 * LEASE))),
    ("pop", &["due", "tasks", "claims", "dead"], no, |case| case.mails.pop_due(2).map(drop)),
    ("peek", &["due", "tasks"], no, |case| case.mails.peek(3).map(drop)),
    ("dead", &["tasks", "dead"], no, |case| case.mails.dead(3).map(drop)),
    ("len", &["due", "dead"], no, |case| case.mails.len().and(case.mails.dead_len()).map(drop)),
    ("remove", &["due", "tasks", "claims", "dead"], no, |case| case.mails.remove("claimed").map(drop)),
    ("clear", &["due", "tasks", "claims"], no, |case| case.mails.clear().map(drop)),
    ("pause", &["tasks", "waits"], no, |case| case.mails.pause().map(drop)),
    ("resume", &["tasks", "waits"], no, |case| case.mails.resume().map(drop)),
    ("revive", &["due", "tasks", "dead", "waits"], no, |case| case.mails.revive_all().map(drop)),
    ("purge", &["tasks", "dead"], no, |case| case.mails.purge_dead().map(drop)),
];

fn no(_: &Case) {}

fn claim_all(case: &Case) {
    while let Some(job) = case.mails.try_claim().unwrap() {
        forget(Some(job));
    }
}

fn claim_shortly(case: &Case) {
    let job = case.mails.clone().lease(ms(4000)).claim().unwrap();
    eventually("the claim expires", SOON, || job.check().is_err());
    eventually("the task is due", SOON, || case.mails.peek_due(3).unwrap().iter().any(|entry| entry.id() == job.id()));
    // The expired task is the first due one, and another task follows it.
    case.mails.pop_due(1).unwrap();
    case.mails.push(task("more")).unwrap();
    forget(Some(job));
}

fn push_again(case: &Case) {
    case.mails.push(task("claimed")).unwrap();
}

fn task(id: &str) -> Task {
    Task::new(format!("body of {id}")).id(id)
}

fn forget(job: Option<Job>) {
    std::mem::forget(job);
}

fn case(server: &Server, name: &str) -> Case {
    // The lease is not renewed, so that only the call can change the keys.
    let mails = open(&server.url()).queue(name).lease(ms(LEASE)).renew(false);
    mails.push(task("dead")).unwrap();
    mails.claim().unwrap().fail("never").unwrap();
    mails.push(task("claimed")).unwrap();
    let job = mails.claim().ok();
    mails.push_all(["due", "due too"].map(task)).unwrap();
    Case { mails, job }
}

/// The contents of all keys of this queue.
fn contents(server: &Server, name: &str) -> Vec<(String, Vec<String>)> {
    let mut keys: Vec<String> =
        server.keys().into_iter().filter(|key| key.starts_with(&format!("{{{name}}}"))).collect();
    keys.sort_unstable();
    let contents = |key: String| {
        let mut found: Vec<String> = match server.ask::<String>(cmd("TYPE").arg(&key)).as_str() {
            "hash" => server.ask(cmd("HGETALL").arg(&key)),
            "zset" => server.ask(cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES")),
            "string" => vec![server.ask(cmd("GET").arg(&key))],
            _ => server.ask(cmd("LRANGE").arg(&key).arg(0).arg(-1)),
        };
        found.sort_unstable();
        (key, found)
    };
    keys.into_iter().map(contents).collect()
}

#[test]
fn queue_fault_11_a_key_of_another_type_is_untouched() {
    let server = Server::start();
    // The cases run in parallel, because some wait for the end of a lease.
    let all: Vec<_> = CALLS.iter().enumerate().flat_map(|(nth, call)| PARTS.map(|part| (nth, call, part))).collect();
    for some in all.chunks(40) {
        thread::scope(|scope| {
            for &(nth, call, part) in some {
                let server = &server;
                scope.spawn(move || one(server, *call, part, &format!("{nth}{part}")));
            }
        });
    }
}

/// Runs a call while this part of the queue has a key of another type.
fn one(server: &Server, (call, uses, prepare, run): (&str, &[&str], Prepare, Run), part: &str, name: &str) {
    let mut case = case(server, name);
    prepare(&case);
    let key = format!("{{{name}}}:q2:{part}");
    server.del(&key);
    server.ask::<()>(cmd("RPUSH").arg(&key).arg("x"));
    let before = contents(server, name);
    let outcome = run(&mut case);
    forget(case.job);
    let is_told = matches!(outcome, Err(Error::WrongType { .. }));
    let what = format!("{call}, {part}: {outcome:?}");
    assert!(is_told == uses.contains(&part) && is_told == outcome.is_err(), "{what}");
    let after = contents(server, name);
    assert!(after.contains(&(key, vec!["x".into()])), "{what}: {after:?}");
    assert!(!is_told || before == after, "{what}: {before:?} {after:?}");
}
