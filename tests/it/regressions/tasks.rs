//! Queues of tasks: edge cases of their calls.

use std::time::{Duration, UNIX_EPOCH};

use redis::cmd;
use redlock_sync::{Error, IfQueued, Job, Pushed, Queue, Redlock, Retry, Task, TaskInfo};
use redlock_tests::{Server, eventually};

const SOON: Duration = Duration::from_secs(20);

fn queue(server: &Server, name: &str) -> Queue {
    Redlock::builder().node(server.url()).node_timeout(Duration::from_millis(1500)).build().unwrap().queue(name)
}

#[test]
fn nothing_is_taken_for_something_else() {
    let server = Server::start();
    // An empty id must not mean the oldest dead task.
    let mails = queue(&server, "ids");
    mails.push("welcome").unwrap();
    mails.try_claim().unwrap().unwrap().fail("no such address").unwrap();
    assert_eq!((mails.revive("").unwrap(), mails.dead(9).unwrap().len()), (false, 1));
    assert_eq!((mails.revive_all().unwrap(), mails.len().unwrap()), (1, 1));
    // A limit of 0 must not mean that there is no limit.
    let none = queue(&server, "limits").max_len(0);
    let refused = none.push("welcome").unwrap_err();
    assert!(matches!(refused, Error::Full { len: 0, .. }) && none.is_empty().unwrap(), "{refused}");
    // A task that was pushed again with the same id and time is not the task that `peek` returned.
    let mails = queue(&server, "versions");
    let first = Task::new("first").id("a").at(UNIX_EPOCH + Duration::from_secs(1));
    mails.push(first).unwrap();
    let seen = mails.peek(1).unwrap().remove(0);
    mails.try_claim().unwrap().unwrap().ack().unwrap();
    mails.push(Task::new("second").id("a").at(UNIX_EPOCH + Duration::from_secs(1))).unwrap();
    assert!(!mails.remove_if(&seen).unwrap() && mails.len().unwrap() == 1);
}

/// The tasks of one push are due one after the other. The last of them must still be due before the next push.
#[test]
fn a_push_behind_many_is_due_behind_them() {
    let server = Server::start();
    let mails = queue(&server, "q");
    mails.push_all((0..6000).map(|n| Task::new("").id(format!("{n}")))).unwrap();
    mails.push(Task::new("").id("last")).unwrap();
    let mut ids = Vec::new();
    loop {
        let some = mails.pop_due(1000).unwrap();
        ids.extend(some.iter().map(|entry| entry.id().to_owned()));
        // The last tasks may be due slightly later than they were pushed.
        if some.is_empty() && mails.is_empty().unwrap() {
            break;
        }
    }
    let expected: Vec<String> = (0..6000).map(|n| n.to_string()).chain(["last".to_owned()]).collect();
    assert!(ids == expected, "{:?} tasks come after `last`", ids.iter().skip_while(|id| *id != "last").count());
}

/// The push reports that the task runs once more. This must hold however the current claim ends.
#[test]
fn a_push_during_the_last_attempt_is_run() {
    let server = Server::start();
    let policy = Retry::every(Duration::from_millis(1)).max_attempts(1);
    let mails = queue(&server, "q").lease(Duration::from_secs(2)).renew(false).retry(policy);
    let again = |delay| Task::new("again").id("a").if_queued(IfQueued::Replace).after(delay);
    let die = |delay| {
        mails.push(Task::new("first").id("a")).unwrap();
        let job = mails.try_claim_for(SOON).unwrap().unwrap();
        assert_eq!(mails.push(again(delay)).unwrap(), Pushed::Again);
        // The process seems to end here, without a release of the claim.
        std::mem::forget(job);
    };
    die(Duration::ZERO);
    let job = mails.try_claim_for(SOON).unwrap().expect("the task runs once more");
    assert_eq!((job.body(), job.attempt(), mails.dead(1).unwrap().len()), (&b"again"[..], 1, 0));
    job.ack().unwrap();
    die(Duration::from_secs(60));
    let is_later = |entry: &TaskInfo| entry.due_in() > Duration::from_secs(30) && entry.attempts() == 0;
    eventually("the task is queued for later", SOON, || {
        assert!(mails.try_claim().unwrap().is_none() && mails.dead(1).unwrap().is_empty());
        mails.peek(1).unwrap().iter().all(is_later)
    });
    assert_eq!(mails.len().unwrap(), 1);
}

/// The keys of an empty queue expire.
#[test]
fn what_is_left_of_an_empty_queue_ends() {
    let server = Server::start();
    let ends: [fn(&Queue, Job); 4] = [
        |_, job| job.ack().unwrap(),
        |mails, job| {
            job.fail("boom").unwrap();
            assert_eq!(mails.purge_dead(), Ok(1));
        },
        |mails, job| {
            assert_eq!(mails.remove(job.id()), Ok(true));
        },
        |mails, job| {
            job.retry_after(Duration::ZERO, "boom").unwrap();
            assert_eq!(mails.pop_due(9).unwrap().len(), 1);
        },
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let mails = queue(&server, &format!("q{n}"));
        mails.push("welcome").unwrap();
        end(&mails, mails.try_claim().unwrap().unwrap());
        assert!(mails.is_empty().unwrap());
    }
    for key in server.keys() {
        let ms: i64 = server.ask(cmd("PTTL").arg(&key));
        assert!((1..=21 * 60_000).contains(&ms), "{key} ends in {ms} ms");
    }
}

/// The queue has more waits of killed processes before a live one than a script once tried.
#[test]
fn a_push_wakes_a_client_behind_many_that_are_gone() {
    let server = Server::start();
    let (mails, waits) = (queue(&server, "q"), "{q}:q2:waits");
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| mails.try_claim_for(SOON).unwrap().unwrap().ack());
        let first = || server.ask::<Vec<(String, f64)>>(cmd("ZRANGE").arg(waits).arg(0).arg(0).arg("WITHSCORES"));
        eventually("the wait is in the queue", SOON, || !first().is_empty());
        let before = first()[0].1 - 1.0;
        for n in 0..1000 {
            server.ask::<()>(cmd("ZADD").arg(waits).arg(before).arg(format!("redlock-sync:gone/{n}")));
        }
        queue(&server, "q").push("welcome").unwrap();
        assert_eq!(server.ask::<usize>(cmd("ZCARD").arg(waits)), 0);
        worker.join().unwrap().unwrap();
    });
}

/// The wait of a process that is gone must end although other processes wait on.
#[test]
fn the_wait_of_a_process_that_is_gone_ends() {
    let server = Server::start();
    server.ask::<()>(cmd("ZADD").arg("{q}:q2:waits").arg(1).arg("redlock-sync:gone/1"));
    let mails = queue(&server, "q");
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| mails.try_claim_for(SOON).unwrap().unwrap().ack());
        let all = || server.ask::<Vec<String>>(cmd("ZRANGE").arg("{q}:q2:waits").arg(0).arg(-1));
        eventually("only the live one waits", SOON, || matches!(&all()[..], [one] if !one.contains("gone")));
        queue(&server, "q").push("welcome").unwrap();
        worker.join().unwrap().unwrap();
    });
}

/// A task without a body must not run as one with an empty body.
#[test]
fn a_task_whose_body_is_lost_is_dead() {
    let server = Server::start();
    let mails = queue(&server, "q");
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

/// The new body and time take effect when the claim ends, however it ends.
#[test]
fn a_push_that_replaces_a_claimed_task_waits_for_the_end_of_the_claim() {
    const LATER: Duration = Duration::from_secs(3600);
    type End = fn(&Redlock, Job);
    let ends: [(&str, End); 8] = [
        ("ack", |_, job| job.ack().unwrap()),
        ("retry", |_, job| job.retry("boom").unwrap()),
        ("again", |_, job| job.again_after(Duration::ZERO).unwrap()),
        ("fail", |_, job| job.fail("boom").unwrap()),
        ("drop", |_, job| drop(job)),
        ("unlock_all", |locks, _job| assert_eq!(locks.unlock_all().unwrap().given_up.len(), 1)),
        // The process seems to end here, without a release of the claim.
        ("none", |_, job| std::mem::forget(job)),
        ("none, and a pop", |locks, job| {
            let mails = locks.queue("q");
            std::mem::forget(job);
            eventually("the claim expires", SOON, || !mails.peek_due(1).unwrap().is_empty());
            assert_eq!(mails.pop_due(1), Ok(Vec::new()));
        }),
    ];
    for (end, ended) in ends {
        let server = Server::start();
        let locks = Redlock::builder().node(server.url()).node_timeout(Duration::from_millis(1500)).build().unwrap();
        let policy = Retry::every(Duration::from_millis(1)).jitter(0.0).max_attempts(5);
        let mails = locks.queue("q").lease(Duration::from_secs(2)).renew(false).retry(policy);
        mails.push(Task::new("first").id("a")).unwrap();
        let job = mails.try_claim_for(SOON).unwrap().unwrap();
        let second = Task::new("second").id("a").if_queued(IfQueued::Replace).after(LATER);
        assert_eq!(mails.push(second).unwrap(), Pushed::Again, "{end}");
        ended(&locks, job);
        eventually(end, SOON, || {
            let claimed = mails.try_claim().unwrap();
            assert!(claimed.is_none(), "{end}: {claimed:?} {:?}", claimed.as_ref().map(Job::body));
            let seen = mails.peek(1).unwrap().remove(0);
            (seen.body(), seen.attempts()) == (b"second", 0) && seen.due_in() > LATER / 2
        });
        assert!(mails.remove("a").unwrap());
        let left: Vec<String> = server.keys().into_iter().filter(|key| !key.ends_with("q2:fence")).collect();
        assert!(left.is_empty(), "{end}: {left:?}");
    }
}

/// The push reports that its body is dropped. It must change neither the body nor the time of the earlier push.
#[test]
fn a_push_that_keeps_a_claimed_task_says_so() {
    const LATER: Duration = Duration::from_secs(3600);
    let server = Server::start();
    let mails = queue(&server, "q");
    for policy in [IfQueued::Keep, IfQueued::Earlier] {
        let push = |body: &str, then, after| mails.push(Task::new(body).id("a").if_queued(then).after(after)).unwrap();
        push("first", policy, Duration::ZERO);
        let job = mails.try_claim().unwrap().unwrap();
        assert_eq!(push("dropped", policy, Duration::ZERO), Pushed::RunsAgain);
        job.ack().unwrap();
        let job = mails.try_claim().unwrap().unwrap();
        assert_eq!((job.body(), job.attempt()), (&b"first"[..], 1));
        // The body of the replacing push stays. Its time stays too, except that `Earlier` asks for an earlier one.
        assert_eq!(push("second", IfQueued::Replace, LATER), Pushed::Again);
        assert_eq!(push("dropped", policy, Duration::ZERO), Pushed::RunsAgain);
        job.ack().unwrap();
        let seen = mails.peek(1).unwrap().remove(0);
        assert_eq!((seen.body(), seen.due_in().is_zero()), (&b"second"[..], policy == IfQueued::Earlier));
        assert_eq!(mails.remove("a"), Ok(true));
    }
}

/// A task whose handler hangs must die after its last attempt, even if each attempt ends by a graceful shutdown.
#[test]
fn a_task_that_hangs_through_each_shutdown_dies() {
    type Stop = fn(&Redlock);
    let stops: [Stop; 3] = [
        |locks| assert_eq!(locks.shutdown(Duration::ZERO).unwrap().given_up, ["{q}:q2:due"]),
        |locks| assert_eq!(locks.shutdown(Duration::ZERO).unwrap().given_up.len(), 1),
        |locks| assert_eq!(locks.unlock_all().unwrap().given_up.len(), 1),
    ];
    for stop in stops {
        let server = Server::start();
        let policy = Retry::every(Duration::from_millis(1)).max_attempts(3);
        queue(&server, "q").push("hangs").unwrap();
        for attempt in 1..=3 {
            let locks =
                Redlock::builder().node(server.url()).node_timeout(Duration::from_millis(1500)).build().unwrap();
            let job = locks.queue("q").retry(policy.clone()).try_claim_for(SOON).unwrap().expect("the task is due");
            assert_eq!(job.attempt(), attempt);
            stop(&locks);
            assert!(job.ack().unwrap_err().is_lost());
        }
        let mails = queue(&server, "q").retry(policy);
        assert!(mails.try_claim().unwrap().is_none() && mails.is_empty().unwrap());
        assert_eq!(mails.dead(1).unwrap()[0].why(), "the client gave the claim up");
    }
}

/// A push of many tasks is split into several calls. The server executes each call completely or not at all.
#[test]
fn a_push_of_many_tasks_can_be_full_half_way() {
    let server = Server::start();
    let mails = queue(&server, "q").max_len(150);
    let tasks = || (0..250).map(|n| Task::new("").id(format!("{n}")));
    for _ in 0..2 {
        assert!(matches!(mails.push_all(tasks()), Err(Error::Full { len: 100, .. })));
        assert_eq!(mails.len(), Ok(100));
    }
}

/// A lost reply loses its tasks, so a pop takes only a few large ones.
#[test]
fn a_pop_returns_no_more_bodies_than_arrive_in_time() {
    let server = Server::start();
    let mails = queue(&server, "q");
    for n in 0..5 {
        mails.push(Task::new(vec![n; 20_000])).unwrap();
    }
    mails.push(Task::new(vec![5; 200_000])).unwrap();
    let pop = || mails.pop_due(100).unwrap().len();
    assert_eq!([(); 4].map(|()| pop()), [3, 2, 1, 0]);
}

/// One call of the script moves at most ten tasks to the dead ones.
#[test]
fn a_call_that_does_not_wait_gets_the_task_behind_many_that_die() {
    let server = Server::start();
    let once = Retry::every(Duration::from_millis(1)).max_attempts(1);
    let mails = queue(&server, "q").lease(Duration::from_secs(2)).renew(false).retry(once);
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

/// A client must read a whole reply within one node timeout, and the server handles no other call meanwhile.
#[test]
fn a_look_at_tasks_returns_no_more_bodies_than_arrive_in_time() {
    let server = Server::start();
    let mails = queue(&server, "q").retry(Retry::every(Duration::from_millis(1)).max_attempts(1));
    let sizes = [400_000, 400_000, 400_000];
    for size in sizes {
        mails.push(vec![b'x'; size]).unwrap();
    }
    assert_eq!((mails.peek(10).unwrap().len(), mails.peek_due(10).unwrap().len(), mails.len().unwrap()), (2, 2, 3));
    for _ in sizes {
        mails.try_claim().unwrap().unwrap().fail("boom").unwrap();
    }
    assert_eq!((mails.dead(10).unwrap().len(), mails.dead_len().unwrap()), (2, 3));
}
