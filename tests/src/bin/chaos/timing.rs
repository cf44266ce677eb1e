//! The lengths of time that clients, nemesis and checkers have in common.

use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::MS;

/// The leases that clients ask for, in ms: short ones, so that many are lost.
pub(crate) const LEASES: [u64; 4] = [300, 500, 800, 1500];
/// The longest of them. Each client knows of it from the beginning, as the library's documentation asks for.
pub(crate) const LONGEST_LEASE: u64 = 1500;
/// Those of the slow locks: the longest outlasts a calm.
pub(crate) const SLOW_LEASES: [u64; 4] = [400, 1500, 5000, 20_000];
/// How long a client waits for a node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(100);
/// The same, in ns.
pub(crate) const TIMEOUT: u64 = 100 * MS;
/// The library's own bound on an uninterrupted wait for a push.
pub(crate) const CAP: u64 = 5000 * MS;
/// How often the gauge of a client takes its lock.
pub(crate) const PACE: Duration = Duration::from_millis(50);
/// What a busy machine may add to anything.
const SLACK: u64 = 600 * MS;
/// The same in a run that judges safety alone: more than any load adds.
const SAFETY_SLACK: u64 = 10_000 * MS;
/// Each latch is in use for so many ns; it is kept for longer.
pub(crate) const LATCH_ROUND: u64 = 3000 * MS;
pub(crate) const LATCH_LIFE: Duration = Duration::from_secs(12);
/// Each job that is run once has a name for so many ns; calls for it come for some of these rounds, and it is
/// remembered for longer.
pub(crate) const JOB_ROUND: u64 = 500 * MS;
pub(crate) const JOB_LIFE: Duration = Duration::from_secs(30);
/// How many workers there are; a latch opens when all have arrived.
pub(crate) const WORKERS: u8 = 5;
/// When all nodes are well again, a lock that was given up in a partition is gone from all of them after this.
pub(crate) const GIVEN_UP: u64 = 3000 * MS;

/// Set once, before anything is judged.
static SAFETY: OnceLock<bool> = OnceLock::new();

/// From now on only safety is judged. What load can turn is printed as figures, and does not fail the run.
pub(crate) fn judge_safety_only() {
    _ = SAFETY.set(true);
}

pub(crate) fn is_safety_only() -> bool {
    SAFETY.get().is_some()
}

/// What a busy machine may add to anything before a checker calls it wrong.
pub(crate) fn slack() -> u64 {
    if is_safety_only() { SAFETY_SLACK } else { SLACK }
}
