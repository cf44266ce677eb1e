//! Tests that must run without other tests, because they measure how processor time is shared. They run after those of
//! `it`, one at a time.
//!
//! 1. `foreign`: a foreign program gets its turn beside many of our clients.
//! 2. `starvation`: a process gets its turn beside threads that hand the lock to each other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait by the real clock"
)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of hand-overs, which need more of it")]
#[path = "../it/handover/rig.rs"]
mod clients;
mod foreign;
#[allow(dead_code, reason = "shared with the other tests, which need more of it")]
#[path = "../it/rig.rs"]
mod rig;
mod starvation;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each test of this binary holds this lock while it runs. No thread that another test needs waits for it.
fn alone() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}
