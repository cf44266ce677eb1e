//! Sentinels that disagree about the master. A stray Sentinel names another server under the group's name, and says
//! that a later failover made it the master.

use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, Redlock};
use redlock_tests::{Group, Server, eventually};

use super::SOON;

/// The number of a failover that is later than all failovers of the groups here.
const LATER: u64 = 99;

fn open(url: &str) -> Redlock {
    redlock_tests::patient().node(url).unavailable_after(SOON).build().unwrap()
}

/// Takes and releases a lock. Returns true if this server had it meanwhile.
fn locks_on(server: &Server, locks: &Redlock, name: &str) -> bool {
    let guard = locks.mutex(name).lock().unwrap();
    let is_there = server.get(name).is_some();
    // If the client has changed the master since, the lock is not on the new one.
    let unlocked = guard.unlock();
    if is_there {
        unlocked.unwrap();
    }
    is_there
}

/// The warnings of `health()` that name this Sentinel.
fn warnings_of(locks: &Redlock, sentinel: &Server) -> Vec<String> {
    let (health, address) = (locks.health().unwrap(), sentinel.addr().to_string());
    health.warnings().iter().filter(|warning| warning.contains(&address)).cloned().collect()
}

/// For how long a stray Sentinel has known its server as a master.
fn age(stray: &Server) -> Duration {
    let facts: Vec<String> = stray.ask(cmd("SENTINEL").arg("MASTER").arg("main"));
    let age = facts.chunks(2).find(|pair| pair[0] == "role-reported-time").unwrap()[1].parse();
    Duration::from_millis(age.unwrap())
}

/// The stray Sentinels name a copy of the master from a backup, a replica of it, and a port at which nothing listens.
#[test]
fn one_sentinel_does_not_overrule_the_majority() {
    let group = Group::start(1, 3);
    let master = group.master();
    master.ask::<()>(&cmd("SAVE"));
    let other = Server::builder().arg("--dir").arg(master.dir()).start();
    assert_eq!(other.info("master_replid2"), master.info("master_replid"), "a copy passes for a former replica");
    let (replica, dead) = (Server::start(), Server::start());
    replica.replica_of(&other);
    dead.kill();
    let strays = [&other, &replica, &dead].map(|server| Group::stray(server.port(), LATER));
    let clients: Vec<_> = strays.iter().map(|stray| open(&group.url_with(&[stray]))).collect();
    for ((i, stray), locks) in strays.iter().enumerate().zip(&clients) {
        let name = format!("held {i}");
        let held = locks.mutex(&name).lock().unwrap();
        assert!(group.master().get(&name).is_some(), "the lock is not on the master");
        for _ in 0..3 {
            let another = open(&group.url_with(&[stray]));
            let taken = another.mutex(&name).try_lock().map(drop);
            assert!(taken.as_ref().is_err_and(Error::is_busy), "two holders: {taken:?}");
            let warnings = warnings_of(&another, stray);
            assert!(warnings.len() == 1 && warnings[0].contains("disagree"), "{warnings:?}");
            assert!(another.is_ready());
        }
        held.check().unwrap();
        held.unlock().unwrap();
    }
    // A failover of the group itself is followed. While the Sentinels tell each other of it, no majority names a master.
    eventually("the stray Sentinels are older", SOON, || age(&strays[0]) > Duration::from_secs(6));
    group.fail_over();
    let new = group.master();
    for locks in &clients {
        eventually("locks are taken on the new master", SOON, || locks_on(new, locks, "next"));
    }
    assert_eq!(other.keys(), Vec::<String>::new());
}

/// One Sentinel is not a majority of the two. A client that knows the master stays with it. A client that starts cannot
/// know which of the two Sentinels is right.
#[test]
fn a_tie_changes_no_master_and_starts_no_client() {
    let (group, other) = (Group::start(0, 1), Server::start());
    let stray = Group::stray(other.port(), LATER);
    stray.stop();
    let url = group.url_with(&[&stray]);
    let locks = open(&url);
    assert!(locks_on(group.master(), &locks, "a"));
    stray.cont();
    eventually("the client knows of the stray one", SOON, || !warnings_of(&locks, &stray).is_empty());
    let health = locks.health().unwrap();
    assert!(!health.is_ready() && health.to_string().contains("disagree"), "{health}");
    assert!(locks_on(group.master(), &locks, "a"));
    let fresh = open(&url);
    let error = fresh.mutex("a").try_lock().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("disagree"), "{error}");
    for one in [&stray, &group.sentinels[0]] {
        assert!(error.to_string().contains(&format!("{}: names", one.addr())), "{error}");
    }
    assert!(!fresh.is_ready());
    stray.kill();
    assert!(locks_on(group.master(), &fresh, "a"));
    eventually("the client is ready again", SOON, || locks.is_ready());
    assert_eq!(other.keys(), Vec::<String>::new());
}

/// Only one Sentinel of three answers. It is believed if the server that it names comes from the former master.
#[test]
fn a_minority_is_believed_about_a_replica_of_the_former_master_only() {
    let (group, other, gone) = (Group::start(1, 1), Server::start(), Server::start());
    gone.kill();
    let stray = Group::stray(other.port(), LATER);
    stray.stop();
    let locks = open(&group.url_with(&[&stray, &gone]));
    assert!(locks_on(group.master(), &locks, "a"));
    group.fail_over();
    let new = group.master();
    eventually("locks are taken on the new master", SOON, || locks_on(new, &locks, "a"));
    let held = locks.mutex("held").lock().unwrap();
    group.sentinels[0].stop();
    stray.cont();
    eventually("the client knows of the stray one", SOON, || !warnings_of(&locks, &stray).is_empty());
    held.extend(Duration::from_secs(60)).unwrap();
    assert!(new.pttl("held").is_some() && locks_on(new, &locks, "a"));
    held.unlock().unwrap();
    group.sentinels[0].cont();
    assert_eq!(other.keys(), Vec::<String>::new());
}
