//! Calls that wait while another one runs the body.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_sync::{Cancel, Error, LostReason, RunOutcome};
use redlock_tests::{Server, Stopwatch, eventually};

use super::{NAME, SOON, call, client, never};
use crate::handover::rig::{this_thread, until_asleep};
use crate::place::{Place, each_place};
use crate::process::Process;

fn a_run_that_succeeds_is_done_for_a_call_that_waits<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let (one, other) = (client(&nodes), client(&nodes));
        thread::scope(|scope| {
            let mut waiter = None;
            let ran = one.once(NAME).run(|_| {
                waiter = Some(scope.spawn(|| other.once(NAME).run_for(SOON, never)));
                eventually("the call waits", SOON, || nodes.iter().any(|node| node.waits() == 1));
                Ok::<_, Error>(1)
            });
            assert_eq!(ran, Ok(RunOutcome::Ran(1)));
            assert_eq!(waiter.unwrap().join().unwrap(), Ok(RunOutcome::Done));
        });
        assert_eq!(other.once(NAME).run_for(SOON, never), Ok(RunOutcome::Done));
    }
}

fn a_run_that_fails_is_followed_by_a_call_that_waits<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let (one, other) = (client(&nodes), client(&nodes));
        thread::scope(|scope| {
            let mut waiter = None;
            let failed = one.once(NAME).run(|_| {
                waiter = Some(scope.spawn(|| other.once(NAME).run_for(SOON, |_| Ok::<_, Error>(2))));
                eventually("the call waits", SOON, || nodes.iter().any(|node| node.waits() == 1));
                Err::<u32, _>(Error::Closed)
            });
            assert_eq!(failed, Err(Error::Closed));
            assert_eq!(waiter.unwrap().join().unwrap(), Ok(RunOutcome::Ran(2)));
        });
        assert_eq!(call(&one, 3), Ok(RunOutcome::Done));
    }
}

fn a_call_that_waits_in_vain_is_busy<P: Place>() {
    let nodes = P::start(1);
    let (one, other) = (client(&nodes), client(&nodes));
    let held = one.mutex(NAME).lock().unwrap();
    let wait = P::LEASE / 3;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.once(NAME).run_for(wait, never));
        nodes[0].until("the wait is over", || waiter.is_finished());
        assert_eq!(waiter.join().unwrap(), Ok(RunOutcome::Busy));
    });
    let own = one.once(NAME).run_for(SOON, never);
    assert_eq!(own, Err(Error::WouldDeadlock { key: NAME.to_owned() }), "a thread waited for itself");
    held.unlock().unwrap();
}

each_place!(
    a_run_that_succeeds_is_done_for_a_call_that_waits,
    a_run_that_fails_is_followed_by_a_call_that_waits,
    a_call_that_waits_in_vain_is_busy,
);

#[test]
fn a_process_that_dies_in_the_body_is_followed_by_a_call_that_waits() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = Server::start();
    let mut dies = Process::built("once", NAME, LEASE, &[server.url()]);
    assert_eq!(dies.line(), "body");
    let locks = client(std::slice::from_ref(&server));
    dies.kill();
    assert_eq!(locks.once(NAME).run_for(SOON, |_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
}

/// A thread of the same client usually gets the lock without a request, if its holder had it for less than 20 ms. Then
/// the holder would not learn that its key was deleted.
#[test]
fn a_run_whose_key_was_deleted_is_lost_although_a_thread_waits() {
    for count in [1, 3] {
        let servers = redlock_tests::servers(count);
        let locks = client(&servers);
        // A thread that is asleep may still wait for a reply, and the other one may come before it. Then the next name
        // is tried.
        let in_order = (0..50).any(|round| {
            let name = &format!("{NAME}:{round}");
            let held = locks.mutex(name).lock().unwrap();
            let (say, said) = mpsc::channel();
            let wait = |outcome: Result<(), Error>| {
                say.send(this_thread()).unwrap();
                locks.once(name).run_for(SOON, |_| {
                    for server in &servers {
                        assert!(server.del(name));
                    }
                    outcome
                })
            };
            thread::scope(|scope| {
                let first = scope.spawn(|| wait(Ok(())));
                until_asleep(&said.recv().unwrap());
                let second = scope.spawn(|| wait(Err(Error::Closed)));
                until_asleep(&said.recv().unwrap());
                held.unlock().unwrap();
                // The second thread may take the lock as soon as its key is gone.
                let lost = first.join().unwrap().unwrap_err().lost_reason();
                assert!(matches!(lost, Some(LostReason::Deleted | LostReason::Taken)), "{lost:?}");
                second.join().unwrap() == Ok(RunOutcome::Done)
            })
        });
        assert!(in_order, "the second thread always came first");
    }
}

#[test]
fn an_outage_does_not_end_a_wait() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server));
    server.kill();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.once(NAME).run_for(SOON, |_| Ok::<_, Error>(1)));
        eventually("a call without a wait fails", SOON, || {
            locks.once("another").run(never).is_err_and(|error| error.is_unavailable())
        });
        assert!(!waiter.is_finished());
        server.restart();
        assert_eq!(waiter.join().unwrap(), Ok(RunOutcome::Ran(1)));
    });
}

#[test]
fn a_call_that_waits_can_be_cancelled() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server));
    let (held, cancel) = (locks.mutex(NAME).lock().unwrap(), Cancel::new());
    thread::scope(|scope| {
        let job = locks.once(NAME).cancel(&cancel);
        let waiter = scope.spawn(move || job.run_for(SOON, never));
        let began = Stopwatch::start();
        cancel.cancel();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled { .. })));
        assert!(began.elapsed() < SOON / 2);
    });
    held.unlock().unwrap();
}
