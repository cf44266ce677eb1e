//! `redlock queue`.

use std::time::Duration;

use redlock_sync::Task;
use redlock_tests::Server;

use crate::{client, on, outcome};

#[test]
fn queues_are_shown_and_dead_tasks_revived() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).key_prefix("P:").build().unwrap();
    let (mails, files) = (locks.queue("emails"), locks.queue("{7}:files"));
    mails.push(Task::new("welcome\nann").id("ann")).unwrap();
    mails.push(Task::new("remind").id("bob").after(Duration::from_secs(3600))).unwrap();
    for id in ["c", "d", "e"] {
        files.push(Task::new("x".repeat(100)).id(id)).unwrap();
        files.claim().unwrap().fail("no such file").unwrap();
    }
    let job = mails.claim().unwrap();
    let redlock = |args: &[&str]| outcome(on(&server, ["queue"]).args(args).env("REDLOCK_KEY_PREFIX", "P:"));

    assert_eq!(
        redlock(&["ls"]),
        (
            "NAME       TASKS  DUE  CLAIMED  DEAD  OLDEST\n\
             emails     2      0    1        0     -\n\
             {7}:files  0      0    0        3     -\n"
                .to_owned(),
            Some(0)
        )
    );
    let (said, code) = redlock(&["peek", "emails"]);
    assert!(code == Some(0) && said.contains("ann  welcome\\nann") && said.contains("claimed until then"), "{said}");
    assert_eq!(said.lines().count(), 3, "{said}");
    assert_eq!(redlock(&["peek", "emails", "-n", "1"]).0.lines().count(), 2);
    assert_eq!(redlock(&["peek", "emails", "--due"]).0.lines().count(), 1);
    let (said, _) = redlock(&["dead", "{7}:files"]);
    assert!(said.lines().count() == 4 && said.contains("no such file") && said.contains("xxx…"), "{said}");

    assert_eq!(redlock(&["revive", "{7}:files", "c"]), ("1 revived\n".to_owned(), Some(0)));
    let (said, code) = redlock(&["revive", "{7}:files", "c", "d"]);
    assert!(code == Some(75) && said.contains("1 revived; not among the dead tasks: c"), "{code:?} {said}");
    assert_eq!(redlock(&["revive", "{7}:files", "--all"]), ("1 revived\n".to_owned(), Some(0)));
    assert_eq!(files.len().unwrap(), 3);
    job.ack().unwrap();
    let (said, code) =
        outcome(&mut on(&server, ["--node", &server.url(), "--node", "redis://127.0.0.1:1/", "queue", "peek", "a"]));
    assert!(code == Some(64) && said.contains("one server"), "{code:?} {said}");
}

#[test]
fn a_queue_is_paused_resumed_and_emptied() {
    let server = Server::start();
    let mails = client(std::slice::from_ref(&server)).build().unwrap().queue("emails");
    mails.push_all(["a", "b", "c"].map(|id| Task::new("").id(id))).unwrap();
    mails.claim().unwrap().fail("no such address").unwrap();
    let _job = mails.claim().unwrap();
    let redlock = |args: &[&str]| outcome(on(&server, ["queue"]).args(args));
    let said = |text: &str| (text.to_owned(), Some(0));
    assert_eq!(redlock(&["pause", "emails"]), said("paused\n"));
    assert_eq!(redlock(&["pause", "emails"]), said("it was paused already\n"));
    assert!(mails.try_claim().unwrap().is_none());
    let (list, _) = redlock(&["ls"]);
    assert!(list.contains("emails (paused)  2      1    1        1"), "{list}");
    assert_eq!(redlock(&["resume", "emails", "--json"]), said("{\"version\":1,\"changed\":true}\n"));
    assert_eq!(redlock(&["resume", "emails"]), said("it was not paused\n"));
    assert_eq!(redlock(&["clear", "emails"]), said("1 removed\n"));
    assert_eq!(redlock(&["clear", "emails", "--dead", "--json"]), said("{\"version\":1,\"removed\":1}\n"));
    assert_eq!((mails.len().unwrap(), mails.dead_len().unwrap()), (1, 0));
    let (refused, code) = redlock(&["pause", "emails", "--dead"]);
    assert!(code == Some(64) && refused.contains("has no option `--dead`"), "{code:?} {refused}");
}

/// A queue that cannot be read does not hide the other queues.
#[test]
fn a_queue_that_cannot_be_read_is_shown_with_its_error() {
    let server = Server::start();
    let mails = client(std::slice::from_ref(&server)).build().unwrap().queue("emails");
    mails.push("welcome").unwrap();
    for odd in ["{a}:q2:due", "{b}:q2:dead", &format!("{{{}}}:q2:due", "c".repeat(2000))] {
        server.ask::<()>(redis::cmd(if odd.starts_with("{b}") { "SET" } else { "RPUSH" }).arg(odd).arg("x"));
    }
    let (said, code) = outcome(&mut on(&server, ["queue", "ls"]));
    let lines: Vec<&str> = said.lines().collect();
    let [head, a, b, c, mails] = lines[..] else { panic!("{said}") };
    assert!(code == Some(0) && head.starts_with("NAME") && head.ends_with("ERROR"), "{code:?} {said}");
    for (line, name) in [(a, "a "), (b, "b ")] {
        assert!(line.starts_with(name) && line.contains(" -  ") && line.contains("WRONGTYPE"), "{said}");
    }
    assert!(c.contains("choose a shorter name"), "{said}");
    assert_eq!(mails.split_whitespace().take(5).collect::<Vec<_>>(), ["emails", "1", "1", "0", "0"]);
}

#[test]
fn queues_of_two_servers_are_not_listed() {
    let servers = [Server::start(), Server::start()];
    // The error is the same with and without a queue.
    for _ in 0..2 {
        let list = ["--node", &servers[0].url(), "--node", &servers[1].url(), "queue", "ls"];
        let (said, code) = outcome(&mut on(&servers[0], list));
        assert!(
            code == Some(64) && said.contains("a queue needs a client of one server, but this client has 2 nodes"),
            "{said}"
        );
        client(&servers[..1]).build().unwrap().queue("emails").push("welcome").unwrap();
    }
}
