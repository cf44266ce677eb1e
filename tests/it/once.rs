//! Jobs that run once for each name: what the calls return, and which keys are on the servers.
//!
//! 1. This file: the contract, at each place.
//! 2. `faults`: faults by number.
//! 3. `waits`: calls that wait while another one runs the body.
//! 4. `model`: random calls, and a reference model.

mod faults;
mod model;
mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Lease, LostReason, Redlock, RunOutcome};
use redlock_tests::{Proxy, Server, eventually};

use self::faults::{
    built_01_a_body_that_failed_or_panicked_is_run_again,
    built_05_a_mark_on_a_minority_is_stored_on_a_majority_or_not_met,
    built_10_each_success_is_remembered_as_its_own_call_says,
};
use crate::place::{Place, each_place};

const NAME: &str = "report:2026-11-24";
const MARK: &str = "{report:2026-11-24}:done";
/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

fn client<P: Place>(nodes: &[P]) -> Redlock {
    P::client(nodes, Redlock::builder().node_timeout(Duration::from_secs(5)))
}

/// A body that must not run.
fn never(_: &Lease) -> Result<u32, Error> {
    panic!("the body runs");
}

fn call(locks: &Redlock, value: u32) -> Result<RunOutcome<u32>, Error> {
    locks.once(NAME).run(|lease| lease.check().map(|()| value))
}

/// A release that a majority has confirmed may still be on its way to the other nodes.
fn has_only<P: Place>(nodes: &[P], keys: &[&str]) {
    eventually("no other key is left", SOON, || nodes.iter().all(|node| node.keys() == keys));
}

fn a_name_is_run_once<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let (one, other) = (client(&nodes), client(&nodes));
        assert!(!other.once(NAME).is_done().unwrap());
        let ran = one.once(NAME).run(|lease| {
            assert_eq!(lease.key(), NAME);
            assert!(other.mutex(NAME).is_locked().unwrap());
            lease.check().map(|()| 7)
        });
        assert_eq!(ran, Ok(RunOutcome::Ran(7)));
        has_only(&nodes, &[MARK]);
        for node in &nodes {
            let left = node.pttl(MARK).unwrap();
            assert!(left <= 48 * HOUR && left > 47 * HOUR, "{left:?}");
        }
        for locks in [&one, &other] {
            assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
            assert!(locks.once(NAME).is_done().unwrap());
        }
        has_only(&nodes, &[MARK]);
        // A job with another name runs separately.
        assert_eq!(other.once("report:2026-11-25").run(|_| Ok::<_, Error>(8)), Ok(RunOutcome::Ran(8)));
        other.once(NAME).forget().unwrap();
        assert!(!one.once(NAME).is_done().unwrap());
        assert_eq!(call(&other, 9), Ok(RunOutcome::Ran(9)));
    }
}

fn a_run_that_is_under_way_is_busy<P: Place>() {
    let nodes = P::start(1);
    let (one, other) = (client(&nodes), client(&nodes));
    let ran = one.once(NAME).run(|_| {
        assert_eq!(other.once(NAME).run(never), Ok(RunOutcome::Busy));
        assert_eq!(elsewhere(&one), Ok(RunOutcome::Busy), "the same client ran the job twice");
        assert!(other.mutex(NAME).try_lock().unwrap_err().is_busy());
        other.once(NAME).is_done()
    });
    assert_eq!(ran, Ok(RunOutcome::Ran(false)));
    let held = one.mutex("order:42").lock().unwrap();
    assert_eq!(other.once("order:42").run(never), Ok(RunOutcome::Busy), "the job ran beside a mutex of its name");
    held.unlock().unwrap();
}

/// Makes the call in another thread.
fn elsewhere(locks: &Redlock) -> Result<RunOutcome<u32>, Error> {
    thread::scope(|scope| scope.spawn(|| locks.once(NAME).run(never)).join().unwrap())
}

/// After `Busy`, callers usually call again. Within the body, this would never end.
fn a_call_by_the_thread_that_has_the_lock_is_a_misuse<P: Place>() {
    let nodes = P::start(1);
    let locks = client(&nodes);
    let is_refused = |outcome| matches!(outcome, Err(Error::WouldDeadlock { key }) if key == NAME);
    let ran = locks.once(NAME).max_hold(HOUR).run(|lease| {
        assert!(is_refused(locks.once(NAME).run(never)));
        assert!(is_refused(locks.once(NAME).max_hold(HOUR).run(never)));
        lease.check().map(|()| 1)
    });
    assert_eq!(ran, Ok(RunOutcome::Ran(1)));
    let held = locks.mutex(NAME).lock().unwrap();
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done), "the job was not done");
    locks.once(NAME).forget().unwrap();
    assert!(is_refused(locks.once(NAME).run(never)));
    held.unlock().unwrap();
    assert_eq!(call(&locks, 2), Ok(RunOutcome::Ran(2)));
}

fn the_error_of_the_body_is_the_callers_own<P: Place>() {
    let nodes = P::start(1);
    let locks = client(&nodes);
    let failed = locks.once(NAME).run(|_| Err::<(), Box<dyn std::error::Error>>("no paper".into()));
    assert_eq!(failed.unwrap_err().to_string(), "no paper");
    // The body's error has priority over the error of the release.
    let failed = locks.once(NAME).run(|_| {
        nodes[0].del(NAME);
        Err::<(), _>(Error::Closed)
    });
    assert_eq!(failed, Err(Error::Closed));
    has_only(&nodes, &[]);
}

/// If only the servers know of the loss, then the release finds it. If the lease knows of it, then the call sets no
/// mark.
fn a_lock_that_was_lost_is_no_run<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let locks = client(&nodes);
        let take_away = || nodes.iter().for_each(|node| assert!(node.del(NAME)));
        let lost = locks.once(NAME).run(|lease| {
            take_away();
            assert_eq!(lease.extend(HOUR).unwrap_err().lost_reason(), Some(LostReason::Deleted));
            Ok::<_, Error>(1)
        });
        assert_eq!(lost.unwrap_err().lost_reason(), Some(LostReason::Deleted));
        assert!(!locks.once(NAME).is_done().unwrap());
        let lost = locks.once(NAME).run(|lease| {
            take_away();
            lease.check().map(|()| 2)
        });
        assert_eq!(lost.unwrap_err().lost_reason(), Some(LostReason::Deleted));
        assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done), "the job was not done");
    }
}

fn a_success_is_forgotten_in_time<P: Place>() {
    let nodes = P::start(1);
    let locks = client(&nodes);
    let job = locks.once(NAME).remember(P::LEASE);
    assert_eq!(job.run(|_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
    assert_eq!(job.run(never), Ok(RunOutcome::Done));
    nodes[0].until("the success is forgotten", || !job.is_done().unwrap());
    has_only(&nodes, &[]);
    assert_eq!(job.run(|_| Ok::<_, Error>(2)), Ok(RunOutcome::Ran(2)));
}

fn wrong_settings_are_refused<P: Place>() {
    let nodes = P::start(1);
    let locks = client(&nodes);
    for remember in [Duration::ZERO, Duration::from_millis(999), 366 * 24 * HOUR] {
        let error = locks.once(NAME).remember(remember).run(never).unwrap_err();
        assert!(matches!(&error, Error::Config { message, .. } if message.contains("remember")), "{error}");
    }
    assert!(matches!(locks.once("").run(never), Err(Error::Config { .. })));
    assert!(matches!(locks.once(MARK).run(never), Err(Error::Config { .. })));
}

/// The operation in the words of the caller, from an error about this job.
fn op_of<T>(outcome: Result<T, Error>) -> &'static str {
    match outcome.map(drop).unwrap_err() {
        Error::WrongType { op, key, node } => {
            assert_eq!((key.as_str(), node.node), (NAME, 1));
            op
        }
        other => panic!("{other:?}"),
    }
}

fn a_mark_that_is_something_else_is_told_in_the_words_of_the_job<P: Place>() {
    let nodes = P::start(1);
    let locks = client(&nodes);
    nodes[0].set(MARK, "something else");
    assert_eq!(op_of(locks.once(NAME).run(never)), "look for the mark of");
    assert_eq!(op_of(locks.once(NAME).is_done()), "look for the mark of");
    assert_eq!(op_of(locks.once(NAME).forget()), "forget");
    has_only(&nodes, &[MARK]);
    nodes[0].del(MARK);
    let marked = locks.once(NAME).run(|_| {
        nodes[0].set(MARK, "something else");
        Ok::<_, Error>(1)
    });
    assert_eq!(op_of(marked), "mark");
    has_only(&nodes, &[MARK]);
    nodes[0].del(MARK);
    nodes[0].ask(&["RPUSH", NAME, "something else"]);
    assert_eq!(op_of(locks.once(NAME).run(never)), "acquire");
}

fn of_many_threads_one_runs<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let (bodies, ran) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let clients = [client(&nodes), client(&nodes)];
        thread::scope(|scope| {
            for i in 0..8 {
                let (locks, bodies, ran) = (&clients[i % 2], &bodies, &ran);
                scope.spawn(move || {
                    let body = |_: &Lease| {
                        bodies.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(5));
                        Ok::<_, Error>(())
                    };
                    loop {
                        match locks.once(NAME).run(body).unwrap() {
                            RunOutcome::Ran(()) => _ = ran.fetch_add(1, Ordering::SeqCst),
                            RunOutcome::Done => return,
                            RunOutcome::Busy => thread::sleep(Duration::from_millis(1)),
                        }
                    }
                });
            }
        });
        assert_eq!((bodies.into_inner(), ran.into_inner()), (1, 1));
    }
}

each_place!(
    a_name_is_run_once,
    a_run_that_is_under_way_is_busy,
    a_call_by_the_thread_that_has_the_lock_is_a_misuse,
    the_error_of_the_body_is_the_callers_own,
    a_lock_that_was_lost_is_no_run,
    a_success_is_forgotten_in_time,
    wrong_settings_are_refused,
    a_mark_that_is_something_else_is_told_in_the_words_of_the_job,
    of_many_threads_one_runs,
    built_01_a_body_that_failed_or_panicked_is_run_again,
    built_05_a_mark_on_a_minority_is_stored_on_a_majority_or_not_met,
    built_10_each_success_is_remembered_as_its_own_call_says,
);

/// A job that is done costs one round trip, and a busy one costs two. A run costs five.
#[test]
fn calls_are_few() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = redlock_tests::open(proxy.url());
    // The server loads the scripts here.
    assert_eq!(locks.once("warm-up").run(|_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
    let calls = || {
        let of_locks = ["wait for", "acquire", "count down", "release"];
        let seen = proxy.take_log().into_iter().map(|seen| seen.name);
        seen.filter(|name| of_locks.contains(&name.as_str())).collect::<Vec<_>>()
    };
    drop(calls());
    let ran = locks.once(NAME).run(|_| {
        assert_eq!(calls(), ["wait for", "acquire", "wait for"]);
        assert_eq!(elsewhere(&locks), Ok(RunOutcome::Busy));
        Ok::<_, Error>(calls().len())
    });
    assert_eq!(ran, Ok(RunOutcome::Ran(2)));
    assert_eq!(calls(), ["count down", "release"]);
    assert_eq!(locks.once(NAME).run(never), Ok(RunOutcome::Done));
    assert_eq!(calls(), ["wait for"]);
}

/// Errors that do not concern the key also name the operation.
#[test]
fn a_server_that_refuses_the_client_is_told_in_the_words_of_the_job() {
    let server = Server::builder().password("secret").start();
    let locks = redlock_tests::open(format!("redis://{}/", server.addr()));
    let is_told = |outcome: Result<(), Error>, op: &str| {
        let Err(Error::Config { message, .. }) = outcome else { panic!("{outcome:?}") };
        let begin = format!("failed to {op} lock `{NAME}`: node 1 ({})", server.addr());
        assert!(message.starts_with(&begin) && message.contains("NOAUTH"), "{message}");
    };
    is_told(locks.once(NAME).run(never).map(drop), "look for the mark of");
    is_told(locks.once(NAME).is_done().map(drop), "look for the mark of");
    is_told(locks.once(NAME).forget(), "forget");
}

/// A panic in the body releases the lock and is passed on.
fn panicked(locks: &Redlock) {
    let outcome =
        catch_unwind(AssertUnwindSafe(|| locks.once(NAME).run(|_| -> Result<(), Error> { panic!("of the body") })));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"of the body"));
}
