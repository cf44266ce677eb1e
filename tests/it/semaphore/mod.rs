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

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Server, eventually};

const KEY: &str = "geocoder";
const QUEUE: &str = "{geocoder}:permit_queue";
/// The longest wait for an event that must happen. It suffices on a busy machine.
const SOON: Duration = Duration::from_secs(30);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Settings without the restart guard, because these servers have just started. The node timeout is long for a busy
/// machine.
fn settings(servers: &[Server]) -> Builder {
    Redlock::builder().nodes(servers.iter().map(Server::url)).restart_guard(false).node_timeout(ms(2000))
}

fn open(servers: &[Server]) -> Redlock {
    settings(servers).build().unwrap()
}

/// A client whose lease and node timeout are short.
fn brisk(servers: &[Server], lease: Duration) -> Redlock {
    settings(servers).node_timeout(lease / 3).lease(lease).build().unwrap()
}

fn until_queued(server: &Server, n: usize) {
    let waits = || server.ask::<usize>(cmd("ZCARD").arg(QUEUE));
    eventually(&format!("{n} threads wait in the queue"), SOON, || waits() == n);
}
