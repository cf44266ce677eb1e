//! A process with a reader or a writer of a read-write lock. Tests kill it or let it fork.
#![allow(unsafe_code, reason = "a forked child drops its copy of what the parent keeps")]

use std::io::{Read, Write, stdin, stdout};
use std::time::Duration;

use redlock_sync::{Error, Redlock};

use crate::holders::in_a_child;

/// `rw read|write|fork KEY LEASE_MS URL…`: acquires the lock, prints its token, and holds the lock until the end of
/// stdin.
///
/// With `fork`, two threads of the process share the lock as readers. Before it prints the token, a forked child drops
/// its copy of one guard.
pub(crate) fn main(args: &[String]) {
    let [side, key, lease, urls @ ..] = args else { panic!("rw read|write KEY LEASE_MS URL…") };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let locks = Redlock::builder().nodes(urls).lease(lease).node_timeout(lease / 4).build().unwrap();
    let lock = locks.rw_lock(key.as_str());
    match side.as_str() {
        "read" => hold(&lock.read().unwrap()),
        "write" => hold(&lock.write().unwrap()),
        _ => {
            let first = lock.read().unwrap();
            let second = std::thread::scope(|scope| {
                scope.spawn(|| std::mem::forget(lock.read().unwrap())).join().unwrap();
                first.id().clone()
            });
            in_a_child(|| {
                assert_eq!(lock.read().unwrap_err(), Error::Closed);
                assert_eq!(first.check().unwrap_err(), Error::Closed);
                // SAFETY: the copy is read once, and the process ends before its owner would drop it again.
                drop(unsafe { std::ptr::read(&raw const first) });
            });
            assert_eq!(first.id(), &second);
            hold(&first);
        }
    }
}

fn hold(lease: &redlock_sync::Lease) {
    println!("{}", lease.id().as_str());
    stdout().flush().unwrap();
    stdin().read_to_end(&mut Vec::new()).unwrap();
}
