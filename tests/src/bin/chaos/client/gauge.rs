//! Measures how well a client works: a thread that takes a lock of its own at a steady pace, which no other thread ever
//! holds.
//!
//! The other locks are held for long and by many, so their rate says little about a single second.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;

use super::log::Log;
use crate::event::{Session, What};
use crate::timing::PACE;

/// The shortest lease, so that a lock whose release was lost soon ends.
const LEASE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes the lock once each [`PACE`], or when the last call has ended, and writes down each success.
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
