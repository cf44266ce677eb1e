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

type Wait = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// A server whose lock `KEY` is held, and clients that wait for it.
struct Waits {
    server: Server,
    holder: Redlock,
    _held: redlock_sync::MutexGuard<redlock_sync::GuardSend>,
    other: Redlock,
    /// Clients that reach no server, and no Sentinel.
    lost: Redlock,
    unled: Redlock,
}

impl Waits {
    fn new() -> Waits {
        let server = Server::start();
        let client = || client(std::slice::from_ref(&server));
        let (holder, other) = (client(), client());
        let away = |url: &str| {
            let builder = Redlock::builder().node(url).unavailable_after(20 * SOON).retry(Retry::every(20 * SOON));
            builder.build().unwrap()
        };
        let (lost, unled) = (away("redis://127.0.0.1:1/"), away("redis+sentinel://127.0.0.1:1/mymaster"));
        let held = holder.mutex(KEY).lock().unwrap().into_send();
        Waits { server, holder, _held: held, other, lost, unled }
    }

    /// A wait of each kind.
    fn each(&self, cancel: &Cancel) -> Vec<(&'static str, Wait)> {
        let locks = |locks: &Redlock| locks.mutex(KEY).cancel(cancel);
        let (in_threads, at_server, beside_it) = (locks(&self.holder), locks(&self.other), locks(&self.other));
        let pausing = locks(&self.other).retry(Retry::every(20 * SOON).max_attempts(3));
        let (without_server, without_sentinel) = (locks(&self.lost), locks(&self.unled));
        let claims = self.other.queue("q").cancel(cancel);
        let latch = self.other.count_down_latch("l", 1).cancel(cancel);
        let arrival = self.lost.count_down_latch("l", 1).cancel(cancel);
        vec![
            ("in the queue of threads", Box::new(move || in_threads.lock().map(drop))),
            ("at the server", Box::new(move || at_server.lock().map(drop))),
            ("behind it", Box::new(move || beside_it.lock().map(drop))),
            ("in a pause", Box::new(move || pausing.lock().map(drop))),
            ("for servers", Box::new(move || without_server.lock().map(drop))),
            ("for Sentinels", Box::new(move || without_sentinel.lock().map(drop))),
            ("for a latch", Box::new(move || latch.wait())),
            ("for a task", Box::new(move || claims.claim().map(drop))),
            ("to count down", Box::new(move || arrival.count_down())),
        ]
    }
}

/// Repeats a wait until it ends at once, on a machine that is busy for a while too.
fn ends_at_once(what: &str, mut wait: impl FnMut(&Cancel) -> Wait) {
    eventually(&format!("a wait {what} ends at once"), SOON, || {
        let cancel = Cancel::new();
        let wait = wait(&cancel);
        let waiter = thread::spawn(|| (wait(), Instant::now()));
        thread::sleep(2 * AT_ONCE);
        let began = Instant::now();
        cancel.cancel();
        let (outcome, ended) = waiter.join().unwrap();
        assert!(matches!(outcome, Err(Error::Cancelled { .. })), "{what}: {outcome:?}");
        ended.duration_since(began) < AT_ONCE
    });
}

#[test]
fn built_16_a_wait_of_each_kind_ends_at_once() {
    let waits = Waits::new();
    for i in 0..waits.each(&Cancel::new()).len() {
        let what = waits.each(&Cancel::new())[i].0;
        ends_at_once(what, |cancel| waits.each(cancel).swap_remove(i).1);
    }
    // Another wait of the client may read the connection.
    let (patient, ends) = (waits.other.clone(), Cancel::new());
    let reader = patient.mutex("b").cancel(&ends);
    let held = waits.holder.mutex("b").lock().unwrap();
    let reader = thread::spawn(move || reader.lock().map(drop));
    eventually("the wait is queued", SOON, || waits.server.waits() == 1);
    ends_at_once("beside a reader", |cancel| waits.each(cancel).swap_remove(1).1);
    ends.cancel();
    assert!(reader.join().unwrap().is_err());
    held.unlock().unwrap();
}

/// A thread that waits with a `Cancel` does not wake to look at it. The system counts how often each thread went to
/// sleep.
#[cfg(target_os = "linux")]
#[test]
fn built_16_a_wait_that_can_be_cancelled_costs_nothing() {
    fn sleeps(task: &std::path::Path) -> u64 {
        let status = std::fs::read_to_string(std::path::Path::new("/proc").join(task).join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }
    let (waits, cancel, (tell, told)) = (Waits::new(), Cancel::new(), mpsc::channel());
    let names: Vec<_> = waits.each(&cancel).into_iter().map(|(name, _)| name).collect();
    thread::scope(|scope| {
        for (name, wait) in waits.each(&cancel) {
            let tell = tell.clone();
            scope.spawn(move || {
                tell.send((name, std::fs::read_link("/proc/thread-self").unwrap())).unwrap();
                assert!(matches!(wait(), Err(Error::Cancelled { .. })));
            });
        }
        let tasks: Vec<_> = told.iter().take(names.len()).collect();
        let mut seen = String::new();
        let rest = redlock_tests::poll(SOON, || {
            let before: Vec<u64> = tasks.iter().map(|(_, task)| sleeps(task)).collect();
            let began = Instant::now();
            thread::sleep(Duration::from_millis(500));
            // The thread that reads has a message each second, and one for its heartbeat.
            let most = 10 + 10 * began.elapsed().as_secs();
            let slept = tasks.iter().zip(before).map(|((name, task), before)| (*name, sleeps(task) - before));
            let slept: Vec<_> = slept.collect();
            seen = format!("{slept:?}");
            slept.iter().all(|(_, slept)| *slept < most).then_some(())
        });
        cancel.cancel();
        assert!(rest.is_some(), "sleeps in half a second: {seen}");
    });
}

/// The end of a client, or of a worker, ends the sleeps of its threads too.
#[test]
fn the_end_of_a_client_ends_a_pause_at_once() {
    let waits = Waits::new();
    eventually("a pause ends at once", SOON, || {
        let locks = client(std::slice::from_ref(&waits.server));
        let pausing = locks.mutex(KEY).retry(Retry::every(20 * SOON).max_attempts(3));
        let waiter = thread::spawn(move || (pausing.lock().map(drop), Instant::now()));
        thread::sleep(2 * AT_ONCE);
        let began = Instant::now();
        locks.shutdown(Duration::ZERO).unwrap();
        let (outcome, ended) = waiter.join().unwrap();
        assert_eq!(outcome, Err(Error::Closed));
        ended.duration_since(began) < AT_ONCE
    });
    eventually("a worker ends at once", SOON, || {
        let worker = waits.other.queue("q").worker(4, |_| ()).unwrap();
        eventually("it waits for a task", SOON, || waits.server.keys().contains(&"{q}:q2:waits".to_owned()));
        let began = Instant::now();
        assert_eq!(worker.stop(SOON), 0);
        began.elapsed() < AT_ONCE
    });
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
