//! Each kind of lock, and a queue of tasks, needs its own commands but no commands of another kind (21).

use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, Redlock, Task};
use redlock_tests::{Server, eventually};

use super::permissions::{documented_for, is_redis_6, needed_for, open, refusals};
use crate::faults::rig::{LONG, SOON};

/// How the kind's row in the documentation begins, and a function that calls all operations of the kind.
type Use = fn(&Server, &Redlock) -> Result<(), Error>;
const KINDS: [(&str, Use); 4] =
    [("mutexes", mutex), ("semaphores", semaphore), ("read-write locks", rw_lock), ("queues of tasks", queue)];

/// Waits until a client waits, or until `has_ended` returns true.
fn until_waiting(server: &Server, part: &str, has_ended: impl Fn() -> bool) {
    let waits = || has_ended() || server.keys().iter().any(|key| key.ends_with(part));
    eventually("a client waits", SOON, waits);
}

fn mutex(server: &Server, locks: &Redlock) -> Result<(), Error> {
    let mutex = locks.mutex("order:42").fenced(true);
    let guard = mutex.lock()?;
    guard.extend(LONG)?;
    let other = open(server, "").mutex("order:42");
    thread::scope(|scope| {
        let waiter = scope.spawn(move || other.lock().and_then(|guard| guard.unlock().map(drop)));
        until_waiting(server, ":waits", || waiter.is_finished());
        guard.unlock()?;
        waiter.join().unwrap()
    })
}

fn semaphore(server: &Server, locks: &Redlock) -> Result<(), Error> {
    let guard = locks.semaphore("order:42", 1).fenced(true).acquire()?;
    guard.extend(LONG)?;
    let other = open(server, "").semaphore("order:42", 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(move || other.acquire().and_then(redlock_sync::SemaphorePermit::release));
        until_waiting(server, ":permit_queue", || waiter.is_finished());
        guard.release()?;
        waiter.join().unwrap()
    })
}

fn rw_lock(server: &Server, locks: &Redlock) -> Result<(), Error> {
    locks.rw_lock("order:42").read()?.unlock()?;
    let guard = locks.rw_lock("order:42").fenced(true).write()?;
    guard.extend(LONG)?;
    let other = open(server, "").rw_lock("order:42");
    thread::scope(|scope| {
        let waiter = scope.spawn(move || other.read().and_then(|guard| guard.unlock().map(drop)));
        until_waiting(server, ":readers", || waiter.is_finished());
        guard.unlock()?;
        waiter.join().unwrap()
    })
}

fn queue(server: &Server, locks: &Redlock) -> Result<(), Error> {
    let mails = locks.queue("order:42");
    mails.push_all(["a", "b", "c"].map(|id| Task::new("x").id(id)))?;
    let job = mails.claim()?;
    job.extend(LONG)?;
    job.retry_after(Duration::from_secs(60), "later")?;
    mails.claim()?.fail("never")?;
    mails.claim()?.ack()?;
    assert!(mails.revive_all()? == 1 && mails.remove("a")? && mails.pop_due(9)?.len() == 1);
    let other = open(server, "").queue("order:42");
    thread::scope(|scope| {
        let waiter = scope.spawn(move || other.claim().and_then(redlock_sync::Job::ack));
        until_waiting(server, ":q2:waits", || waiter.is_finished());
        mails.push("d")?;
        waiter.join().unwrap()
    })?;
    mails.purge_dead().map(drop)
}

fn user(server: &Server, rules: impl IntoIterator<Item = String>) {
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg("reset"));
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg(rules.into_iter().collect::<Vec<_>>()));
}

#[test]
fn fault_21_each_kind_needs_its_own_commands_and_no_others() {
    thread::scope(|scope| {
        for (title, use_it) in KINDS {
            scope.spawn(move || {
                let server = Server::start();
                user(&server, documented_for(title));
                use_it(&server, &open(&server, "")).unwrap_or_else(|error| panic!("{title}: {error}"));
                assert_eq!(refusals(&server), Vec::<String>::new(), "{title}");
                for rule in needed_for(title) {
                    server.ask::<()>(&cmd("FLUSHALL"));
                    server.ask::<()>(cmd("SCRIPT").arg("FLUSH"));
                    user(&server, documented_for(title).into_iter().filter(|word| *word != rule));
                    let error = use_it(&server, &open(&server, "")).unwrap_err();
                    let is_named = error.to_string().to_lowercase().contains(rule.trim_start_matches('+'));
                    assert!(matches!(error, Error::Config { .. }) && is_named, "{title} without {rule}: {error}");
                    assert_eq!(server.keys(), Vec::<String>::new(), "{title} without {rule}");
                }
            });
        }
    });
}

/// If permissions for one kind are missing, other kinds still work on the same connections.
#[test]
fn fault_21_a_client_of_mutexes_needs_nothing_for_queues() {
    let server = Server::start();
    user(&server, documented_for("mutexes"));
    let locks = open(&server, "");
    let mails = locks.queue("order:1");
    for _ in 0..2 {
        mutex(&server, &locks).unwrap();
        for refused in [mails.push("x").err(), mails.try_claim().err(), mails.pop_due(1).err()] {
            let message = refused.unwrap().to_string();
            let names = if is_redis_6(&server) {
                "HSET"
            } else {
                "PERSIST, ZSCORE, ZRANGEBYSCORE, ZPOPMIN, ZREMRANGEBYSCORE, HGET, HMGET, HSET, HDEL"
            };
            assert!(message.contains(names) && message.contains("Permissions"), "{message}");
        }
    }
    assert_eq!(locks.mutex("order:42").try_lock().unwrap().unlock().map(drop), Ok(()));
}
