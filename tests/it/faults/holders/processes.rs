//! Processes fork, exit, or are killed while a guard exists. One process cannot start threads.

use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use redlock_tests::{Stopwatch, eventually};

use crate::faults::rig::{KEY, LEASE, MORE_SLACK, Rig, SOON, for_sizes, ms};
use crate::kinds::{Kind, each_kind, name_of_kind};
use crate::process::Process;

/// Starts a process that holds the lock. Returns the process and its token.
pub(super) fn holding<K: Kind>(rig: &Rig, key: &str, lease: Duration) -> (Process, String) {
    let lease = lease.as_millis().to_string();
    let agent = Process::start(&["hold", name_of_kind::<K>(), key, &lease], &rig.proxy_urls());
    let token = agent.line();
    (agent, token)
}

/// Reads lines of the form `name value` until `last` is one of the names.
fn facts_of(agent: &Process, last: &str) -> HashMap<String, String> {
    let mut facts = HashMap::new();
    while !facts.contains_key(last) {
        let line = agent.line();
        let (name, value) = line.split_once(' ').unwrap();
        facts.insert(name.to_owned(), value.to_owned());
    }
    facts
}

/// The client starts its connection threads at the first use. If the system refuses them, the call fails with an error.
#[test]
fn fault_41_a_system_that_starts_no_thread() {
    for_sizes(&[1, 3], |rig| {
        let output = Command::new(env!("CARGO_BIN_EXE_agent")).arg("starved").args(rig.proxy_urls()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let [first, second, last] = lines[..] else { panic!("{said}") };
        for line in [first, second] {
            assert!(line.starts_with("unavailable ") && line.contains("cannot start the threads"), "{said}");
        }
        assert_eq!(last, "ok");
        let heard = String::from_utf8(output.stderr).unwrap();
        assert!(!heard.contains("panicked"), "{heard}");
    });
}

fn fault_28_a_forked_copy_is_inert<K: Kind>() {
    for_sizes(&[1, 3], |rig| is_inert(rig, name_of_kind::<K>(), KEY));
}

#[test]
fn kind_09_a_forked_copy_of_each_kind_is_inert() {
    let rig = Rig::start(1);
    thread::scope(|scope| {
        for kind in ["permit", "reader", "writer", "several"] {
            let rig = &rig;
            scope.spawn(move || is_inert(rig, kind, kind));
        }
    });
}

#[test]
fn kind_09_a_forked_copy_waits_for_no_thread_of_its_parent() {
    let mut agent = Process::start(&["fork-often"], &[]);
    assert!(agent.wait().success(), "a child process hung");
}

fn is_inert(rig: &Rig, kind: &str, key: &str) {
    let mut agent = Process::start(&["fork", kind, key], &rig.proxy_urls());
    let facts = facts_of(&agent, "forked");
    let token = &facts["token"];
    for refused in ["early-lock", "check", "extend", "fence", "lock", "lock-again", "unlock_all"] {
        assert_eq!(facts[refused], "Err(Closed)", "{kind}: {refused}");
    }
    assert_eq!(facts["early-own"], "Ok(())");
    // With several servers, the parent gets an error too.
    assert!(facts["into_token"] == "Err(Closed)" || rig.servers.len() > 1, "{}", facts["into_token"]);
    let sent = rig.sent_for(token);
    assert!(
        !sent.is_empty() && sent.iter().all(|seen| seen.name == "acquire"),
        "the child sent requests with its parent's token: {sent:?}"
    );
    assert_eq!(rig.holding(key), rig.servers.len());
    // The parent continues to work, because the child did not touch its connections.
    agent.tell("go on");
    assert_eq!(facts_of(&agent, "parent-dropped")["parent-check"], "Ok(())");
    eventually("the lock is free", SOON, || rig.holding(key) == 0);
    assert!(agent.wait().success());
}

fn fault_30_exit_and_abort_leave_the_key_to_its_ttl<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lease = LEASE;
        thread::scope(|scope| {
            for word in ["exit", "abort"] {
                scope.spawn(move || {
                    let (mut agent, token) = holding::<K>(rig, word, lease);
                    assert!(rig.servers.iter().all(|server| server.holder(word).as_deref() == Some(&token)));
                    agent.tell(word);
                    let status = agent.wait();
                    let ended = Stopwatch::start();
                    assert_eq!(
                        (status.code(), status.signal()),
                        if word == "exit" { (Some(0), None) } else { (None, Some(6)) }
                    );
                    assert!(rig.sent_for(&token).iter().all(|seen| seen.name != "release"));
                    eventually("the key is gone", SOON, || rig.holding(word) == 0);
                    assert!(ended.elapsed() < lease + MORE_SLACK, "{:?}", ended.elapsed());
                });
            }
        });
    });
}

fn fault_30_unlock_all_before_the_exit<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let (mut agent, token) = holding::<K>(rig, KEY, Duration::from_secs(60));
        assert_eq!(rig.servers[0].holder(KEY), Some(token));
        agent.tell("unlock_all");
        // The exit code is the number of locks that `unlock_all` gave up.
        assert_eq!(agent.wait().code(), Some(1));
        assert_eq!(rig.holding(KEY), 0);
    });
}

fn fault_39_a_waiter_follows_a_killed_holder<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lease = LEASE;
        let lock = K::new(&rig.other_client(), KEY);
        if rig.servers.len() == 1 {
            rig.servers[0].crowd(4_000);
        }
        let (mut agent, token) = holding::<K>(rig, KEY, lease);
        rig.proxies[0].wait_count("extend", 1, SOON);
        assert_eq!(rig.servers[0].holder(KEY), Some(token));
        let waiter = thread::spawn(move || {
            let guard = lock.lock().unwrap();
            let at = Instant::now();
            K::unlock(guard).unwrap();
            at
        });
        let killed = Instant::now();
        let left = rig.free_in(KEY);
        agent.kill();
        let took = waiter.join().unwrap() - killed;
        assert!(took + ms(100) > left, "the holder had {left:?} left, but the waiter waited only {took:?}");
        assert!(took < lease + MORE_SLACK, "{took:?}");
    });
}

each_kind!(all:
    fault_28_a_forked_copy_is_inert,
    fault_30_exit_and_abort_leave_the_key_to_its_ttl,
    fault_30_unlock_all_before_the_exit,
    fault_39_a_waiter_follows_a_killed_holder,
);

/// Each child prints the token of a lock that it took, the id of its wait, and the token of its grant.
const TOLD_BY_A_CHILD: usize = 3;

#[test]
fn forked_workers_never_share_a_token_or_an_id() {
    let rig = Rig::start(1);
    for order in ["fork-open", "open-fork"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_agent")).args(["workers", order]).args(rig.proxy_urls()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let told: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        // The random part of each token or id: the last part of a channel, or the first of a token. The rest names the
        // process and the host, or is missing.
        let random = |id: &str| match id.strip_prefix("redlock-sync:") {
            Some(wait) => wait.rsplit(':').next().unwrap().split('/').next().unwrap().to_owned(),
            None => id.split([':', '-', '/']).next().unwrap().to_owned(),
        };
        let unique: HashSet<String> = told.iter().map(|words| random(words[1])).collect();
        assert_eq!((told.len(), unique.len()), (3 * TOLD_BY_A_CHILD, 3 * TOLD_BY_A_CHILD), "{order}: {told:#?}");
    }
}
