//! Redlock: the lock is held on a majority of three independent servers, and survives the death of one of them.
//!
//! ```text
//! cargo run --example three_nodes
//! ```
//!
//! The program always starts its own three servers, since it kills two of them. It exits with 1 if anything differs
//! from its output.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the lock is to sleep")]

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_examples::Redis;
use redlock_sync::Redlock;

/// The lease is short to keep the example short. The default is 30 s.
const LEASE: Duration = Duration::from_millis(1500);

fn main() -> Result<(), Box<dyn Error>> {
    let redis = Redis::private(3);
    let [a, b, c] = redis.servers() else { return Err("three servers were asked for".into()) };
    println!("{}", redis.describe());

    // The servers are independent masters without replication. A lock is held if 2 of the 3 have it.
    let locks = Redlock::builder().nodes(redis.urls()).lease(LEASE).build()?;
    let order = locks.mutex("order:42");

    println!("\n1. One server dies while the lock is held.");
    let guard = order.lock()?;
    let first = guard.fencing_token()?;
    println!("   locked, fencing token {first}");
    c.kill();
    println!("   killed the server on port {}", c.port());
    let end = Instant::now() + LEASE * 2;
    while Instant::now() < end {
        thread::sleep(LEASE / 5);
        guard.check()?; // If the lock were lost, this error would end the program.
        println!("   still held: {:?}, {} ms left of the lease", guard.state(), guard.remaining().as_millis());
    }
    guard.unlock()?;
    println!("   unlocked: renewal kept it over two leases, with two servers of three");

    println!("\n2. Two servers are enough to lock again.");
    let guard = order.lock()?;
    let second = guard.fencing_token()?;
    println!("   locked, fencing token {second}");
    if second <= first {
        return Err("the fencing token did not rise".into());
    }

    println!("\n3. A second one dies: no majority can renew the lock, and its holder is told in time.");
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |lost| _ = tell.send(lost));
    b.kill();
    let killed = Instant::now();
    println!("   killed the server on port {}", b.port());
    let lost = told.recv_timeout(LEASE * 2)?;
    let after = killed.elapsed();
    println!("   after {} ms: {lost}", after.as_millis());
    // The lease began before the kill. So no other holder can have acquired the lock before the loss was reported.
    if guard.check().is_ok() {
        return Err("a lock without a majority is still believed".into());
    }
    _ = guard.unlock(); // This returns an error, since the lock is lost.

    println!("\n4. Without a majority the lock cannot be had, and the error says why.");
    match order.try_lock() {
        Err(error) if error.is_unavailable() => println!("   {error}"),
        other => return Err(format!("expected that the lock is unavailable, not {other:?}").into()),
    }

    println!("\n5. One server comes back, empty. It may have forgotten a lock that is still held,");
    println!("   so its vote does not count until the longest lease is over.");
    b.restart();
    let restarted = Instant::now();
    let guard = order.lock()?; // This tries for `unavailable_after`, 10 s.
    println!(
        "   locked {} ms after the restart, fencing token {}",
        restarted.elapsed().as_millis(),
        guard.fencing_token()?
    );
    if guard.fencing_token()? <= second {
        return Err("the fencing token did not rise".into());
    }
    guard.unlock()?;
    println!("\nOK: with the servers on ports {} and {} it goes on", a.port(), b.port());
    Ok(())
}
