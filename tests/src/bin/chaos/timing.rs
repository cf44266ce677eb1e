//! The times that clients, nemesis and checkers share.

use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::MS;

/// The leases that clients ask for, in ms: short ones, so that many are lost.
pub(crate) const LEASES: [u64; 4] = [300, 500, 800, 1500];
/// The longest lease. Each client knows it from the beginning, as the documentation of the library requires.
pub(crate) const LONGEST_LEASE: u64 = 1500;
/// The leases of the slow locks. The longest one outlasts a calm.
pub(crate) const SLOW_LEASES: [u64; 4] = [400, 1500, 5000, 20_000];
/// How long a client waits for a node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(100);
/// The same, in ns.
pub(crate) const TIMEOUT: u64 = 100 * MS;
/// The library's own bound on an uninterrupted wait for a push.
pub(crate) const CAP: u64 = 5000 * MS;
/// How often the gauge of a client takes its lock.
pub(crate) const PACE: Duration = Duration::from_millis(50);
/// The slack for a busy machine.
const SLACK: u64 = 600 * MS;
/// The slack in a run that judges safety alone: more than any load causes.
const SAFETY_SLACK: u64 = 10_000 * MS;
/// How long each latch is used, in ns. It is kept for longer.
pub(crate) const LATCH_ROUND: u64 = 3000 * MS;
pub(crate) const LATCH_LIFE: Duration = Duration::from_secs(12);
/// How long each job that is run once has one name, in ns. Calls for it come for some of these rounds, and it is
/// remembered for longer.
pub(crate) const JOB_ROUND: u64 = 500 * MS;
pub(crate) const JOB_LIFE: Duration = Duration::from_secs(30);
/// The number of workers. A latch opens when all have arrived.
pub(crate) const WORKERS: u8 = 5;
/// When all nodes are well again, a lock that was given up in a partition is gone from all of them after this.
pub(crate) const GIVEN_UP: u64 = 3000 * MS;

/// Set once, before any judgement.
static SAFETY: OnceLock<bool> = OnceLock::new();

/// Judges only safety from now on. Checks that load can make fail are printed as figures, and do not fail the run.
pub(crate) fn judge_safety_only() {
    _ = SAFETY.set(true);
}

pub(crate) fn is_safety_only() -> bool {
    SAFETY.get().is_some()
}

/// The slack for a busy machine before a checker reports a violation.
pub(crate) fn slack() -> u64 {
    if is_safety_only() { SAFETY_SLACK } else { SLACK }
}
