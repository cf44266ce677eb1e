//! The closure methods of each kind: their return values. Afterwards no lock may be held.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redlock_sync::{Error, Lease, LostReason, Redlock, Retry};

use crate::place::{Place, each_place};

const KEY: &str = "order:42";

/// The return type of a body.
type Answer = Result<u32, Error>;
/// One of the methods, called with a body.
type Method = fn(&Redlock, &mut dyn FnMut(&Lease) -> Answer) -> Answer;

/// The method `$with` of the handle that `$make` returns. It makes one attempt.
macro_rules! method {
    ($make:ident($($argument:expr),+) $with:ident) => {
        |locks, body| {
            let once = Retry::every(Duration::from_millis(1)).max_attempts(1);
            locks.$make($($argument),+).retry(once).$with(body)
        }
    };
}

const KINDS: [(&str, Method); 5] = [
    ("mutex", method!(mutex(KEY) with)),
    ("reentrant mutex", method!(reentrant_mutex(KEY) with)),
    ("reader", method!(rw_lock(KEY) with_read)),
    ("writer", method!(rw_lock(KEY) with_write)),
    ("permit", method!(semaphore(KEY, 1) with)),
];

/// Runs `while_held` while no other client can take the lock of this kind.
fn occupied(locks: &Redlock, kind: &str, while_held: impl FnOnce() -> Answer) -> Answer {
    match kind {
        "mutex" | "reentrant mutex" => locks.mutex(KEY).with(|_| while_held()),
        "permit" => locks.semaphore(KEY, 1).with(|_| while_held()),
        _ => locks.rw_lock(KEY).with_write(|_| while_held()),
    }
}

/// Nodes and two clients with a node timeout for a busy machine.
fn rig<P: Place>(nodes: usize) -> (Vec<P>, Redlock, Redlock) {
    let nodes = P::start(nodes);
    let client = || P::client(&nodes, Redlock::builder().node_timeout(Duration::from_secs(5)));
    let (one, other) = (client(), client());
    (nodes, one, other)
}

/// Deletes the key while the lock is held.
fn lose<P: Place>(nodes: &[P]) {
    for node in nodes {
        assert!(node.del(KEY));
    }
}

/// Whether a majority of the nodes has the key.
fn is_held<P: Place>(nodes: &[P]) -> bool {
    let having = nodes.iter().filter(|node| node.keys().iter().any(|key| key == KEY));
    having.count() > nodes.len() / 2
}

/// Runs the test on one node and on three, for each kind. Asserts that the lock is not held afterwards.
fn on_each<P: Place>(test: impl Fn(&[P], &Redlock, &Redlock, &str, Method)) {
    for count in [1, 3] {
        let (nodes, one, other) = rig::<P>(count);
        for (kind, method) in KINDS {
            test(&nodes, &one, &other, kind, method);
            assert!(!is_held(&nodes), "{kind}: the lock is held afterwards");
        }
    }
}

fn the_value_of_the_body_is_returned<P: Place>() {
    on_each::<P>(|nodes, locks, _, kind, method| {
        let value = method(locks, &mut |lease| {
            assert!(is_held(nodes), "{kind}: the lock is not held");
            lease.check().map(|()| 42)
        });
        assert_eq!(value, Ok(42), "{kind}");
    });
}

fn the_error_of_the_body_is_returned<P: Place>() {
    on_each::<P>(|nodes, locks, _, kind, method| {
        let error = Error::WouldDeadlock { key: "of the body".into() };
        assert_eq!(method(locks, &mut |_| Err(error.clone())), Err(error.clone()), "{kind}");
        // The body's error has priority over the error of the release.
        let lost = method(locks, &mut |_| {
            lose(nodes);
            Err(error.clone())
        });
        assert_eq!(lost, Err(error), "{kind}");
    });
}

fn built_19_a_lock_that_was_lost_is_an_error<P: Place>() {
    on_each::<P>(|nodes, locks, _, kind, method| {
        let lost = method(locks, &mut |lease| {
            lose(nodes);
            // Only the servers know of the loss, so `check` succeeds here.
            lease.check().map(|()| 42)
        });
        assert_eq!(lost.unwrap_err().lost_reason(), Some(LostReason::Deleted), "{kind}");
    });
}

fn built_21_a_panic_releases_it<P: Place>() {
    on_each::<P>(|nodes, locks, _, kind, method| {
        let panicked = catch_unwind(AssertUnwindSafe(|| method(locks, &mut |_| panic!("of the body"))));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"of the body"), "{kind}");
        assert!(!is_held(nodes), "{kind}");
    });
}

fn a_body_without_the_lock_does_not_run<P: Place>() {
    on_each::<P>(|_, locks, other, kind, method| {
        let busy = occupied(other, kind, || method(locks, &mut |_| panic!("{kind}: the body ran")));
        assert!(busy.unwrap_err().is_busy(), "{kind}");
    });
}

each_place!(
    the_value_of_the_body_is_returned,
    the_error_of_the_body_is_returned,
    built_19_a_lock_that_was_lost_is_an_error,
    built_21_a_panic_releases_it,
    a_body_without_the_lock_does_not_run,
);

/// The client sends the release, but no server replies.
#[test]
fn built_20_a_release_that_is_not_confirmed_is_no_error() {
    for (kind, method) in KINDS {
        let servers = redlock_tests::servers(1);
        let timeout = Duration::from_secs(1);
        let builder = Redlock::builder().node(servers[0].url()).node_timeout(timeout);
        let locks = builder.lease(Duration::from_secs(60)).build().unwrap();
        let value = method(&locks, &mut |lease| {
            servers[0].stop();
            lease.check().map(|()| 42)
        });
        assert_eq!(value, Ok(42), "{kind}");
        servers[0].cont();
    }
}

/// A nested call in the same thread runs under the outer lock.
#[test]
fn closures_nest() {
    let locks = Redlock::in_memory();
    let order = locks.reentrant_mutex(KEY);
    let sum = order.with(|outer| order.with(|inner| Ok::<_, Error>(inner.id() == outer.id())));
    assert_eq!(sum, Ok(true));
    let refused: Result<(), Error> = locks.mutex(KEY).with(|_| locks.mutex(KEY).with(|_| Ok(())));
    assert!(matches!(refused, Err(Error::WouldDeadlock { .. })));
}

/// The body can return the caller's own error type.
#[test]
fn the_body_has_an_error_of_its_own() {
    let locks = Redlock::in_memory();
    let of_body = locks.mutex(KEY).with(|_| Err::<(), Box<dyn std::error::Error>>("no such order".into()));
    assert_eq!(of_body.unwrap_err().to_string(), "no such order");
    let held = locks.mutex(KEY).lock().unwrap().into_send();
    let once = Retry::every(Duration::from_millis(1)).max_attempts(1);
    let of_lock = locks.mutex(KEY).retry(once).with(|_| Ok::<(), Box<dyn std::error::Error>>(()));
    assert!(of_lock.unwrap_err().downcast_ref::<Error>().unwrap().is_busy());
    held.unlock().unwrap();
}
