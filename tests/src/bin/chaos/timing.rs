//! The times that clients, nemesis and checkers share.

use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::MS;

/// The leases that clients ask for, in ms. They are short, so that many are lost.
pub(crate) const LEASES: [u64; 4] = [300, 500, 800, 1500];
/// The longest lease in ms. Each client is built with it, as the documentation of the library requires.
pub(crate) const LONGEST_LEASE: u64 = 1500;
/// The leases of the slow locks in ms. The longest one outlasts a calm.
pub(crate) const SLOW_LEASES: [u64; 4] = [400, 1500, 5000, 20_000];
/// The time for which a client waits for a node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(100);
/// The value of [`NODE_TIMEOUT`] in ns.
pub(crate) const TIMEOUT: u64 = 100 * MS;
/// The longest time for which the library waits for a notification without an interruption. The library sets this
/// bound.
pub(crate) const CAP: u64 = 5000 * MS;
/// The longest time in ms for which a thread of a crowd waits for its lock.
pub(crate) const CROWD_WAIT: u64 = 2000;
/// The pause of the gauge of a client between two acquires of its lock.
pub(crate) const PACE: Duration = Duration::from_millis(50);
/// The margin for a busy machine in ns.
const SLACK: u64 = 600 * MS;
/// The margin in ns if the run judges safety only. It is longer than any delay that load causes.
const SAFETY_SLACK: u64 = 10_000 * MS;
/// The time in ns for which each latch is used, and the longer time for which the servers keep it.
pub(crate) const LATCH_ROUND: u64 = 3000 * MS;
pub(crate) const LATCH_LIFE: Duration = Duration::from_secs(12);
/// The time in ns after which a job that is run once gets a new name. Calls for an old name go on for some rounds. So
/// the servers remember the job for longer. In the second half of a short run they are older than that, so the guard
/// against restarted nodes acts.
pub(crate) const JOB_ROUND: u64 = 500 * MS;
pub(crate) const JOB_LIFE: Duration = Duration::from_secs(15);
/// The number of workers of a latch. The latch opens when all of them have arrived.
pub(crate) const WORKERS: u8 = 5;
/// The time in ns after which a lock that was given up in a partition is gone from all nodes. It counts from when all
/// nodes are well again.
pub(crate) const GIVEN_UP: u64 = 3000 * MS;

/// The setting of `--safety`. It is set at most once, before the checkers judge.
static SAFETY: OnceLock<bool> = OnceLock::new();

/// Makes the checkers judge safety only from now on. A check that load can make fail is then printed as a figure and
/// does not fail the run.
pub(crate) fn judge_safety_only() {
    _ = SAFETY.set(true);
}

pub(crate) fn is_safety_only() -> bool {
    SAFETY.get().is_some()
}

/// The margin for a busy machine before a checker reports a violation.
pub(crate) fn slack() -> u64 {
    if is_safety_only() { SAFETY_SLACK } else { SLACK }
}
