//! Processes that a signal tells to stop. No other process has to wait for the end of their leases.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::Server;
use rustix::process::Signal;

use super::rig::{Rig, SOON, ms, timed};
use crate::process::Process;

/// A lease that outlasts every test. If another client gets the lock, then it was released.
const LEASE: Duration = Duration::from_secs(600);

fn service(rig: &Rig, grace: &str, how: &str) -> Process {
    let service = Process::start(&["stopping", grace, &LEASE.as_secs().to_string(), how], &rig.urls());
    assert_eq!(service.line(), "ready");
    service
}

fn waits_for(locks: &Redlock, key: &'static str) -> thread::JoinHandle<()> {
    let lock = locks.mutex(key);
    thread::spawn(move || lock.try_lock_for(SOON).unwrap().unlock().unwrap())
}

fn stops(nodes: usize, signal: Signal) {
    let rig = Rig::start(nodes);
    let others = rig.client();
    let theirs = others.mutex("theirs").lock().unwrap();
    let mut service = service(&rig, "300", "shutdown");
    rig.until_blocked(0, 1);
    // The shutdown must release both locks, although a thread that hangs holds one of them.
    let waits = ["stuck", "turns"].map(|key| waits_for(&others, key));
    service.signal(signal);
    let ((said, status), took) = timed(|| service.end());
    assert!(status.success(), "{said}");
    assert!(said.contains("gave up: Ok([\"stuck\"])"), "{said}");
    assert!(said.contains("waiting: Err(Closed)"), "{said}");
    assert!(took < SOON, "the waits took {took:?}");
    for wait in waits {
        wait.join().unwrap();
    }
    theirs.unlock().unwrap();
    for key in ["stuck", "turns", "theirs"] {
        rig.assert_free(key);
    }
}

#[test]
fn a_process_told_to_stop_leaves_no_lock_behind() {
    thread::scope(|scope| {
        scope.spawn(|| stops(1, Signal::TERM));
        scope.spawn(|| stops(3, Signal::INT));
    });
}

/// If the process ends in one of these ways, the guards of its running threads are not dropped. `docs/guide.md` says
/// so.
#[test]
fn a_process_that_ends_otherwise_keeps_its_locks_until_their_lease_ends() {
    let rig = Rig::start(1);
    let others = rig.client();
    let _theirs = others.mutex("theirs").lock().unwrap();
    let server: &Server = &rig.servers[0];
    for how in ["return", "exit", "abort"] {
        let mut service = service(&rig, "0", how);
        service.tell("");
        let (said, status) = service.end();
        assert_eq!(status.signal(), (how == "abort").then_some(Signal::ABORT.as_raw()), "{how}: {said}");
        assert!(server.pttl("stuck").is_some_and(|left| left > LEASE / 2), "the lock was released at {how}");
        assert!(others.mutex("stuck").try_lock_for(ms(50)).unwrap_err().is_busy());
        for key in ["stuck", "turns"] {
            let lock = others.mutex(key);
            // The thread that takes turns may have held no lock when the process ended.
            if let Some(holder) = lock.inspect().unwrap().first() {
                assert!(lock.force_unlock(holder).unwrap());
            }
        }
    }
}
