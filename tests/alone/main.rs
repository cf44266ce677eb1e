//! Tests that need the machine to themselves: they judge how processor time is shared out. They run after those of `it`, one at a time.
//!
//! 1. `foreign`: a program that knows nothing of grants gets its turn beside a crowd of ours.
//! 2. `starvation`: a process gets its turn beside threads that hand the lock on among themselves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait by the real clock"
)]

mod foreign;
#[allow(dead_code, reason = "shared with the tests of hand-overs, which need more of it")]
#[path = "../it/handover/rig.rs"]
mod rig;
mod starvation;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while a test runs. Each test of this binary takes it, so no thread waits for it that other tests need.
fn alone() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}
