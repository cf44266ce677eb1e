//! A reader or a writer of a read-write lock in a process of its own, to be killed.

use std::io::{Read, Write, stdin, stdout};
use std::time::Duration;

use redlock_sync::Redlock;

/// `rw read|write KEY LEASE_MS URL…`: takes the lock, prints its token, and holds the lock until the end of stdin.
pub(crate) fn main(args: &[String]) {
    let [side, key, lease, urls @ ..] = args else { panic!("rw read|write KEY LEASE_MS URL…") };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let locks = Redlock::builder().nodes(urls).lease(lease).node_timeout(lease / 4).build().unwrap();
    let lock = locks.rw_lock(key.as_str());
    if side == "read" {
        hold(&lock.read().unwrap());
    } else {
        hold(&lock.write().unwrap());
    }
}

fn hold(lease: &redlock_sync::Lease) {
    println!("{}", lease.id());
    stdout().flush().unwrap();
    stdin().read_to_end(&mut Vec::new()).unwrap();
}
