//! Unusual and extreme names, ids, bodies, times and limits.

use std::time::{Duration, UNIX_EPOCH};

use redis::cmd;
use redlock_sync::{Error, Job, Pushed, Queue, Retry, Task, Verdict};
use redlock_tests::{Proxy, Server, eventually};

use super::rig::{SOON, assert_empty, ms, open, plain, queue};

fn claim(mails: &Queue) -> Job {
    mails.try_claim_for(SOON).unwrap().unwrap()
}

/// Takes one task through all its states.
fn is_run(mails: &Queue, id: &str, body: &[u8]) {
    assert_eq!(mails.push(Task::new(body).id(id)).unwrap(), Pushed::New);
    let job = claim(mails);
    assert_eq!((job.id(), job.body()), (id, body));
    job.extend(ms(5000)).unwrap();
    job.retry_after(Duration::ZERO, "once more").unwrap();
    claim(mails).fail("never").unwrap();
    assert_eq!((mails.dead(9).unwrap()[0].id(), mails.dead(9).unwrap()[0].why()), (id, "never"));
    assert!(mails.revive(id).unwrap());
    let seen = mails.peek(1).unwrap().remove(0);
    assert_eq!((seen.id(), seen.body()), (id, body));
    let job = claim(mails);
    assert_eq!((job.id(), job.attempt()), (id, 1));
    job.ack().unwrap();
    assert!(mails.is_empty().unwrap() && !mails.remove(id).unwrap() && !mails.revive(id).unwrap());
}

#[test]
fn any_name_any_id_and_any_body() {
    let server = Server::start();
    let locks = open(&server.url());
    let long = "n".repeat(512);
    let names = ["{", "a{b", "{a}", "}{a}", " ", "\n", "\0", "*", "a/b", "\u{10ffff}\u{7f}é", "-1", "%", "q", &long];
    let odd = "x\0\r\n\u{10ffff} %d{}\\\"'* check queue";
    let ids = ["-", "0", " ", "check queue", "+1", "\0", "nil", odd, &long];
    for name in names {
        let mails = locks.queue(name);
        for id in ids {
            is_run(&mails, id, b"body");
        }
    }
    assert_empty(&server);
    let mails = locks.queue("q").max_body(16 << 20);
    let every: Vec<u8> = (0..=255).collect();
    for body in [&b""[..], b"check queue", b"\0\r\n", &every, &vec![7; 10 << 20]] {
        is_run(&mails, "a", body);
    }
    assert!(matches!(locks.queue("q").push(vec![0; (512 << 10) + 1]), Err(Error::Config { .. })));
    for id in ["", &"i".repeat(513)] {
        assert!(matches!(mails.push(Task::new("").id(id)), Err(Error::Config { .. })));
    }
    for name in ["", "}", "a}b", "{}", "{a}:q2:due"] {
        assert!(matches!(locks.queue(name).push(""), Err(Error::Config { .. })), "{name}");
    }
}

#[test]
fn any_time() {
    let server = Server::start();
    let mails = queue(&server.url());
    let longest = Duration::from_secs(100 * 365 * 86_400);
    for too_long in [Duration::MAX, Duration::from_secs(u64::MAX), longest + ms(1)] {
        assert!(matches!(mails.push(Task::new("").after(too_long)), Err(Error::Config { .. })));
    }
    for too_late in [200_000_000_000, 9_000_000_001].map(|secs| UNIX_EPOCH + Duration::from_secs(secs)) {
        assert!(matches!(mails.push(Task::new("").at(too_late)), Err(Error::Config { .. })));
    }
    mails.push(Task::new("").id("last").after(longest)).unwrap();
    mails.push(Task::new("").id("first").at(UNIX_EPOCH - ms(1))).unwrap();
    mails.push(Task::new("").id("latest").at(UNIX_EPOCH + Duration::from_secs(9_000_000_000))).unwrap();
    let seen = mails.peek(9).unwrap();
    assert_eq!(seen.iter().map(redlock_sync::TaskInfo::id).collect::<Vec<_>>(), ["first", "last", "latest"]);
    assert_eq!((seen[0].due_at(), seen[0].due_in()), (UNIX_EPOCH, Duration::ZERO));
    assert_eq!(seen[2].due_at(), UNIX_EPOCH + Duration::from_secs(9_000_000_000));
    let job = claim(&mails);
    assert_eq!((job.id(), job.attempt()), ("first", 1));
    // If the pause of a retry policy is too long, no call can report an error. The queue shortens the pause.
    job.retry_after(Duration::ZERO, "now").unwrap();
    let rare = mails.clone().retry(Retry::every(Duration::MAX).jitter(0.0));
    claim(&rare).retry("later").unwrap();
    let later = mails.peek(9).unwrap().into_iter().find(|entry| entry.id() == "first").unwrap();
    assert!(later.due_in() > longest / 2 && later.due_in() <= longest, "{later:?}");
    assert!(mails.remove_if(&later).unwrap());
}

/// `revive_all` revives the tasks that are dead when it starts, and none that die meanwhile.
#[test]
fn all_dead_tasks_are_revived_once_though_a_worker_fails_them_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (mails, far) = (queue(&server.url()), queue(&proxy.url()));
    mails.push_all((0..300).map(|n| Task::new("").id(format!("{n}")))).unwrap();
    let worker = mails.worker(4, |_| Verdict::Fail("never".into())).unwrap();
    eventually("all are dead", SOON, || mails.dead_len().unwrap() == 300);
    // In each round trip, more revived tasks die again than one call revives. This request makes the connection before
    // the proxy becomes slow.
    assert_eq!(far.dead_len().unwrap(), 300);
    proxy.latency(ms(40));
    assert_eq!(far.revive_all().unwrap(), 300);
    assert_eq!(worker.stop(SOON), 0);
}

#[test]
fn nothing_is_taken_for_something_else() {
    let server = Server::start();
    // An empty id must not mean the oldest dead task.
    let mails = plain(&server, "ids");
    mails.push("welcome").unwrap();
    mails.try_claim().unwrap().unwrap().fail("no such address").unwrap();
    assert_eq!((mails.revive("").unwrap(), mails.dead(9).unwrap().len()), (false, 1));
    assert_eq!((mails.revive_all().unwrap(), mails.len().unwrap()), (1, 1));
    // A limit of 0 must not mean that there is no limit.
    let none = plain(&server, "limits").max_len(0);
    let refused = none.push("welcome").unwrap_err();
    assert!(matches!(refused, Error::Full { len: 0, .. }) && none.is_empty().unwrap(), "{refused}");
    // A task that was pushed again with the same id and time is not the task that `peek` returned.
    let mails = plain(&server, "versions");
    let first = Task::new("first").id("a").at(UNIX_EPOCH + Duration::from_secs(1));
    mails.push(first).unwrap();
    let seen = mails.peek(1).unwrap().remove(0);
    mails.try_claim().unwrap().unwrap().ack().unwrap();
    mails.push(Task::new("second").id("a").at(UNIX_EPOCH + Duration::from_secs(1))).unwrap();
    assert!(!mails.remove_if(&seen).unwrap() && mails.len().unwrap() == 1);
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
        let mails = plain(&server, &format!("q{n}"));
        mails.push("welcome").unwrap();
        end(&mails, mails.try_claim().unwrap().unwrap());
        assert!(mails.is_empty().unwrap());
    }
    for key in server.keys() {
        let ms: i64 = server.ask(cmd("PTTL").arg(&key));
        assert!((1..=21 * 60_000).contains(&ms), "{key} ends in {ms} ms");
    }
}
