//! Holders and waiters in other processes, which are killed or stopped.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::eventually;
use rustix::process::Signal;

use super::rig::{KEY, NOTICED_WITHIN, Rig, SLACK, SOON, brisk, for_sizes, ms};
use crate::process::Process;

/// With this lease, a grant lasts one lease. No grant lasts less than a second.
const LEASE: Duration = Duration::from_millis(4500);

/// Starts a process that waits for the lock.
fn waiter(urls: &[String], lease: Duration) -> Process {
    Process::start(&["wait", KEY, &lease.as_millis().to_string()], urls)
}

/// Waits for the lock in another client. Checks that the lock is held, and returns when the client got it.
fn bystander(locks: &Redlock, longest: Duration) -> Instant {
    let guard = locks.mutex(KEY).try_lock_for(longest).expect("the grant expires");
    let at = Instant::now();
    guard.check().unwrap();
    guard.unlock().unwrap();
    at
}

/// The server has notified the waiter, which is killed before it reads the notification.
#[test]
fn a_granted_waiter_that_is_killed_holds_others_up_for_the_grant_at_most() {
    for_sizes(&[1, 3], |rig| {
        let held = brisk(&rig.urls(), LEASE).mutex(KEY).lock().unwrap();
        let mut victim = waiter(&rig.proxy_urls(), LEASE);
        rig.until_blocked(0, 1);
        thread::scope(|scope| {
            let next = brisk(&rig.urls(), LEASE);
            let next = scope.spawn(move || bystander(&next, SOON));
            rig.until_blocked(0, 2);
            victim.signal(Signal::STOP);
            held.unlock().unwrap();
            victim.kill();
            let killed = Instant::now();
            let took = next.join().unwrap() - killed;
            // The next wait ends with the old lease at the latest, and the grant ends after its span.
            assert!(took <= LEASE + NOTICED_WITHIN + SLACK, "{took:?}");
        });
        assert!(victim.lines.try_recv().is_err(), "the killed waiter reported that it had the lock");
        rig.assert_to_be_had(KEY);
    });
}

/// The waiter is killed during its wait. At the release, the server may or may not have noticed this.
#[test]
fn a_waiter_that_is_killed_while_blocked_leaves_the_lock_to_others() {
    for_sizes(&[1, 3], |rig| {
        let held = brisk(&rig.urls(), LEASE).mutex(KEY).lock().unwrap();
        let mut victim = waiter(&rig.urls(), LEASE);
        rig.until_blocked(0, 1);
        victim.kill();
        held.unlock().unwrap();
        let released = Instant::now();
        let took = bystander(&brisk(&rig.urls(), LEASE), SOON) - released;
        assert!(took <= LEASE + SLACK, "{took:?}");
        rig.assert_to_be_had(KEY);
    });
}

/// A waiter's process that was stopped before the lock was released.
struct Stopped<'a> {
    rig: &'a Rig,
    waiter: Process,
    released: Instant,
}

impl Stopped<'_> {
    fn new(rig: &Rig) -> Stopped<'_> {
        let held = brisk(&rig.urls(), LEASE).mutex(KEY).lock().unwrap();
        let waiter = waiter(&rig.urls(), LEASE);
        rig.until_blocked(0, 1);
        waiter.stop();
        held.unlock().unwrap();
        // The server has sent the notification, which the stopped process has not read yet.
        eventually("the waiter is notified", SOON, || (0..rig.servers.len()).any(|node| rig.blocked(node) == 0));
        Stopped { rig, waiter, released: Instant::now() }
    }

    /// Asserts that the waiter gets the lock, and that the servers agree.
    fn ends_well(mut self) -> String {
        let token = self.waiter.line();
        let (rig, need) = (self.rig, self.rig.servers.len() / 2 + 1);
        assert!(rig.having(KEY, &token) >= need, "no majority has the token {token}");
        assert_eq!(self.waiter.ask("check"), "ok");
        assert_eq!(self.waiter.ask("unlock"), "ok");
        rig.assert_free(KEY);
        token
    }
}

#[test]
fn a_granted_waiter_that_is_stopped_for_a_moment_has_the_lock() {
    for_sizes(&[1, 3], |rig| {
        let stopped = Stopped::new(rig);
        stopped.waiter.signal(Signal::CONT);
        stopped.ends_well();
    });
}

#[test]
fn a_granted_waiter_that_is_stopped_until_another_holds_goes_on_waiting() {
    for_sizes(&[1, 3], |rig| {
        let stopped = Stopped::new(rig);
        let guard = brisk(&rig.urls(), LEASE).mutex(KEY).try_lock_for(SOON).unwrap();
        let took = stopped.released.elapsed();
        assert!(took <= LEASE + NOTICED_WITHIN + SLACK, "{took:?}");
        stopped.waiter.signal(Signal::CONT);
        // The waiter waits again, which the test sees when its wait is back in the queue.
        rig.until_blocked(0, 1);
        assert!(stopped.waiter.lines.try_recv().is_err(), "the waiter took the old grant for the lock");
        guard.check().unwrap();
        assert!(rig.having(KEY, guard.id().as_str()) > rig.servers.len() / 2, "the holder's key changed");
        guard.unlock().unwrap();
        stopped.ends_well();
    });
}

#[test]
fn a_granted_waiter_that_is_stopped_until_the_grant_is_over_asks_again() {
    for_sizes(&[1, 3], |rig| {
        let stopped = Stopped::new(rig);
        eventually("the grant expires", SOON, || rig.holding(KEY) == 0);
        // With several nodes, the grant only lasts long enough for an attempt.
        let is_whole = stopped.released.elapsed() + ms(100) > ms(1000);
        assert!(is_whole || rig.servers.len() > 1, "the grant expired too early");
        stopped.waiter.signal(Signal::CONT);
        stopped.ends_well();
    });
}
