//! Measures how well a client works. A thread acquires a lock at a steady pace, and no other thread ever uses that
//! lock.
//!
//! Many threads use the other locks and hold them for long. So the rate of these locks says little about a single
//! second.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;

use super::log::Log;
use crate::event::{Session, What};
use crate::timing::PACE;

/// The shortest lease. A lock whose release did not reach the servers soon ends.
const LEASE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(1);

/// Acquires the lock once each [`PACE`], or later if a call takes longer. Logs each success.
pub(super) fn run(locks: &Redlock, name: String, me: Session, log: &Log, is_over: impl Fn() -> bool) {
    let lock = locks.mutex(name).lease(LEASE);
    let once = || lock.try_lock_for(PATIENCE)?.unlock();
    let mut due = Instant::now();
    while !is_over() {
        let outcome: Result<(), redlock_sync::Error> = once();
        if outcome.is_ok() {
            log.note(me, 0, What::Beat);
        }
        due = (due + PACE).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
