//! Counts the allocations of a lock and its release, in all threads of the client: `cargo bench --bench allocations`.
//! The exit code is 0 whether the bar is met or not.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot do its work ends with a message")]

use std::alloc::System;

use redlock_sync::Redlock;
use redlock_tests::servers;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: u32 = 5000;

fn main() {
    for (nodes, bar) in [(1, "at most 12"), (3, "none")] {
        let servers = servers(nodes);
        let urls = servers.iter().map(redlock_tests::Server::url);
        let mutex = Redlock::builder().nodes(urls).build().unwrap().mutex("order:42");
        let dropped = allocations(|| drop(mutex.lock().unwrap()));
        let unlocked = allocations(|| mutex.lock().unwrap().unlock().unwrap());
        println!("{nodes} servers: lock and drop {dropped:.1} allocations (bar: {bar}), lock and unlock {unlocked:.1}");
    }
}

/// The mean of many calls, after as many that are not counted.
fn allocations(pair: impl Fn()) -> f64 {
    (0..ROUNDS).for_each(|_| pair());
    let region = Region::new(ALLOCATOR);
    (0..ROUNDS).for_each(|_| pair());
    let change = region.change();
    f64::from(u32::try_from(change.allocations + change.reallocations).unwrap()) / f64::from(ROUNDS)
}
