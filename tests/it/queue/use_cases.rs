//! The cases under "Tasks by name and time" in the guarantees, by number, and other promises of the API.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use redlock_sync::{Error, IfQueued, Pushed, Retry, Task};
use redlock_tests::{Proxy, Server, eventually, servers};

use super::rig::{SOON, assert_empty, key, ms, open, queue, server_time, task};

#[test]
fn queue_use_01_a_task_is_not_due_before_its_time() {
    let server = Server::start();
    let mails = queue(&server.url());
    let pushed = server_time(&server);
    mails.push(task("a").after(ms(300))).unwrap();
    assert!(mails.try_claim().unwrap().is_none() && mails.peek_due(9).unwrap().is_empty());
    let job = mails.try_claim_for(SOON).unwrap().unwrap();
    let waited = server_time(&server).checked_sub(pushed).unwrap();
    assert!(waited >= ms(300) && waited < ms(5000), "{waited:?}");
    assert_eq!((job.id(), job.body(), job.attempt()), ("a", &b"body of a"[..], 1));
    job.ack().unwrap();
    assert_empty(&server);
}

#[test]
fn queue_use_02_many_are_pushed_and_claimed_in_order() {
    let server = Server::start();
    let mails = queue(&server.url());
    let ids: Vec<String> = (0..250).map(|n| format!("{n}")).collect();
    let said = mails.push_all(ids.iter().map(|id| task(id))).unwrap();
    assert_eq!(said, vec![Pushed::New; 250]);
    assert_eq!(mails.len().unwrap(), 250);
    for id in &ids {
        let job = mails.try_claim_for(SOON).unwrap().unwrap();
        assert_eq!(job.id(), id);
        job.ack().unwrap();
    }
    assert_empty(&server);
}

/// Nothing but the order of the pushes decides: neither the ids, nor the time at which a task was last due.
#[test]
fn queue_use_02_tasks_of_one_time_are_claimed_in_the_order_of_their_pushes() {
    let server = Server::start();
    let mails = queue(&server.url());
    let noon = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let ids = ["z", "10", "9", "a", "", "é", "Z"].map(|id| format!("{id}!"));
    let (one_by_one, at_once) = ids.split_at(3);
    for id in one_by_one {
        mails.push(task(id).at(noon)).unwrap();
    }
    mails.push_all(at_once.iter().map(|id| task(id).at(noon))).unwrap();
    // A push that changes a task does not move it behind others of its new time.
    mails.push(task("9!").at(noon).if_queued(IfQueued::Replace)).unwrap();
    let shown: Vec<String> = mails.peek(9).unwrap().iter().map(|entry| entry.id().to_owned()).collect();
    assert_eq!(shown, ids);
    for id in &ids {
        let job = mails.try_claim().unwrap().unwrap();
        assert_eq!(job.id(), id);
        job.ack().unwrap();
    }
    assert_empty(&server);
}

#[test]
fn queue_use_08_a_paused_queue_gives_no_task_until_it_is_resumed() {
    let server = Server::start();
    let (mails, other) = (queue(&server.url()), queue(&server.url()));
    mails.push_all(["a", "b"].map(task)).unwrap();
    let job = mails.claim().unwrap();
    assert!(other.pause().unwrap() && !mails.pause().unwrap() && mails.is_paused().unwrap());
    assert!(mails.try_claim().unwrap().is_none() && mails.pop_due(9).unwrap().is_empty());
    // What runs goes on, and can end.
    job.extend(SOON).unwrap();
    job.retry_after(Duration::ZERO, "later").unwrap();
    assert_eq!((mails.push(task("c")).unwrap(), mails.len().unwrap()), (Pushed::New, 3));
    thread::scope(|scope| {
        // Both processes wait, and the end of the pause wakes the first one, whose claim wakes the second.
        let waits = [&mails, &other].map(|mails| scope.spawn(|| mails.try_claim_for(SOON).unwrap().unwrap()));
        eventually("both wait", SOON, || server.ask::<usize>(redis::cmd("ZCARD").arg(key("waits"))) == 2);
        assert!(mails.resume().unwrap() && !mails.resume().unwrap() && !mails.is_paused().unwrap());
        for job in waits {
            job.join().unwrap().ack().unwrap();
        }
    });
    mails.claim().unwrap().ack().unwrap();
    assert_empty(&server);
}

#[test]
fn queue_use_09_a_queue_is_emptied_but_for_what_runs() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all((0..250).map(|n| task(&n.to_string()))).unwrap();
    mails.push(task("later").after(ms(3_600_000))).unwrap();
    mails.claim().unwrap().fail("never").unwrap();
    let [first, second] = [(); 2].map(|()| mails.claim().unwrap());
    // The claim of a third one is over.
    let over = mails.clone().lease(ms(4000)).renew(false).claim().unwrap();
    let is_due = || mails.peek_due(1000).unwrap().iter().any(|entry| entry.id() == over.id());
    eventually("the claim expires", SOON, is_due);
    assert_eq!(mails.clear().unwrap(), 248);
    assert_eq!((mails.len().unwrap(), mails.dead_len().unwrap()), (2, 1));
    assert!(over.ack().unwrap_err().is_lost());
    first.ack().unwrap();
    second.retry_after(Duration::ZERO, "later").unwrap();
    assert_eq!((mails.clear().unwrap(), mails.clear().unwrap(), mails.purge_dead().unwrap()), (1, 0, 1));
    assert_empty(&server);
}

/// The tasks that are removed come behind those that are claimed. Their ranks change while jobs end.
#[test]
fn queue_use_09_a_queue_is_emptied_while_jobs_end() {
    let server = Server::start();
    let mails = queue(&server.url());
    let jobs: Vec<_> = {
        mails.push_all((0..400).map(|n| task(&n.to_string()))).unwrap();
        (0..400).map(|_| mails.try_claim_for(SOON).unwrap().unwrap()).collect()
    };
    mails.push_all((0..1000).map(|n| task(&format!("later {n}")).after(ms(3_600_000)))).unwrap();
    let removed = thread::scope(|scope| {
        scope.spawn(|| jobs.into_iter().for_each(|job| job.ack().unwrap()));
        mails.clear().unwrap()
    });
    assert_eq!((removed, mails.len().unwrap()), (1000, 0));
    assert_empty(&server);
}

#[test]
fn queue_use_10_dead_tasks_end_with_their_age() {
    let server = Server::start();
    let mails = queue(&server.url());
    let short = mails.clone().keep_dead_for(ms(200));
    let die = |id: &str| {
        mails.push(task(id)).unwrap();
        mails.claim().unwrap().fail("never").unwrap();
    };
    for n in 0..25 {
        die(&n.to_string());
    }
    assert_eq!(mails.dead_len().unwrap(), 25);
    // A claim that finds no task drops ten old ones, and so does the death of a task.
    thread::sleep(ms(250));
    assert!(mails.try_claim().unwrap().is_none());
    assert!(mails.clone().keep_dead(1).try_claim().unwrap().is_none());
    assert_eq!(mails.dead_len().unwrap(), 25, "the other handles have no limit of age");
    assert!(short.try_claim().unwrap().is_none());
    assert_eq!(mails.dead_len().unwrap(), 15);
    short.push(task("last")).unwrap();
    short.claim().unwrap().fail("never").unwrap();
    let dead: Vec<String> = mails.dead(99).unwrap().iter().map(|entry| entry.id().to_owned()).collect();
    assert!(dead.len() == 6 && dead.last().is_some_and(|id| id == "last"), "{dead:?}");
}

#[test]
fn queue_use_03_an_id_is_queued_once() {
    let server = Server::start();
    let mails = queue(&server.url());
    assert_eq!(mails.push(task("a").after(ms(60_000))).unwrap(), Pushed::New);
    let first = mails.peek(1).unwrap();
    assert_eq!(mails.push(Task::new("other").id("a")).unwrap(), Pushed::Kept);
    assert_eq!((mails.peek(2).unwrap()[0].due_at(), mails.len().unwrap()), (first[0].due_at(), 1));
    let earlier = Task::new("other").id("a").after(ms(1000)).if_queued(IfQueued::Earlier);
    assert_eq!(mails.push(earlier.clone()).unwrap(), Pushed::Changed);
    assert_eq!(mails.push(earlier.after(ms(30_000))).unwrap(), Pushed::Kept);
    let seen = &mails.peek(1).unwrap()[0];
    assert!(seen.body() == b"body of a" && seen.due_in() <= ms(1000), "{seen:?}");
    let replaced = Task::new("other").id("a").if_queued(IfQueued::Replace);
    assert_eq!(mails.push(replaced).unwrap(), Pushed::Changed);
    assert_eq!(mails.try_claim().unwrap().unwrap().body(), b"other");
}

#[test]
fn queue_use_04_a_task_is_removed_only_as_it_was_seen() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let seen = || mails.peek(1).unwrap().remove(0);
    let first = seen();
    mails.push(task("a").if_queued(IfQueued::Replace)).unwrap();
    assert!(!mails.remove_if(&first).unwrap(), "a task that was pushed again was removed");
    let second = seen();
    let job = mails.try_claim().unwrap().unwrap();
    assert!(!mails.remove_if(&second).unwrap(), "a claimed task was removed");
    job.retry_after(Duration::ZERO, "later").unwrap();
    assert!(!mails.remove_if(&second).unwrap(), "a retried task was removed");
    let last = seen();
    assert!(mails.remove_if(&last).unwrap());
    assert!(!mails.remove_if(&last).unwrap() && !mails.remove("a").unwrap());
    assert_empty(&server);
}

#[test]
fn queue_use_05_two_that_pop_get_different_tasks() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all((0..300).map(|n| task(&format!("{n}")))).unwrap();
    mails.push(task("later").after(ms(60_000))).unwrap();
    let pop = || {
        let mails = queue(&server.url());
        let mut all = Vec::new();
        loop {
            let some = mails.pop_due(7).unwrap();
            if some.is_empty() {
                return all;
            }
            all.extend(some.iter().map(|entry| entry.id().to_owned()));
        }
    };
    let (one, two) = thread::scope(|scope| {
        let (one, two) = (scope.spawn(pop), scope.spawn(pop));
        (one.join().unwrap(), two.join().unwrap())
    });
    let all: HashSet<&String> = one.iter().chain(&two).collect();
    assert_eq!((all.len(), one.len() + two.len(), mails.len().unwrap()), (300, 300, 1));
    assert!(!all.contains(&"later".to_owned()));
}

#[test]
fn queue_use_06_looking_changes_nothing() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["a", "b"].map(task)).unwrap();
    mails.push(task("c").after(ms(60_000))).unwrap();
    let first = mails.peek(9).unwrap();
    let ids: Vec<&str> = first.iter().map(redlock_sync::TaskInfo::id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(mails.peek_due(9).unwrap().len(), 2);
    assert_eq!(mails.peek(1).unwrap().len(), 1);
    let again = mails.peek(9).unwrap();
    assert!(first.iter().zip(&again).all(|(a, b)| a.due_at() == b.due_at() && a.body() == b.body()));
    assert!(matches!(mails.peek(1001), Err(Error::Config { .. })));
}

#[test]
fn ends_of_a_job() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let claim = || mails.try_claim_for(SOON).unwrap().unwrap();
    claim().retry("boom").unwrap();
    let job = claim();
    assert_eq!((job.attempt(), mails.peek(1).unwrap()[0].why()), (2, "boom"));
    job.again_after(Duration::ZERO).unwrap();
    let job = claim();
    assert_eq!(job.attempt(), 1);
    job.fail("no such address").unwrap();
    assert!(mails.is_empty().unwrap());
    let dead = mails.dead(9).unwrap();
    let first = (dead.len(), dead[0].why(), dead[0].id());
    assert_eq!((first, mails.dead_len().unwrap()), ((1, "no such address", "a"), 1));
    assert!(mails.revive("a").unwrap() && !mails.revive("a").unwrap());
    let job = claim();
    assert_eq!((job.attempt(), job.body()), (1, &b"body of a"[..]));
    drop(job);
    let job = claim();
    assert_eq!((job.attempt(), mails.peek(1).unwrap()[0].why()), (2, "the job was dropped"));
    job.fail("again").unwrap();
    mails.push(task("b")).unwrap();
    claim().fail("too").unwrap();
    assert_eq!(mails.revive_all().unwrap(), 2);
    claim().fail("x").unwrap();
    claim().fail("y").unwrap();
    assert_eq!((mails.purge_dead().unwrap(), mails.dead(9).unwrap().len()), (2, 0));
    assert_empty(&server);
}

#[test]
fn the_last_attempt_is_the_death_of_a_task_and_the_oldest_dead_go() {
    let server = Server::start();
    let mails = queue(&server.url()).retry(Retry::every(ms(1)).max_attempts(2)).keep_dead(1);
    for id in ["a", "b"] {
        mails.push(task(id)).unwrap();
        for _ in 0..2 {
            mails.try_claim_for(SOON).unwrap().unwrap().retry("boom").unwrap();
        }
    }
    let dead = mails.dead(9).unwrap();
    assert_eq!((dead.len(), dead[0].id(), dead[0].attempts()), (1, "b", 2));
    assert!(mails.is_empty().unwrap());
    assert_eq!(mails.push(task("b")).unwrap(), Pushed::New);
    assert!(mails.dead(9).unwrap().is_empty(), "the pushed task is still dead");
}

#[test]
fn a_claim_is_a_lease_that_is_renewed_and_has_a_fence() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task("a")).unwrap();
    let job = mails.try_claim_for(SOON).unwrap().unwrap();
    let first = job.fencing_token().unwrap();
    let claimed = mails.peek(1).unwrap().remove(0);
    assert!(claimed.is_claimed() && claimed.attempts() == 1);
    eventually("the claim is renewed", SOON, || mails.peek(1).unwrap()[0].due_at() > claimed.due_at());
    job.check().unwrap();
    job.extend(ms(60_000)).unwrap();
    assert!(mails.peek(1).unwrap()[0].due_in() > ms(50_000));
    job.retry_after(Duration::ZERO, "later").unwrap();
    let job = mails.try_claim_for(SOON).unwrap().unwrap();
    assert!(job.fencing_token().unwrap() > first);
}

#[test]
fn a_push_wakes_a_thread_of_another_process_that_waits() {
    let server = Server::start();
    let (waiting, pushing) = (queue(&server.url()).lease(ms(30_000)), queue(&server.url()));
    thread::scope(|scope| {
        let job = scope.spawn(move || {
            let job = waiting.try_claim_for(SOON).unwrap().unwrap();
            (job.id().to_owned(), Instant::now())
        });
        eventually("a wait is in the queue", SOON, || {
            let waits: usize = server.ask(redis::cmd("ZCARD").arg(key("waits")));
            waits == 1
        });
        let pushed = Instant::now();
        pushing.push(task("a")).unwrap();
        let (id, claimed) = job.join().unwrap();
        // Without the notification, the thread would make its next attempt after two and a half seconds at the
        // earliest.
        assert!(id == "a" && claimed - pushed < ms(1500), "{:?}", claimed - pushed);
    });
}

#[test]
fn one_thread_of_a_process_waits_for_all() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url()).lease(ms(30_000));
    thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..20).map(|_| scope.spawn(|| mails.try_claim_for(SOON).unwrap().unwrap().ack())).collect();
        // Each thread makes one attempt, and the thread that waits makes more.
        eventually("all threads have made an attempt", SOON, || {
            let waits: usize = server.ask(redis::cmd("ZCARD").arg(key("waits")));
            waits == 1 && proxy.count("claim") >= 22
        });
        let before = proxy.count("claim");
        thread::sleep(ms(2000));
        let idle = proxy.count("claim") - before;
        assert!(idle <= 3, "{idle} attempts of 20 idle threads in two seconds");
        mails.push_all((0..20).map(|n| task(&format!("{n}")))).unwrap();
        for thread in waiting {
            thread.join().unwrap().unwrap();
        }
    });
    assert!(mails.is_empty().unwrap());
}

#[test]
fn settings_and_sizes_are_checked() {
    let server = Server::start();
    let mails = queue(&server.url()).max_body(4);
    let is_config = |result: Result<Pushed, Error>| matches!(result, Err(Error::Config { .. }));
    assert!(is_config(mails.push("12345")) && mails.push("1234").is_ok());
    assert!(matches!(mails.clone().lease(ms(1)).try_claim(), Err(Error::Config { .. })));
    assert!(matches!(mails.worker(0, |_| ()), Err(Error::Config { .. })));
    let full = open(&server.url()).queue("small").max_len(1);
    let twice = full.push_all(["same", "same"].map(|body| Task::new(body).id("id"))).unwrap();
    assert_eq!((twice.len(), full.len().unwrap()), (2, 1), "a repeated id became two tasks");
    let full = mails.max_len(2);
    full.push("b").unwrap();
    let refused = full.push("c").unwrap_err();
    assert_eq!(refused, Error::Full { key: key("due"), len: 2 });
    assert!(refused.to_string().contains("2 tasks"), "{refused}");
}

#[test]
fn a_queue_needs_one_server() {
    let servers = servers(3);
    let locks = redlock_tests::patient().nodes(servers.iter().map(Server::url)).build().unwrap();
    let error = locks.queue("q").push("x").unwrap_err();
    assert!(matches!(&error, Error::Config { message, .. } if message.contains("one server")), "{error}");
    assert!(matches!(locks.queue("q").claim(), Err(Error::Config { .. })));
}
