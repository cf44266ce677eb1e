//! A lock has one holder at a time. Processes and threads increment a counter in a file by a read, a pause and a write.
//! Threads of two clients increment a counter in memory.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::{rounds, servers};

use super::rig::{open, urls};
use crate::kinds::Kind;
use crate::place::{Place, each_kind_and_place};

const PROCESSES: u64 = 4;

/// What the processes wrote to the file.
#[derive(Debug)]
struct Outcome {
    made: u64,
    counted: u64,
    changes: u64,
    /// Whether a thread read the counter while another one was between its read and its write.
    met: bool,
    took: Duration,
}

impl Outcome {
    fn lost(&self) -> u64 {
        self.made - self.counted
    }
}

/// Runs the processes and returns the outcome. `retry` is their polling interval.
fn contend(nodes: usize, threads: u64, acquisitions: u64, locked: bool, retry: Duration) -> Outcome {
    let servers = servers(nodes);
    let rounds = acquisitions.div_ceil(PROCESSES * threads);
    let dir = servers[0].dir();
    let file = dir.join("counter");
    fs::write(&file, [0; 40]).unwrap();
    let start = Instant::now();
    let agent = |_| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
        command.arg("contend").arg(&file).args([rounds.to_string(), threads.to_string()]);
        command.arg(if locked { "yes" } else { "no" }).arg(retry.as_micros().to_string());
        command.args(urls(&servers)).stdin(Stdio::null()).spawn().unwrap()
    };
    let agents: Vec<Child> = (0..PROCESSES).map(agent).collect();
    let ends: Vec<_> = agents.into_iter().map(|mut agent| agent.wait().unwrap()).collect();
    let took = start.elapsed();
    assert!(ends.iter().all(std::process::ExitStatus::success), "{ends:?}");
    let record = fs::read(&file).unwrap();
    let number = |i: usize| u64::from_le_bytes(record[8 * i..8 * i + 8].try_into().unwrap());
    let made = rounds * PROCESSES * threads;
    Outcome { made, counted: number(0), changes: number(2), met: number(4) != 0, took }
}

/// Asserts that no update is lost, and that the lock changed between processes at least `changes` times.
fn excludes(nodes: usize, threads: u64, acquisitions: u64, changes: u64, retry: Duration) {
    let outcome = contend(nodes, threads, acquisitions, true, retry);
    println!("N = {nodes}, within {:?}: {outcome:?}", outcome.took);
    assert!(outcome.made >= acquisitions);
    assert_eq!(outcome.lost(), 0, "{outcome:?}");
    assert!(!outcome.met, "the lock had two holders: {outcome:?}");
    assert!(outcome.changes >= changes, "the lock rarely changed between processes: {outcome:?}");
}

#[test]
fn no_update_is_lost_on_one_node() {
    excludes(1, 4, rounds(20_000), 10, Duration::from_millis(1));
}

/// Threads of one process hand the lock to each other. With one thread per process, each acquisition needs the servers.
#[test]
fn no_update_is_lost_among_single_threads() {
    excludes(1, 1, rounds(10_000), rounds(5_000), Duration::from_millis(1));
}

#[test]
fn no_update_is_lost_on_three_nodes() {
    excludes(3, 1, rounds(3_000), rounds(1_000), Duration::from_millis(2));
}

#[test]
fn no_update_is_lost_on_five_nodes() {
    excludes(5, 1, rounds(3_000), rounds(1_000), Duration::from_millis(2));
}

/// A negative control: without the lock, the same code loses updates.
#[test]
fn without_the_lock_updates_are_lost() {
    let outcome = contend(1, 4, 20_000, false, Duration::ZERO);
    println!("no lock: {outcome:?}");
    assert!(outcome.lost() > 0 && outcome.met, "the rig detects no lost updates: {outcome:?}");
}

/// Several threads of two clients increment the counter.
fn no_update_is_lost_among_clients<K: Kind, P: Place>() {
    let nodes = P::start(3);
    let counter = AtomicU64::new(0);
    let count = |locks: &Redlock| {
        for _ in 0..50 {
            let guard = K::new(locks, "order:42").lock().unwrap();
            let seen = counter.load(Ordering::SeqCst);
            thread::yield_now();
            counter.store(seen + 1, Ordering::SeqCst);
            K::unlock(guard).unwrap();
        }
    };
    thread::scope(|scope| {
        for locks in [open(&nodes), open(&nodes)] {
            for _ in 0..3 {
                let (locks, count) = (locks.clone(), &count);
                scope.spawn(move || count(&locks));
            }
        }
    });
    assert_eq!(counter.into_inner(), 300);
}

each_kind_and_place!(every: no_update_is_lost_among_clients);
