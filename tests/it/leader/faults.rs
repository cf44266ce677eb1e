//! Faults of leaders, by their numbers in the guarantees, and the cost of candidates.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use redlock_tests::bench::counts::commands;
use redlock_tests::{Server, Stopwatch, eventually, servers};
use rustix::process::Signal;

use super::{KEY, SOON, until_the_end};
use crate::place::Place;
use crate::process::{Crowd, Process, urls};

/// A lease that outlasts short stalls of the machine, and that a test can wait for.
const LEASE: Duration = Duration::from_secs(3);

/// The client of a candidate in this process. It has the same lease as the other candidates.
fn candidate(servers: &[Server]) -> Redlock {
    let builder = Redlock::builder().nodes(urls(servers)).lease(LEASE).node_timeout(LEASE / 3);
    builder.restart_guard(false).build().unwrap()
}

#[test]
fn built_11_a_leader_that_is_killed_is_followed_within_its_lease() {
    for count in [1, 3] {
        let servers = servers(count);
        let mut leader = Process::built("lead", KEY, LEASE, &urls(&servers));
        assert_eq!(leader.line(), "leads");
        let next = candidate(&servers).leader(KEY).spawn(until_the_end).unwrap();
        eventually("the wait is queued", SOON, || servers[0].waits() == 1);
        let killed = Stopwatch::start();
        leader.kill();
        eventually("the next one leads", SOON, || next.is_leader());
        assert!(killed.elapsed() < LEASE + Duration::from_secs(2), "{:?}", killed.elapsed());
        next.resign();
        next.join().unwrap();
    }
}

#[test]
fn built_12_a_leader_that_was_paused_learns_of_it_before_it_acts() {
    for count in [1, 3] {
        let servers = servers(count);
        let mut leader = Process::built("lead", KEY, LEASE, &urls(&servers));
        assert_eq!(leader.line(), "leads");
        assert_eq!(leader.ask("check"), "ok");
        leader.stop();
        let next = candidate(&servers).leader(KEY).spawn(until_the_end).unwrap();
        eventually("the next one leads", SOON, || next.is_leader());
        // The former leader calls `check` right after its pause, before its own next renewal.
        leader.tell("check");
        leader.signal(Signal::CONT);
        assert_eq!(leader.line(), "lost");
        assert!(next.is_leader(), "the former leader ended the new term");
        next.resign();
        next.join().unwrap();
        assert_eq!(leader.line(), "leads", "the former leader leads no more");
    }
}

/// The terms in the processes' lines. Each lasts from the first successful `check` to the last one.
fn terms(lines: &[String]) -> Vec<(u128, u128)> {
    let mut terms: BTreeMap<(u128, u128), (u128, u128)> = BTreeMap::new();
    for line in lines {
        let numbers: Vec<u128> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [process, term, before, after] = numbers[..] else { panic!("{line}") };
        terms.entry((process, term)).or_insert((after, before)).1 = before;
    }
    let mut terms: Vec<_> = terms.into_values().filter(|(from, to)| from < to).collect();
    terms.sort_unstable();
    terms
}

/// Processes are killed and stopped all the time, and at times a server hangs.
#[test]
fn built_12_no_two_leaders_pass_their_check_at_one_moment() {
    let servers = servers(3);
    let lease = Duration::from_millis(900);
    let mut crowd = Crowd::start("leaders", lease, 4, &servers);
    crowd.disturb(Duration::from_secs(12), lease, |lines| terms(lines).len() > 3);
    for pair in terms(&crowd.end()).windows(2) {
        assert!(pair[0].1 <= pair[1].0, "there are two leaders: {pair:?}");
    }
}

/// Each candidate has its own client, so it acts like a separate process.
const CANDIDATES: usize = 100;
const WATCHED: Duration = Duration::from_secs(4);

/// The number of commands that the server executes while this many candidates wait and nothing else happens.
fn cost_of_waiting(wait: impl Fn(&Redlock) -> Result<(), Error> + Sync) -> u64 {
    let servers = servers(1);
    let open = || {
        let builder = Redlock::builder().node(servers[0].url()).node_timeout(Duration::from_secs(5));
        builder.lease(Duration::from_secs(300)).build().unwrap()
    };
    let held = open().mutex(KEY).lock().unwrap();
    let clients: Vec<Redlock> = (0..CANDIDATES).map(|_| open()).collect();
    thread::scope(|scope| {
        for locks in &clients {
            scope.spawn(|| assert_eq!(wait(locks), Err(Error::Closed)));
        }
        eventually("all wait", SOON, || servers[0].waits() == CANDIDATES);
        // In this second, the candidates may look for the holder for the last time.
        thread::sleep(Duration::from_secs(1));
        let before = commands(&servers[0]);
        thread::sleep(WATCHED);
        let sent = commands(&servers[0]) - before;
        for locks in &clients {
            locks.shutdown(Duration::ZERO).unwrap();
        }
        held.unlock().unwrap();
        sent
    })
}

#[test]
fn built_15_candidates_cost_the_server_what_waits_cost() {
    let (waits, candidates) = thread::scope(|scope| {
        let waits = scope.spawn(|| cost_of_waiting(|locks| locks.mutex(KEY).lock().map(drop)));
        let candidates = cost_of_waiting(|locks| locks.leader(KEY).run(until_the_end));
        (waits.join().unwrap(), candidates)
    });
    // Each client tests its connection once a second, so the two numbers can differ slightly.
    assert!(candidates <= waits * 5 / 4, "{candidates} commands of candidates, {waits} of waits in {WATCHED:?}");
}
