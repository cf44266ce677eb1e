//! What goes wrong with leaders, by the numbers of the guarantees, and what candidates cost.

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

/// Short enough to wait for its end, and long enough for a machine that stutters.
const LEASE: Duration = Duration::from_secs(3);

/// A candidate of this process, with the lease of the others.
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
        eventually("it waits", SOON, || servers[0].waits() == 1);
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
        // Its first look after the pause, before any renewal of its own.
        leader.tell("check");
        leader.signal(Signal::CONT);
        assert_eq!(leader.line(), "lost");
        assert!(next.is_leader(), "it took the lock away");
        next.resign();
        next.join().unwrap();
        assert_eq!(leader.line(), "leads", "it is a candidate again");
    }
}

/// While one process leads for sure, no other does: from the first `check` that was `Ok` to the last one.
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

/// Processes that are killed and stopped all the time, with a server that hangs at times.
#[test]
fn built_12_no_two_leaders_pass_their_check_at_one_moment() {
    let servers = servers(3);
    let lease = Duration::from_millis(900);
    let mut crowd = Crowd::start("leaders", lease, 4, &servers);
    crowd.disturb(Duration::from_secs(12), lease);
    let terms = terms(&crowd.end());
    assert!(terms.len() > 3, "{} terms", terms.len());
    for pair in terms.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two lead: {pair:?}");
    }
}

/// Each in a client of its own, as in a process of its own.
const CANDIDATES: usize = 100;
const WATCHED: Duration = Duration::from_secs(4);

/// How many commands the server executes while nothing happens but that so many wait.
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
        // They may have looked for the holder a last time.
        thread::sleep(Duration::from_secs(1));
        let before = commands(&servers[0]);
        thread::sleep(WATCHED);
        let sent = commands(&servers[0]) - before;
        for locks in &clients {
            locks.close().unwrap();
        }
        held.unlock().unwrap();
        sent
    })
}

#[test]
fn built_15_candidates_cost_the_server_what_waits_cost() {
    let waits = cost_of_waiting(|locks| locks.mutex(KEY).lock().map(drop));
    let candidates = cost_of_waiting(|locks| locks.leader(KEY).run(until_the_end));
    // Each client tests its connection once a second, and the seconds of the two are not the same.
    assert!(candidates <= waits * 5 / 4, "{candidates} commands of candidates, {waits} of waits in {WATCHED:?}");
}
