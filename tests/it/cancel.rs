//! Another thread cancels one wait. The tests cover each place where a thread can wait, and check that nothing is left.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Cancel, Error, Redlock, Retry};
use redlock_tests::{Server, Stopwatch, eventually};

use crate::kinds::Kind;
use crate::place::{Place, each_kind_and_place, each_place};

const KEY: &str = "order:42";
/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// The time within which a cancelled wait ends on an idle machine.
const AT_ONCE: Duration = Duration::from_millis(10);

fn client<P: Place>(nodes: &[P]) -> Redlock {
    P::client(nodes, Redlock::builder().node_timeout(Duration::from_secs(5)))
}

fn is_cancelled<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Cancelled { op: "acquire", key }) if key == KEY)
}

/// Starts a thread that waits for the lock until it is cancelled, and returns the outcome.
fn waiter<K: Kind>(locks: &Redlock, cancel: &Cancel) -> thread::JoinHandle<Result<(), Error>> {
    let lock = K::new(locks, KEY).cancel(cancel);
    thread::spawn(move || lock.lock().and_then(K::unlock))
}

fn built_16_a_wait_at_the_servers_ends<K: Kind, P: Place>() {
    for count in K::NODES {
        let nodes = P::start(*count);
        let (one, other, third) = (client(&nodes), client(&nodes), client(&nodes));
        // The tests skip kinds whose lock several clients can hold at once.
        let held = K::new(&one, KEY).lock().unwrap();
        if K::new(&other, KEY).try_lock().is_ok() {
            return;
        }
        let cancel = Cancel::new();
        let waiter = waiter::<K>(&other, &cancel);
        eventually("the wait is queued", SOON, || nodes[0].waits() == 1);
        let next = thread::spawn(move || K::new(&third, KEY).lock().and_then(K::unlock));
        eventually("the next wait is queued", SOON, || nodes[0].waits() == 2);
        cancel.cancel();
        assert!(is_cancelled(&waiter.join().unwrap()));
        assert!(nodes.iter().all(|node| node.waits() <= 1), "the cancelled wait is still queued");
        held.check().unwrap();
        K::unlock(held).unwrap();
        eventually("the next waiter gets the lock", SOON, || next.is_finished());
        next.join().unwrap().unwrap();
        K::unlock(K::new(&other, KEY).try_lock().unwrap()).unwrap();
    }
}

fn built_16_a_wait_in_the_queue_of_threads_ends<K: Kind, P: Place>() {
    let nodes = P::start(1);
    let (locks, cancel) = (client(&nodes), Cancel::new());
    let held = K::new(&locks, KEY).holder_name("me").lock().unwrap();
    if K::new(&client(&nodes), KEY).try_lock().is_ok() {
        return;
    }
    let waiters: Vec<_> = (0..3).map(|_| waiter::<K>(&locks, &cancel)).collect();
    let patient = waiter::<K>(&locks, &Cancel::new());
    thread::sleep(AT_ONCE);
    cancel.cancel();
    assert!(waiters.into_iter().all(|waiter| is_cancelled(&waiter.join().unwrap())));
    K::unlock(held).unwrap();
    eventually("the other waiter gets the lock", SOON, || patient.is_finished());
    patient.join().unwrap().unwrap();
}

fn built_16_a_pause_ends<K: Kind, P: Place>() {
    let nodes = P::start(1);
    let (one, other) = (client(&nodes), client(&nodes));
    let held = K::new(&one, KEY).lock().unwrap();
    if K::new(&other, KEY).try_lock().is_ok() {
        return;
    }
    let cancel = Cancel::new();
    let counted = K::new(&other, KEY).retry(Retry::every(20 * SOON).max_attempts(3)).cancel(&cancel);
    let waiter = thread::spawn(move || counted.lock().map(drop));
    thread::sleep(AT_ONCE);
    cancel.cancel();
    assert!(is_cancelled(&waiter.join().unwrap()));
    K::unlock(held).unwrap();
}

fn what_is_cancelled_takes_nothing<K: Kind, P: Place>() {
    let nodes = P::start(1);
    let (locks, cancel) = (client(&nodes), Cancel::new());
    let lock = K::new(&locks, KEY).cancel(&cancel);
    let held = lock.lock().unwrap();
    cancel.cancel();
    held.check().unwrap();
    K::unlock(held).unwrap();
    for outcome in [lock.lock(), lock.try_lock(), lock.try_lock_for(SOON)] {
        assert!(is_cancelled(&outcome));
    }
    assert!(!lock.is_locked().unwrap());
}

each_kind_and_place!(held:
    built_16_a_wait_at_the_servers_ends,
    built_16_a_wait_in_the_queue_of_threads_ends,
    built_16_a_pause_ends,
    what_is_cancelled_takes_nothing,
);

/// The release and the cancellation come at the same time. The waiter gets the lock or is cancelled. In both cases,
/// other clients can take the lock afterwards.
fn built_17_what_is_granted_meanwhile_goes_to_others<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let (one, other) = (client(&nodes), client(&nodes));
        for round in 0..40 {
            // In half of the rounds the waiter waits on the servers, and in the other half in the queue of threads.
            let waits = if round % 2 == 0 { &other } else { &one };
            let (held, cancel) = (one.mutex(KEY).lock().unwrap(), Cancel::new());
            let waiter = waiter::<redlock_sync::Mutex>(waits, &cancel);
            if round % 4 == 0 {
                eventually("the wait is queued", SOON, || nodes[0].waits() == 1);
            }
            thread::scope(|scope| {
                scope.spawn(|| cancel.cancel());
                held.unlock().unwrap();
            });
            let outcome = waiter.join().unwrap();
            assert!(outcome.is_ok() || is_cancelled(&outcome), "{outcome:?}");
            let next = one.mutex(KEY).try_lock_for(SOON).unwrap();
            next.unlock().unwrap();
            eventually("no wait is queued", SOON, || nodes.iter().all(|node| node.waits() == 0));
        }
    }
}

fn waits_for_other_things_end<P: Place>() {
    let nodes = P::start(1);
    let (locks, cancel) = (client(&nodes), Cancel::new());
    let held = locks.mutex("b").lock().unwrap().into_send();
    let (tell, told) = mpsc::channel();
    let (latch, queue) = (locks.count_down_latch("l", 1).cancel(&cancel), locks.queue("q").cancel(&cancel));
    let free = client(&nodes).multi_lock(["c", "d"]).cancel(&cancel);
    let multi = client(&nodes).multi_lock(["a", "b"]).cancel(&cancel);
    let tell = |outcome: Result<(), Error>| tell.send(outcome).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| tell(latch.wait()));
        scope.spawn(|| tell(queue.claim().map(drop)));
        scope.spawn(|| tell(multi.lock().map(drop)));
        eventually("one wait is queued", SOON, || nodes[0].waits() > 0);
        cancel.cancel();
    });
    let mut ops: Vec<_> = told
        .try_iter()
        .map(|outcome| match outcome {
            Err(Error::Cancelled { op, .. }) => op,
            // A queue needs a single server, so this call fails on three nodes.
            Err(Error::Config { .. }) => "claim",
            other => panic!("{other:?}"),
        })
        .collect();
    ops.sort_unstable();
    assert_eq!(ops, ["acquire", "claim", "wait for"]);
    assert!(matches!(free.try_lock(), Err(Error::Cancelled { .. })));
    assert!(!locks.mutex("a").is_locked().unwrap());
    held.unlock().unwrap();
}

each_place!(built_17_what_is_granted_meanwhile_goes_to_others, waits_for_other_things_end);

/// The shortest of several durations from the cancellation to the end of the wait.
fn shortest(mut wait: impl FnMut(&Cancel) -> thread::JoinHandle<Instant>) -> Duration {
    let once = |_| {
        let cancel = Cancel::new();
        let waiter = wait(&cancel);
        let began = Instant::now();
        cancel.cancel();
        waiter.join().unwrap().duration_since(began)
    };
    (0..20).map(once).min().unwrap()
}

/// Starts a wait, and returns the time at which the cancelled call returned.
fn ended(lock: redlock_sync::Mutex) -> thread::JoinHandle<Instant> {
    thread::spawn(move || {
        assert!(is_cancelled(&lock.lock()));
        Instant::now()
    })
}

#[test]
fn built_16_a_wait_ends_at_once() {
    let server = Server::start();
    let (one, other) = (client(std::slice::from_ref(&server)), client(std::slice::from_ref(&server)));
    let held = one.mutex(KEY).lock().unwrap().into_send();
    let at_server = shortest(|cancel| {
        let waiter = ended(other.mutex(KEY).cancel(cancel));
        eventually("the wait is queued", SOON, || server.waits() == 1);
        waiter
    });
    let in_queue = shortest(|cancel| {
        let waiter = ended(one.mutex(KEY).cancel(cancel));
        thread::sleep(AT_ONCE);
        waiter
    });
    assert!(at_server < AT_ONCE && in_queue < AT_ONCE, "{at_server:?}, {in_queue:?}");
    held.unlock().unwrap();
}

#[test]
fn built_18_a_wait_for_servers_that_are_away_ends() {
    let cancel = Cancel::new();
    let locks = Redlock::builder().node("redis://127.0.0.1:1/").unavailable_after(20 * SOON).build().unwrap();
    let (lock, latch) = (locks.mutex(KEY).cancel(&cancel), locks.count_down_latch("l", 1).cancel(&cancel));
    let waiters = [thread::spawn(move || lock.lock().map(drop)), thread::spawn(move || latch.count_down())];
    thread::sleep(AT_ONCE);
    cancel.cancel();
    let ends = waiters.map(|waiter| waiter.join().unwrap());
    assert!(is_cancelled(&ends[0]));
    assert!(matches!(&ends[1], Err(Error::Cancelled { op: "count down", .. })), "{:?}", ends[1]);
}

/// The wait is cancelled during a round, which ends first.
#[test]
fn built_18_a_wait_for_a_server_that_hangs_ends_within_a_node_timeout() {
    let (server, timeout, cancel) = (Server::start(), Duration::from_secs(2), Cancel::new());
    let locks =
        Redlock::builder().node(server.url()).node_timeout(timeout).unavailable_after(20 * SOON).build().unwrap();
    locks.mutex("warm-up").lock().unwrap().unlock().unwrap();
    server.stop();
    let waiter = waiter::<redlock_sync::Mutex>(&locks, &cancel);
    thread::sleep(AT_ONCE);
    let began = Stopwatch::start();
    cancel.cancel();
    // After the round, the client needs another one to remove the wait from the queue.
    assert!(is_cancelled(&waiter.join().unwrap()));
    assert!(began.elapsed() < timeout * 5 / 2, "{:?}", began.elapsed());
    server.cont();
    let next = client(std::slice::from_ref(&server)).mutex(KEY).try_lock_for(SOON).unwrap();
    next.unlock().unwrap();
}
