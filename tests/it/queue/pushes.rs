//! Pushes behind many others, beside a claim of the same task, and into a queue that becomes full.

use std::time::Duration;

use redlock_sync::{Error, IfQueued, Job, Pushed, Redlock, Retry, Task, TaskInfo};
use redlock_tests::{Server, eventually};

use super::rig::{SOON, plain};

/// The tasks of one push are due one after the other. The last of them must still be due before the next push.
#[test]
fn a_push_behind_many_is_due_behind_them() {
    let server = Server::start();
    let mails = plain(&server, "q");
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
    let mails = plain(&server, "q").lease(Duration::from_secs(2)).renew(false).retry(policy);
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
    let mails = plain(&server, "q");
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

/// A push of many tasks is split into several calls. The server executes each call completely or not at all.
#[test]
fn a_push_of_many_tasks_can_be_full_half_way() {
    let server = Server::start();
    let mails = plain(&server, "q").max_len(150);
    let tasks = || (0..250).map(|n| Task::new("").id(format!("{n}")));
    for _ in 0..2 {
        assert!(matches!(mails.push_all(tasks()), Err(Error::Full { len: 100, .. })));
        assert_eq!(mails.len(), Ok(100));
    }
}
