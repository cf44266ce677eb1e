//! The read-write lock: several readers at a time, a writer alone, and neither side starves.

mod downgrade;
mod exclusion;
mod faults;
mod nesting;
mod order;
mod settings;
mod sharing;

use crate::rig::{brisk, ms, open};
use std::time::Duration;

use redlock_sync::{HoldMode, Redlock};
use redlock_tests::{Server, eventually};

use crate::process::{Process, urls};

const KEY: &str = "prices";
/// The longest wait for an event that must happen. It suffices on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The number of waits on this server to read (`readers`) or to write (`writers`).
fn waits(server: &Server, queue: &str) -> usize {
    let all: Vec<String> = server.ask(redis::cmd("ZRANGE").arg(format!("{{{KEY}}}:{queue}")).arg(0).arg(-1));
    all.iter().filter(|wait| *wait != "*").count()
}

/// Waits until the first server has this number of waits.
fn until_waiting(servers: &[Server], queue: &str, number: usize) {
    eventually(&format!("{number} {queue} wait"), SOON, || waits(&servers[0], queue) >= number);
}

/// The numbers of writers and readers that hold the lock.
fn held(locks: &Redlock) -> (usize, usize) {
    let holders = locks.rw_lock(KEY).inspect().unwrap();
    let of = |mode| holders.iter().filter(|holder| holder.mode == mode).count();
    (of(HoldMode::Exclusive), of(HoldMode::Shared))
}

/// Whether only fence counters are left on the servers.
fn is_clean(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.keys().iter().all(|key| key.ends_with(":fence")))
}

/// Starts a process that takes the lock. It prints a line when it has the lock.
fn agent(side: &str, lease: Duration, servers: &[Server]) -> Process {
    Process::start(&["rw", side, KEY, &lease.as_millis().to_string()], &urls(servers))
}
