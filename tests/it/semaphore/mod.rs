//! Semaphores.
//!
//! 1. `counting`: never more holders than permits, on one node and on several, also while the number changes.
//! 2. `waiting`: which thread gets a permit that comes free, and how soon.
//! 3. `many`: several permits at once.
//! 4. `ending`: permits that end by themselves, are lost, or are given up together.

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
/// The longest wait where something must happen, however busy the machine is.
const SOON: Duration = Duration::from_secs(30);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Without the guard against restarts, since these servers started just now; with a long node timeout, since the machine is busy.
fn settings(servers: &[Server]) -> Builder {
    Redlock::builder().nodes(servers.iter().map(Server::url)).restart_guard(false).node_timeout(ms(2000))
}

fn open(servers: &[Server]) -> Redlock {
    settings(servers).build().unwrap()
}

/// Of leases as short as the machine allows.
fn brisk(servers: &[Server], lease: Duration) -> Redlock {
    settings(servers).node_timeout(lease / 3).lease(lease).build().unwrap()
}

fn until_queued(server: &Server, n: usize) {
    let waits = || server.ask::<usize>(cmd("ZCARD").arg(QUEUE));
    eventually(&format!("{n} threads wait in the queue"), SOON, || waits() == n);
}
