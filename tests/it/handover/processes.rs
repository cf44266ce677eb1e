//! Holders and waiters in processes of their own, which are killed or stopped.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::eventually;
use rustix::process::Signal;

use super::rig::{KEY, LONGEST_NAP, Rig, SLACK, SOON, brisk, for_sizes, ms};
use crate::process::Process;

/// A grant lasts a second at least; this long with this lease.
const LEASE: Duration = Duration::from_millis(4500);

/// A process that waits for the lock.
fn waiter(urls: &[String], lease: Duration) -> Process {
    Process::start(&["wait", KEY, &lease.as_millis().to_string()], urls)
}

#[test]
fn a_blocked_waiter_is_rescued_when_the_holder_is_killed_on_a_full_server() {
    let rig = Rig::start(1);
    rig.servers[0].crowd(4_000);
    let mut holder = waiter(&rig.urls(), LEASE);
    let token = holder.line();
    let lock = rig.client().mutex(KEY);
    let waiter = thread::spawn(move || {
        let guard = lock.lock().unwrap();
        let at = Instant::now();
        guard.unlock().unwrap();
        at
    });
    rig.until_blocked(0, 1);
    assert_eq!(rig.having(KEY, &token), 1);
    let killed = Instant::now();
    holder.kill();
    let took = waiter.join().unwrap() - killed;
    assert!(took <= LEASE + SLACK, "{took:?}");
}

/// A thread that waits behind the process; when it got the lock, and that it really had it.
fn bystander(locks: &Redlock, longest: Duration) -> Instant {
    let guard = locks.mutex(KEY).try_lock_for(longest).expect("the grant is over some time");
    let at = Instant::now();
    guard.check().unwrap();
    guard.unlock().unwrap();
    at
}

/// The server served the waiter, but it is killed before it has read what it was sent.
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
            // Its own wait for the notification ends with the old lease, the grant with its span.
            assert!(took <= LEASE + LONGEST_NAP + SLACK, "{took:?}");
        });
        assert!(victim.lines.try_recv().is_err(), "it had the lock all the same");
        rig.assert_to_be_had(KEY);
    });
}

/// It is killed while it is blocked: the server may or may not have noticed when the lock is released.
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

/// A process that was stopped before the lock was released, when it goes on again.
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
        // The server on which it listens has served it: what it was sent waits for it.
        eventually("the waiter is served", SOON, || (0..rig.servers.len()).any(|node| rig.blocked(node) == 0));
        Stopped { rig, waiter, released: Instant::now() }
    }

    /// The lock that it says it has, it has.
    fn ends_well(mut self) -> String {
        let token = self.waiter.line();
        let (rig, need) = (self.rig, self.rig.servers.len() / 2 + 1);
        assert!(rig.having(KEY, &token) >= need, "it believes to hold the lock: {token}");
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
        assert!(took <= LEASE + LONGEST_NAP + SLACK, "{took:?}");
        stopped.waiter.signal(Signal::CONT);
        // It waits anew, and for this to be seen it has to be blocked again.
        rig.until_blocked(0, 1);
        assert!(stopped.waiter.lines.try_recv().is_err(), "it believes to hold what another holds");
        guard.check().unwrap();
        assert!(rig.having(KEY, guard.id().as_str()) > rig.servers.len() / 2, "the holder's key was touched");
        guard.unlock().unwrap();
        stopped.ends_well();
    });
}

#[test]
fn a_granted_waiter_that_is_stopped_until_the_grant_is_over_asks_again() {
    for_sizes(&[1, 3], |rig| {
        let stopped = Stopped::new(rig);
        eventually("the grant is over", SOON, || rig.holding(KEY) == 0);
        // Several nodes keep it for the attempt only.
        let is_whole = stopped.released.elapsed() + ms(100) > ms(1000);
        assert!(is_whole || rig.servers.len() > 1, "the grant was over too soon");
        stopped.waiter.signal(Signal::CONT);
        stopped.ends_well();
    });
}
