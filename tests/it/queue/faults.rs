//! Faults of tasks, claims and workers. The numbers are those in `redlock-sync/src/guarantees.md`.

use std::thread;
use std::time::Duration;

use redlock_sync::{Error, LostReason, Pushed, Queue, Redlock, Retry, Task};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, poll};

use super::rig::{LEASE, SOON, ask, ms, open, plain, queue, server_time, state, task};

/// A queue whose claims are not renewed, like those of a stopped process.
fn stopped(server: &Server) -> Queue {
    queue(&server.url()).lease(ms(4000)).renew(false)
}

fn claim(mails: &Queue) -> redlock_sync::Job {
    mails.try_claim_for(SOON).unwrap().unwrap()
}

#[test]
fn queue_fault_02_the_ack_of_an_overtaken_claimant_is_refused() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let first = claim(&stopped(&server));
    let fence = first.fencing_token().unwrap();
    let second = claim(&mails);
    assert_eq!((second.id(), second.attempt()), ("a", 2));
    assert!(second.fencing_token().unwrap() > fence);
    assert!(first.check().unwrap_err().is_lost());
    let error = first.ack().unwrap_err();
    assert!(error.is_lost(), "{error}");
    second.check().unwrap();
    second.extend(LEASE).unwrap();
    second.ack().unwrap();
    assert!(mails.is_empty().unwrap());
}

#[test]
fn queue_fault_03_a_late_ack_is_accepted_if_no_claim_came_between() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let job = claim(&stopped(&server));
    eventually("the lease expires", SOON, || job.check().is_err());
    eventually("the task is due again", SOON, || !mails.peek_due(1).unwrap().is_empty());
    job.ack().unwrap();
    assert!(mails.is_empty().unwrap() && mails.try_claim().unwrap().is_none());
}

#[test]
fn queue_fault_04_a_push_whose_reply_is_lost_is_one_task() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    mails.push(task("first")).unwrap();
    let fault = proxy.on("push", Act::ResetAfter);
    mails.push(task("a")).unwrap();
    assert_eq!((fault.hits(), mails.len().unwrap()), (1, 2));
}

#[test]
fn queue_fault_05_a_claim_whose_reply_is_lost_is_one_attempt() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    mails.push(task("a")).unwrap();
    mails.try_claim().unwrap().unwrap().ack().unwrap();
    mails.remove("a").unwrap();
    mails.push_all(["b", "c"].map(task)).unwrap();
    let fault = proxy.on("claim", Act::ResetAfter);
    let job = claim(&mails);
    assert_eq!((fault.hits(), job.id(), job.attempt()), (1, "b", 1));
    assert_eq!(mails.peek_due(9).unwrap().len(), 1);
    job.ack().unwrap();
}

#[test]
fn queue_fault_06_a_claim_that_came_too_late_is_taken_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (late, mails) = (queue(&proxy.url()).lease(ms(60_000)), queue(&server.url()));
    mails.push(task("a")).unwrap();
    late.try_claim().unwrap().unwrap().ack().unwrap();
    mails.remove("a").unwrap();
    mails.push(task("b")).unwrap();
    let held = proxy.on("claim", Act::HoldReply);
    let error = late.try_claim().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    held.release();
    let job = claim(&mails);
    assert_eq!((job.id(), job.attempt()), ("b", 1), "the claim of unknown outcome was counted");
    job.ack().unwrap();
}

#[test]
fn queue_fault_07_an_ack_whose_reply_is_lost_is_accepted() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    mails.push_all(["a", "b"].map(task)).unwrap();
    claim(&mails).ack().unwrap();
    let job = claim(&mails);
    let fault = proxy.on("finish", Act::ResetAfter);
    job.ack().unwrap();
    assert_eq!((fault.hits(), mails.len().unwrap()), (1, 0));
}

#[test]
fn queue_fault_08_a_server_that_restarts_empty_ends_claims_and_workers_go_on() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let job = claim(&mails);
    let worker = mails.worker(2, |_| ()).unwrap();
    server.restart();
    eventually("the claim is lost", SOON, || job.check().is_err());
    assert!(job.ack().unwrap_err().is_lost());
    let pushed = poll(SOON, || mails.push(task("b")).ok());
    assert!(pushed.is_some(), "the push never succeeded");
    eventually("the worker handles the task", SOON, || mails.is_empty().is_ok_and(|is_empty| is_empty));
    assert_eq!(worker.stop(SOON), 0);
}

#[test]
fn queue_fault_10_a_full_server_can_be_drained() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["a", "b", "c", "d"].map(task)).unwrap();
    let held = claim(&mails);
    server.fill();
    let error = mails.push(task("e")).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("OOM"), "{error}");
    held.extend(ms(4000)).unwrap();
    held.ack().unwrap();
    claim(&mails).ack().unwrap();
    claim(&mails).retry_after(ms(60_000), "later").unwrap();
    assert_eq!(mails.pop_due(9).unwrap().len(), 1);
    assert_eq!((mails.len().unwrap(), mails.peek(1).unwrap()[0].why()), (1, "later"));
    assert!(mails.pause().unwrap() && mails.resume().unwrap());
    assert!(mails.try_claim().unwrap().is_none() && mails.remove("c").unwrap());
    server.unfill();
    mails.push(task("f").after(ms(60_000))).unwrap();
    server.fill();
    assert_eq!(mails.clear().unwrap(), 1);
    server.unfill();
}

#[test]
fn queue_fault_12_a_handler_that_fails_is_retried() {
    let server = Server::start();
    let mails = queue(&server.url());
    for (id, why) in [("panics", "the handler panicked: on purpose"), ("errs", "boom")] {
        mails.push(task(id)).unwrap();
        let worker = mails
            .worker(1, |job| match (job.id(), job.attempt()) {
                ("panics", 1) => panic!("on purpose"),
                ("errs", 1) => Err("boom"),
                _ => {
                    thread::sleep(ms(300));
                    Ok(())
                }
            })
            .unwrap();
        let mut seen = String::new();
        eventually("the reason is kept", SOON, || {
            seen = mails.peek(1).unwrap().first().map_or(String::new(), |entry| entry.why().to_owned());
            seen == why
        });
        eventually("the task is handled", SOON, || mails.is_empty().unwrap());
        assert_eq!(worker.stop(SOON), 0);
    }
}

#[test]
fn queue_fault_13_a_task_that_ends_its_process_dies_after_its_attempts() {
    let server = Server::start();
    let mails = stopped(&server).retry(Retry::every(ms(1)).max_attempts(2));
    mails.push(task("poison")).unwrap();
    for attempt in 1..=2 {
        let job = claim(&mails);
        assert_eq!(job.attempt(), attempt);
        // The process seems to end here, without a release of the claim.
        std::mem::forget(job);
    }
    eventually("the task is dead", SOON, || mails.try_claim().unwrap().is_none() && !mails.dead(1).unwrap().is_empty());
    let dead = mails.dead(1).unwrap().remove(0);
    assert_eq!((dead.id(), dead.attempts(), dead.why()), ("poison", 2, "the claim ran out"));
    assert!(mails.is_empty().unwrap());
}

#[test]
fn queue_fault_14_a_handler_that_hangs_keeps_its_task_for_the_longest_hold() {
    let server = Server::start();
    let mails = queue(&server.url()).max_hold(ms(6000));
    mails.push(task("a")).unwrap();
    let hanging = claim(&mails);
    let second = claim(&mails);
    assert_eq!((second.id(), second.attempt()), ("a", 2));
    assert_eq!(hanging.check().unwrap_err().lost_reason(), Some(LostReason::MaxHold));
    second.ack().unwrap();
}

#[test]
fn queue_fault_16_a_task_whose_hint_is_lost_is_found_by_the_next_look() {
    let server = Server::start();
    // This client subscribes and does nothing else. The server notifies it first, because its wait is the oldest.
    let mut deaf = server.client();
    let mut deaf = deaf.as_pubsub();
    deaf.subscribe("redlock-sync:deaf").unwrap();
    let looked = server_time(&server).as_micros().to_string();
    ask::<()>(&server, "ZADD", "waits", &[&looked, "redlock-sync:deaf/1"]);
    let mails = queue(&server.url()).lease(ms(30_000));
    thread::scope(|scope| {
        let job = scope.spawn(|| claim(&mails).ack());
        eventually("another wait is in the queue", SOON, || ask::<usize>(&server, "ZCARD", "waits", &[]) == 2);
        let pushed = Stopwatch::start();
        queue(&server.url()).push(task("a")).unwrap();
        job.join().unwrap().unwrap();
        assert!(pushed.elapsed() < ms(7000), "{:?}", pushed.elapsed());
    });
    deaf.get_message().unwrap();
}

#[test]
fn queue_fault_18_a_push_while_the_task_is_worked_on_runs_it_once_more() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    // The task is pushed again while it is claimed.
    let job = claim(&mails);
    assert_eq!(mails.push(task("a")).unwrap(), Pushed::RunsAgain);
    job.ack().unwrap();
    let job = claim(&mails);
    assert_eq!(job.attempt(), 1);
    job.ack().unwrap();
    assert!(mails.is_empty().unwrap());
    // The task is pushed again after its claim has expired.
    mails.push(task("a")).unwrap();
    let job = claim(&stopped(&server));
    eventually("the claim expires", SOON, || !mails.peek_due(1).unwrap().is_empty());
    assert_eq!(mails.push(task("a")).unwrap(), Pushed::RunsAgain);
    job.ack().unwrap();
    claim(&mails).ack().unwrap();
    assert!(mails.is_empty().unwrap());
    // The task is pushed again for later, and its job fails.
    mails.push(task("a")).unwrap();
    let job = claim(&mails);
    mails.push(task("a").after(ms(60_000))).unwrap();
    job.fail("boom").unwrap();
    assert!(mails.dead(1).unwrap().is_empty() && mails.peek(1).unwrap()[0].due_in() > ms(50_000));
    // The task is pushed again after it has died.
    mails.remove("a").unwrap();
    mails.push(task("a")).unwrap();
    claim(&mails).fail("boom").unwrap();
    assert_eq!(mails.push(Task::new("fresh").id("a")).unwrap(), Pushed::New);
    let job = claim(&mails);
    assert_eq!((job.body(), job.attempt()), (&b"fresh"[..], 1));
}

#[test]
fn queue_fault_20_a_client_that_is_closed_gives_its_claims_up() {
    let server = Server::start();
    let locks = open(&server.url());
    let mails = locks.queue("q");
    mails.push(task("a")).unwrap();
    let job = claim(&mails);
    let waiting = locks.queue("other");
    thread::scope(|scope| {
        let waits = scope.spawn(move || waiting.claim().map(drop));
        let stands = || server.keys().contains(&"{other}:q2:waits".to_owned());
        eventually("another thread waits", SOON, stands);
        assert_eq!(locks.shutdown(Duration::ZERO).unwrap().given_up.len(), 1);
        assert_eq!(waits.join().unwrap(), Err(Error::Closed));
    });
    assert_eq!(job.check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
    assert!(job.ack().unwrap_err().is_lost());
    assert_eq!(mails.push("x").unwrap_err(), Error::Closed);
    assert_eq!(state(&server, "a").unwrap()[0], "1", "the attempt was not counted");
    let second = claim(&queue(&server.url()));
    assert_eq!(second.attempt(), 2);
}

#[test]
fn a_server_that_is_away_is_waited_for_within_limits() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    server.stop();
    assert!(mails.try_claim().unwrap_err().is_unavailable());
    assert!(mails.try_claim_for(ms(600)).unwrap_err().is_unavailable());
    thread::scope(|scope| {
        let job = scope.spawn(|| mails.try_claim_for(Duration::from_secs(60)).unwrap().unwrap());
        server.cont();
        assert_eq!(job.join().unwrap().id(), "a");
    });
}

/// A task whose handler hangs must die after its last attempt, even if each attempt ends by a graceful shutdown.
#[test]
fn a_task_that_hangs_through_each_shutdown_dies() {
    type Stop = fn(&Redlock);
    let stops: [Stop; 2] = [
        |locks| assert_eq!(locks.shutdown(Duration::ZERO).unwrap().given_up, ["{q}:q2:due"]),
        |locks| assert_eq!(locks.unlock_all().unwrap().given_up.len(), 1),
    ];
    for stop in stops {
        let server = Server::start();
        let policy = Retry::every(Duration::from_millis(1)).max_attempts(3);
        plain(&server, "q").push("hangs").unwrap();
        for attempt in 1..=3 {
            let locks =
                Redlock::builder().node(server.url()).node_timeout(Duration::from_millis(1500)).build().unwrap();
            let job = locks.queue("q").retry(policy.clone()).try_claim_for(SOON).unwrap().expect("the task is due");
            assert_eq!(job.attempt(), attempt);
            stop(&locks);
            assert!(job.ack().unwrap_err().is_lost());
        }
        let mails = plain(&server, "q").retry(policy);
        assert!(mails.try_claim().unwrap().is_none() && mails.is_empty().unwrap());
        assert_eq!(mails.dead(1).unwrap()[0].why(), "the client gave the claim up");
    }
}

/// One call of the script moves at most ten tasks to the dead ones.
#[test]
fn a_call_that_does_not_wait_gets_the_task_behind_many_that_die() {
    let server = Server::start();
    let once = Retry::every(Duration::from_millis(1)).max_attempts(1);
    let mails = plain(&server, "q").lease(Duration::from_secs(2)).renew(false).retry(once);
    for n in 0..25 {
        mails.push(Task::new("dies").id(format!("d{n}"))).unwrap();
        std::mem::forget(mails.try_claim().unwrap().unwrap());
    }
    eventually("all claims have expired", SOON, || mails.peek_due(30).unwrap().len() == 25);
    mails.push("lives").unwrap();
    let job = mails.try_claim().unwrap().expect("the task that lives");
    assert_eq!((job.body(), mails.dead_len().unwrap()), (&b"lives"[..], 25));
    job.ack().unwrap();
}
