//! Semaphores.
//!
//! 1. `counting`: never more holders than permits, on one node and on several, also with different numbers of permits.
//! 2. `waiting`: which thread gets a released permit, and how soon.
//! 3. `many`: several permits at once.
//! 4. `ending`: permits that expire, are lost, or are given up together.

mod counting;
mod ending;
mod many;
mod waiting;

use std::time::Duration;

use crate::rig::{brisk, ms, open};
use redis::cmd;
use redlock_tests::{Server, eventually};

const KEY: &str = "geocoder";
const QUEUE: &str = "{geocoder}:permit_queue";
/// The longest wait for an event that must happen. It suffices on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn until_queued(server: &Server, n: usize) {
    let waits = || server.ask::<usize>(cmd("ZCARD").arg(QUEUE));
    eventually(&format!("{n} threads wait in the queue"), SOON, || waits() == n);
}
