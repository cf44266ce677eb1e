//! How worker threads run and end.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Verdict};
use redlock_tests::{Proxy, Server, Stopwatch, eventually};

use super::rig::{SOON, assert_empty, ms, open, queue, task};

#[redlock_sync::distributed_lock("sent:{id}", client = locks)]
fn under_a_lock(locks: &redlock_sync::Redlock, id: &str) -> Result<(), Error> {
    Ok(())
}

#[test]
fn a_worker_handles_all_tasks_under_locks_too() {
    let server = Server::start();
    let (locks, mails) = (open(&server.url()), queue(&server.url()));
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let worker = mails
        .worker(4, move |job| {
            count.fetch_add(1, Ordering::SeqCst);
            under_a_lock(&locks, job.id())
        })
        .unwrap();
    mails.push_all((0..200).map(|n| task(&format!("{n}")))).unwrap();
    eventually("all are handled", SOON, || mails.is_empty().unwrap());
    assert_eq!((worker.stop(SOON), handled.load(Ordering::SeqCst)), (0, 200));
    assert_empty(&server);
}

#[test]
fn verdicts_are_carried_out() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["done", "later", "fail", "again"].map(task)).unwrap();
    let worker = mails
        .worker(2, |job| match job.id() {
            "later" => Verdict::RetryAfter(ms(60_000), "not yet".into()),
            "fail" => Verdict::Fail("never".into()),
            "again" => Verdict::AgainAfter(ms(60_000)),
            _ => Verdict::Done,
        })
        .unwrap();
    eventually("all are handled", SOON, || mails.len().unwrap() == 2 && mails.peek(2).unwrap()[0].due_in() > ms(9000));
    assert_eq!(worker.stop(SOON), 0);
    let left = mails.peek(9).unwrap();
    let mut left: Vec<_> = left.iter().map(|entry| (entry.id(), entry.attempts(), entry.why())).collect();
    left.sort_unstable();
    assert_eq!(left, [("again", 0, ""), ("later", 1, "not yet")]);
    assert_eq!(mails.dead(9).unwrap()[0].why(), "never");
}

#[test]
fn queue_fault_19_a_worker_stops_soon_and_waits_for_its_handlers() {
    let server = Server::start();
    let mails = queue(&server.url());
    // An idle worker: one thread waits on the server, and the other threads wait for their turn.
    let worker = mails.worker(8, |_| ()).unwrap();
    let stopped = Stopwatch::start();
    assert_eq!(worker.stop(SOON), 0);
    assert!(stopped.elapsed() < ms(2000), "{:?}", stopped.elapsed());
    // A working worker: the handler ends within the grace period, and no other task is claimed.
    mails.push_all(["a", "b"].map(task)).unwrap();
    // If the stop came before the handler begins, the claimed task would go back to the queue. So the test waits for
    // the handler.
    let (tell, begun) = mpsc::channel();
    let handler = move |time| {
        let tell = tell.clone();
        move |_: &redlock_sync::Job| {
            tell.send(()).unwrap();
            thread::sleep(time);
        }
    };
    let worker = mails.worker(1, handler(ms(500))).unwrap();
    begun.recv_timeout(SOON).unwrap();
    assert_eq!(worker.stop(SOON), 0);
    assert_eq!((mails.len().unwrap(), mails.peek(1).unwrap()[0].attempts()), (1, 0));
    // A hanging worker: its claim is no longer renewed, and the task is due again.
    let worker = mails.worker(1, handler(Duration::from_secs(6))).unwrap();
    begun.recv_timeout(SOON).unwrap();
    assert_eq!(worker.stop(ms(100)), 1);
    let job = mails.try_claim_for(ms(5000)).unwrap().unwrap();
    assert_eq!((job.id(), job.attempt()), ("b", 2));
    job.ack().unwrap();
}

#[test]
fn an_error_that_stays_ends_a_worker() {
    let server = Server::start();
    let locks = open(&server.url());
    let worker = locks.queue("q").worker(3, |_| ()).unwrap();
    server.set("{q}:q2:due", "x");
    assert!(matches!(worker.join(), Err(Error::WrongType { .. })));
    server.del("{q}:q2:due");
    let worker = locks.queue("q").worker(3, |_| ()).unwrap();
    locks.shutdown(Duration::ZERO).unwrap();
    assert_eq!(worker.join(), Err(Error::Closed));
}

/// The child has no worker threads, so it must not wait for them.
#[test]
fn fault_28_a_forked_copy_of_a_worker_ends_at_once() {
    let server = Server::start();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_agent"));
    assert!(agent.args(["queue", "fork", &server.url()]).status().unwrap().success());
}

/// Otherwise only a timer would find the next push.
#[test]
fn a_client_that_has_been_told_of_a_task_enters_its_next_wait_at_once() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (mails, other) = (queue(&proxy.url()), queue(&server.url()));
    let claim = || mails.try_claim_for(SOON).unwrap().unwrap().ack().unwrap();
    let push = |id: &str| {
        eventually("a thread waits", SOON, || server.ask::<usize>(redis::cmd("ZCARD").arg("{q}:q2:waits")) == 1);
        other.push(task(id)).unwrap();
    };
    thread::scope(|scope| {
        let first = scope.spawn(claim);
        push("first");
        first.join().unwrap();
        proxy.clear_log();
        let second = scope.spawn(claim);
        push("second");
        second.join().unwrap();
    });
    let claims: Vec<_> = proxy.seen().into_iter().filter(|seen| seen.name == "claim").collect();
    // After the digest, the number of keys and the keys follow: token, lease, attempts, dead tasks, their age, wait.
    let waits: Vec<_> = claims.iter().map(|claim| !claim.args[13].is_empty()).collect();
    assert_eq!(waits, [false, true, true], "{claims:?}");
}
