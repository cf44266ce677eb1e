//! `redlock doctor --try`.

use std::process::Stdio;
use std::thread;

use redis::cmd;
use redlock_sync::__private::{Rule, follow, serve};
use redlock_sync::testing::Memory;
use redlock_tests::{Server, eventually, servers};
use rustix::process::{Signal, kill_process};

use crate::{LONG, Running, on, outcome, redlock};

/// The results by check.
fn results(said: &str) -> Vec<(&str, &str)> {
    let lines = said.lines().skip(1).take_while(|line| !line.is_empty());
    lines.map(|line| (line.get(..32).unwrap_or_default().trim(), line[34..].split(' ').next().unwrap())).collect()
}

#[test]
fn a_server_that_has_all_is_told_so_and_left_as_it_was() {
    let server = Server::start();
    server.set("order:42", "mine");
    server.set("lock", "mine");
    let (said, code) = outcome(&mut on(&server, ["doctor", "--try"]));
    let all = results(&said);
    assert!(code == Some(0) && all.len() == 14 && all.iter().all(|(_, result)| *result == "ok"), "{code:?} {said}");
    let mut keys = server.keys();
    keys.sort_unstable();
    assert_eq!(keys, ["lock", "order:42"]);
    let (said, code) = outcome(&mut on(&server, ["doctor", "--try", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(code == Some(0) && told["try"][0]["ms"].as_f64().unwrap() > 0.0, "{said}");
    let page = include_str!("../../README.md");
    for field in told["try"][0].as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{field}`")), "the page does not have {field}");
    }
}

#[test]
fn no_permission_is_needed_beyond_the_documented_ones() {
    let server = Server::start();
    let page = include_str!("../../../docs/operations.md");
    let rules = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER locks on ")).unwrap();
    let user = |rules: &str| {
        server.ask::<()>(
            cmd("ACL").arg("SETUSER").arg("locks").arg("reset").arg("on").arg(rules.split(' ').collect::<Vec<_>>()),
        );
        let url = server.url().replace("redis://", "redis://locks:secret@");
        outcome(redlock(["--node", &url, "doctor", "--try"]).env("REDLOCK_KEY_PREFIX", "order:"))
    };
    let (said, code) = user(rules);
    assert!(code == Some(0) && results(&said).iter().all(|(_, result)| *result == "ok"), "{code:?} {said}");
    assert_eq!(server.keys(), Vec::<String>::new());
    // Without notifications, waiters poll.
    let (said, code) = user(&rules.replace(" &redlock-sync:*", ""));
    let poor: Vec<_> =
        results(&said).into_iter().filter(|(_, result)| *result == "poor").map(|(check, _)| check).collect();
    assert!(
        code == Some(1) && poor.contains(&"a waiter is notified") && said.contains("waiters go on late"),
        "{code:?} {said}"
    );
    // A kind that the user may not use fails, and names the permission.
    let (said, code) = user(&rules.replace(" +hset ", " "));
    assert!(
        code == Some(2) && said.contains("may not run HSET") && said.contains("a permission is missing"),
        "{code:?} {said}"
    );
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn three_servers_have_no_queue() {
    let servers = servers(3);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let (said, code) = outcome(redlock(["doctor", "--try"]).env("REDLOCK_NODES", urls.join(",")));
    let skipped: Vec<_> =
        results(&said).into_iter().filter(|(_, result)| *result == "skipped").map(|(check, _)| check).collect();
    assert!(code == Some(0) && skipped == ["queue of tasks", "a task of 512 KiB"], "{code:?} {said}");
    assert!(servers.iter().all(|server| server.keys().is_empty()));
}

/// The other two are a majority, and are left as they were.
#[test]
fn one_of_three_servers_may_be_away() {
    let servers = servers(3);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    servers[2].kill();
    let (said, code) = outcome(redlock(["doctor", "--try"]).env("REDLOCK_NODES", urls.join(",")));
    assert!(code.is_some_and(|code| code < 2) && !said.contains("FAILED"), "{code:?} {said}");
    assert!(servers[..2].iter().all(|server| server.keys().is_empty()), "{said}");
}

#[test]
fn an_interrupted_trial_removes_its_keys() {
    let server = Server::start();
    let trial = Running::start(on(&server, ["doctor", "--try"]).stdout(Stdio::piped()));
    eventually("it has begun", LONG, || !server.keys().is_empty());
    kill_process(trial.id(), Signal::INT).unwrap();
    let (said, code) = trial.outcome();
    assert!(code == Some(130) && said.contains("interrupted"), "{code:?} {said}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_server_that_does_not_answer_and_one_that_only_reads() {
    let (said, code) = outcome(&mut redlock(["--node", "redis://127.0.0.1:1/", "doctor", "--try"]));
    let all = results(&said);
    assert!(
        code == Some(2) && all[0].1 == "FAILED" && all[1..].iter().all(|(_, result)| *result == "skipped"),
        "{said}"
    );
    let server = Server::start();
    server.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(1));
    let (said, code) = outcome(&mut on(&server, ["doctor", "--try"]));
    assert!(code == Some(2) && said.contains("replica"), "{code:?} {said}");
}

/// What it says of a server that differs from Redis by this rule, and its exit status.
fn of_server_with(rule: Rule) -> (String, Option<i32>) {
    let memory = Memory::new(1);
    follow(&memory, &[rule]);
    let address = &serve(&memory).unwrap()[0];
    outcome(&mut redlock(["--node", &format!("redis://{address}/"), "doctor", "--try"]))
}

#[test]
fn locks_work_on_servers_that_differ_from_redis() {
    thread::scope(|scope| {
        let trials = Rule::ALL.map(|rule| (rule, scope.spawn(move || of_server_with(rule))));
        for (rule, trial) in trials {
            let (said, code) = trial.join().unwrap();
            let all = results(&said);
            // Without messages, waiters poll, and so may be late. The command says so.
            let polls = rule == Rule::NoSubscribe;
            assert_eq!(all[4] == ("a waiter is notified", "poor"), polls, "{rule:?}: {code:?}\n{said}");
            let is_good = |(_, result): &(_, &str)| *result == "ok" || polls && *result == "poor";
            assert!(all.len() == 14 && all.iter().all(is_good), "{rule:?}: {code:?}\n{said}");
            assert_eq!(code, Some(i32::from(polls)), "{rule:?}: {code:?}\n{said}");
        }
    });
}
