//! A group as a node: its errors, the permissions that it needs, and several groups.

use std::process::Command;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::Error;
use redlock_tests::{Group, Server, eventually};

use super::{SOON, settings};

fn error(url: &str) -> Error {
    let locks = redlock_tests::patient().node(url).unavailable_after(Duration::ZERO).build().unwrap();
    let error = locks.mutex("a").lock().unwrap_err();
    assert!(!format!("{error} {error:?} {locks:?}").contains("secret"), "{error:?}");
    error
}

#[test]
fn what_is_wrong_is_said_without_a_password() {
    let group = Group::with(&Server::builder().password("secret"), 0, 1);
    let (server, sentinel) = (&group.servers[0], &group.sentinels[0]);
    let locks = settings(&group).build().unwrap();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    let health = locks.health().unwrap();
    assert_eq!(health.nodes()[0].address, format!("main at {}", server.addr()));
    assert!(locks.is_ready());

    let config = |url: &str, words: &str| {
        let error = error(url);
        assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(words), "{error}");
    };
    let at = sentinel.addr();
    config(&group.url().replace("/main", "/other"), "watches no master named `other`");
    config(&group.url().replace(":secret@", ":secret2@"), "WRONGPASS");
    config(&format!("redis+sentinel://:secret@{at}/main?sentinel_password=secret"), "AUTH");
    config(&format!("redis+sentinel://{}/main?sentinel_password=secret", server.addr()), "is no Sentinel");

    // This user of the Sentinel may only ask for the master's address.
    let rules = ["SETUSER", "few", "on", ">secret", "nocommands", "+auth", "+sentinel|get-master-addr-by-name"];
    sentinel.ask::<()>(cmd("ACL").arg(&rules));
    let few = format!("{}?sentinel_user=few&sentinel_password=secret", group.url());
    redlock_tests::open(&few).mutex("a").lock().unwrap().unlock().unwrap();

    server.kill();
    let down = error(&group.url());
    assert!(down.is_unavailable() && down.to_string().contains(&format!("main at {}", server.addr())), "{down}");
    sentinel.kill();
    let down = error(&group.url());
    assert!(down.is_unavailable() && down.to_string().contains(&at.to_string()), "{down}");
}

/// The threads that ask the Sentinels start after the threads that connect to the server.
#[test]
fn a_system_that_starts_only_some_threads_for_a_while() {
    let group = Group::start(0, 3);
    let output = Command::new(env!("CARGO_BIN_EXE_agent")).arg("starved").arg(group.url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.ends_with("\nok\n"), "{said}");
}

/// Each group is a node. After its master changes, a group casts no vote until the longest lease has passed.
#[test]
fn a_quorum_of_groups() {
    let groups: Vec<Group> = thread::scope(|scope| {
        let starting: Vec<_> = [1, 0, 0].map(|replicas| scope.spawn(move || Group::start(replicas, 1))).into();
        starting.into_iter().map(|group| group.join().unwrap()).collect()
    });
    let lease = Duration::from_secs(3);
    let settings = || {
        redlock_tests::patient()
            .nodes(groups.iter().map(Group::url))
            .lease(lease)
            .node_timeout(lease / 2)
            .unavailable_after(SOON)
    };
    let locks = settings().build().unwrap();
    eventually("all nodes are old enough", SOON, || {
        let guard = locks.mutex("a").lock().unwrap();
        let votes = groups.iter().filter(|group| group.master().get("a").is_some()).count();
        guard.unlock().unwrap();
        votes == 3
            && groups.iter().all(|group| group.master().info("uptime_in_seconds").unwrap().parse::<u64>().unwrap() > 5)
    });
    groups[0].fail_over();
    let guard = locks.mutex("a").lock().unwrap();
    guard.extend(lease).unwrap();
    guard.unlock().unwrap();
    // Now the votes of the other two groups are needed.
    groups[1].sentinels[0].kill();
    groups[1].servers[0].kill();
    let is_young = || locks.mutex("b").try_lock().is_err_and(|error| error.to_string().contains("casts no vote"));
    eventually("the new master casts no vote", SOON, is_young);
    let unguarded = settings().failover_guard(false).restart_guard(false).build().unwrap();
    unguarded.mutex("b").lock().unwrap().unlock().unwrap();
    locks.mutex("b").lock().unwrap().unlock().unwrap();
}
