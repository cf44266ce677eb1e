//! Faults of a job that runs once, by their numbers in the guarantees.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock, RunOutcome};
use redlock_tests::{Act, Group, Proxy, Server, Stopwatch, eventually, servers};
use rustix::process::Signal;

use super::{HOUR, MARK, NAME, SOON, call, client, has_only, never, panicked};
use crate::place::Place;
use crate::process::{Crowd, Process, urls};
use crate::rig::{for_each, until_older};

/// A lease that outlasts short stalls of the machine, and that a test can wait for.
const LEASE: Duration = Duration::from_secs(6);

pub(super) fn built_01_a_body_that_failed_or_panicked_is_run_again<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let (one, other) = (client(&nodes), client(&nodes));
        let half_done = Cell::new(0);
        let failed = one.once(NAME).run(|_| {
            half_done.set(half_done.get() + 1);
            Err::<(), _>(Error::Closed)
        });
        assert_eq!(failed, Err(Error::Closed));
        has_only(&nodes, &[]);
        panicked(&other);
        has_only(&nodes, &[]);
        assert!(!other.once(NAME).is_done().unwrap());
        // The body runs again from its start.
        let ran = other.once(NAME).run(|_| {
            half_done.set(half_done.get() + 1);
            Ok::<_, Error>(half_done.get())
        });
        assert_eq!(ran, Ok(RunOutcome::Ran(2)));
        assert_eq!(one.once(NAME).run(never), Ok(RunOutcome::Done));
    }
}

#[test]
fn built_02_a_process_that_dies_in_the_body_is_followed_by_another() {
    let servers = servers(3);
    let mut dies = Process::built("once", NAME, LEASE, &urls(&servers));
    assert_eq!(dies.line(), "body");
    let locks = client(&servers);
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Busy));
    let killed = Stopwatch::start();
    dies.kill();
    // Another call runs the job once the lease of the killed process has ended.
    eventually("another call runs the job", SOON, || matches!(call(&locks, 1).unwrap(), RunOutcome::Ran(1)));
    assert!(killed.elapsed() < LEASE + Duration::from_secs(2), "{:?}", killed.elapsed());
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
}

/// A server behind a proxy, and a client that connects through the proxy.
fn behind_a_proxy() -> (Server, Proxy, Redlock) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(LEASE / 3).lease(LEASE).build().unwrap();
    // The server loads the scripts here.
    assert_eq!(locks.once("warm-up").run(|_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
    (server, proxy, locks)
}

#[test]
fn built_02_a_process_dies_between_body_and_mark() {
    // In the first case the server does not get the mark. In the second case it has the mark, but no process got the
    // reply.
    for (act, next) in [(Act::BlackHole, RunOutcome::Ran(2)), (Act::HoldReply, RunOutcome::Done)] {
        let (server, proxy, _) = behind_a_proxy();
        let mut dies = Process::built("once", NAME, LEASE, &[proxy.url()]);
        assert_eq!(dies.line(), "body");
        let fault = proxy.on("count down", act.clone());
        dies.tell("end");
        fault.wait_hit(SOON);
        dies.kill();
        let locks = client(std::slice::from_ref(&server));
        let outcome = Cell::new(RunOutcome::Busy);
        eventually("the lease has ended", SOON, || {
            outcome.set(call(&locks, 2).unwrap());
            outcome.get() != RunOutcome::Busy
        });
        assert_eq!(outcome.get(), next, "{act:?}");
        assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    }
}

#[test]
fn built_03_the_reply_to_the_mark_is_lost() {
    for act in [Act::ResetBefore, Act::ResetAfter, Act::CutReply(1)] {
        let (server, proxy, locks) = behind_a_proxy();
        let fault = proxy.on("count down", act.clone());
        assert_eq!(call(&locks, 1), Ok(RunOutcome::Ran(1)), "{act:?}");
        assert_eq!(fault.hits(), 1);
        assert!(server.keys().contains(&MARK.to_owned()));
        assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    }
}

/// Renewals get through, so the lock stays held.
#[test]
fn built_04_no_majority_confirms_the_mark() {
    for_each("", &[(Act::ResetBefore, false), (Act::ResetAfter, true)], |(act, is_stored)| {
        let (server, proxy, locks) = behind_a_proxy();
        proxy.on_each("count down", act.clone());
        let began = Stopwatch::start();
        let error = call(&locks, 1).unwrap_err();
        assert!(matches!(&error, Error::Unavailable { op: "mark", key, .. } if key == NAME), "{error}");
        assert!(began.elapsed() < LEASE * 3, "{act:?}: {:?}", began.elapsed());
        assert!(server.get(NAME).is_none(), "the lock was not released");
        proxy.heal();
        let next = call(&locks, 2);
        assert_eq!(next, Ok(if is_stored { RunOutcome::Done } else { RunOutcome::Ran(2) }), "{act:?}");
    });
}

#[test]
fn built_04_a_server_hangs_until_the_lock_is_lost() {
    let (server, _proxy, locks) = behind_a_proxy();
    let error = locks.once(NAME).run(|_| {
        server.stop();
        Ok::<_, Error>(1)
    });
    assert!(error.unwrap_err().is_lost());
    server.cont();
    // If the server executes the late mark, then the job counts as done, which is correct.
    eventually("the job is done", SOON, || matches!(call(&locks, 2), Ok(RunOutcome::Ran(2) | RunOutcome::Done)));
    assert!(locks.once(NAME).is_done().unwrap());
}

fn mark<P: Place>(node: &P, rest: Duration) {
    node.ask(&["ZADD", MARK, "9000000000000001", "!"]);
    node.expire(MARK, rest);
}

pub(super) fn built_05_a_mark_on_a_minority_is_stored_on_a_majority_or_not_met<P: Place>() {
    let nodes = P::start(3);
    let locks = client(&nodes);
    mark(&nodes[1], HOUR);
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    has_only(&nodes, &[MARK]);
    // The mark is kept as long as on the first node.
    assert!(nodes.iter().all(|node| node.pttl(MARK).unwrap() <= HOUR));
    nodes[1].del(MARK);
    assert!(locks.once(NAME).is_done().unwrap());
}

#[test]
fn built_05_a_mark_that_is_not_met_is_no_success() {
    let servers = servers(3);
    let locks = redlock_tests::patient().nodes(servers.iter().map(Server::url)).build().unwrap();
    mark(&servers[2], HOUR);
    servers[2].kill();
    assert_eq!(call(&locks, 1), Ok(RunOutcome::Ran(1)));
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
}

#[test]
fn built_06_a_process_that_was_paused_in_the_body_has_not_run_it() {
    let servers = servers(3);
    let mut paused = Process::built("once", NAME, LEASE, &urls(&servers));
    assert_eq!(paused.line(), "body");
    paused.stop();
    let locks = client(&servers);
    eventually("another call runs the job", SOON, || matches!(call(&locks, 1).unwrap(), RunOutcome::Ran(1)));
    paused.tell("end");
    paused.signal(Signal::CONT);
    assert_eq!(paused.line(), "lost");
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
}

/// Processes are killed and stopped all the time, and at times a server hangs.
#[test]
fn built_06_no_two_calls_have_run_a_name() {
    let servers = servers(3);
    let mut crowd = Crowd::start("jobs", Duration::from_millis(900), 4, &servers);
    let is_enough = |lines: &[String]| lines.iter().filter(|line| line.starts_with("ran ")).count() > 5;
    let hit = crowd.disturb(Duration::from_secs(8), Duration::from_millis(200), is_enough);
    let (mut bodies, mut failed, mut ran) = (0, 0, BTreeSet::new());
    for line in crowd.end() {
        match line.split_once(' ').unwrap() {
            ("body", _) => bodies += 1,
            ("failed", _) => failed += 1,
            (_, name) => assert!(ran.insert(name.to_owned()), "two calls have run job {name}"),
        }
    }
    // A body without a success means that the call failed, or that its process was killed before it could print.
    let most = ran.len() + failed + hit;
    assert!(bodies >= ran.len() && bodies <= most, "{bodies} bodies, {} runs, {failed} failed, {hit} hit", ran.len());
}

/// Calls carry no time of day, so the clocks of clients do not matter.
#[test]
fn built_07_no_call_carries_a_time_of_day() {
    let (_server, proxy, locks) = behind_a_proxy();
    proxy.clear_log();
    assert_eq!(call(&locks, 1), Ok(RunOutcome::Ran(1)));
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    let seen = proxy.take_log();
    let numbers = seen.iter().flat_map(|seen| &seen.args).filter_map(|arg| arg.parse::<u64>().ok());
    // The largest number is two days in milliseconds.
    let largest = numbers.max().unwrap();
    assert_eq!(Duration::from_millis(largest), 48 * HOUR);
}

#[test]
fn built_08_a_server_that_lost_the_mark() {
    let one = servers(1);
    let locks = client(&one);
    assert_eq!(call(&locks, 1), Ok(RunOutcome::Ran(1)));
    one[0].kill();
    one[0].restart();
    // The client reconnects to the server.
    eventually("the job runs again", SOON, || call(&locks, 2) == Ok(RunOutcome::Ran(2)));
    let three = servers(3);
    let locks = client(&three);
    assert_eq!(call(&locks, 1), Ok(RunOutcome::Ran(1)));
    three[0].kill();
    three[0].restart();
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    eventually("the node has the mark again", SOON, || {
        locks.once(NAME).is_done().unwrap() && three[0].keys().contains(&MARK.to_owned())
    });
}

#[test]
fn built_08_a_server_that_restarted_is_not_asked_alone() {
    let (servers, remember) = (servers(3), Duration::from_secs(6));
    until_older(&servers, remember);
    let job = client(&servers).once(NAME).remember(remember);
    assert!(!job.is_done().unwrap());
    servers[0].restart();
    // The killed node could have a mark that the other two nodes do not have.
    servers[1].kill();
    eventually("the first one is reached again", SOON, || {
        let error = job.run(never).unwrap_err();
        assert!(matches!(&error, Error::Unavailable { op: "look for the mark of", key, .. } if key == NAME), "{error}");
        error.to_string().contains("`remember` of 6s")
    });
    eventually("the restarted node is old enough", SOON, || job.is_done() == Ok(false));
    assert_eq!(job.run(|_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
}

#[test]
fn built_08_a_replica_that_took_over_has_the_mark() {
    let group = Group::start(1, 3);
    let locks = redlock_tests::patient().node(group.url()).min_replicas_ack(1).unavailable_after(SOON).build().unwrap();
    assert_eq!(call(&locks, 1), Ok(RunOutcome::Ran(1)));
    group.fail_over();
    eventually("the new master answers", SOON, || locks.once(NAME).is_done().is_ok());
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
}

#[test]
fn built_09_a_server_that_becomes_full_takes_the_mark() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let began = Instant::now();
    let ran = locks.once(NAME).run(|_| {
        server.fill();
        Ok::<_, Error>(1)
    });
    assert_eq!(ran, Ok(RunOutcome::Ran(1)), "after {:?}", began.elapsed());
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    let another = locks.once("another").run(never);
    assert!(another.unwrap_err().is_unavailable());
    server.unfill();
    assert_eq!(locks.once("another").run(|_| Ok::<_, Error>(2)), Ok(RunOutcome::Ran(2)));
}

pub(super) fn built_10_each_success_is_remembered_as_its_own_call_says<P: Place>() {
    let nodes = P::start(1);
    let (old, new) = (client(&nodes), client(&nodes));
    assert_eq!(old.once(NAME).remember(HOUR).run(|_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
    assert_eq!(new.once(NAME).remember(24 * HOUR).run(never), Ok(RunOutcome::Done));
    assert!(nodes[0].pttl(MARK).unwrap() <= HOUR, "the call prolonged the mark");
    new.once(NAME).forget().unwrap();
    assert_eq!(new.once(NAME).remember(24 * HOUR).run(|_| Ok::<_, Error>(2)), Ok(RunOutcome::Ran(2)));
    assert_eq!(old.once(NAME).remember(HOUR).run(never), Ok(RunOutcome::Done));
    assert!(nodes[0].pttl(MARK).unwrap() > 23 * HOUR, "the call shortened the mark");
}
