//! Held locks and waits survive a failover.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock};
use redlock_tests::{Group, Server, Stopwatch, eventually};

use super::{SOON, settings};

/// The time that clients may need after the servers' failover, and the time that a busy machine may add.
const SLACK: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_secs(5);
/// A lease that outlasts a failover on a busy machine.
const LEASE: Duration = Duration::from_secs(12);
/// The longest grant of a lock.
const GRANTED: Duration = Duration::from_secs(30);

/// Threads that take locks in each way, and the outcomes.
#[derive(Default)]
struct Crowd {
    is_over: AtomicBool,
    locked: AtomicUsize,
    errors: Mutex<HashSet<String>>,
}

impl Crowd {
    fn work(&self, locks: &Redlock, i: usize) {
        let lock = locks.mutex(format!("lock {}", i % 10));
        while !self.is_over.load(Ordering::SeqCst) {
            let done = match i % 3 {
                0 => lock.lock().and_then(|guard| guard.check().and(guard.unlock())),
                1 => lock.try_lock_for(Duration::from_millis(500)).and_then(|guard| {
                    thread::sleep(Duration::from_millis(30));
                    guard.unlock()
                }),
                _ => lock.lock().and_then(|guard| guard.extend(LEASE).and(guard.unlock())),
            };
            match done {
                Ok(()) => _ = self.locked.fetch_add(1, Ordering::SeqCst),
                Err(
                    Error::Busy { .. } | Error::Unavailable { .. } | Error::Unconfirmed { .. } | Error::Lost { .. },
                ) => {}
                Err(other) => _ = self.errors.lock().unwrap().insert(other.to_string()),
            }
        }
    }

    fn goes_on(&self) {
        let before = self.locked.load(Ordering::SeqCst);
        eventually("a thread has locked", SOON, || self.locked.load(Ordering::SeqCst) > before);
    }
}

fn is_replicated(group: &Group, key: &str) -> bool {
    group.replicas().iter().all(|replica| replica.get(key).is_some())
}

/// One test has all steps, one after the other, because a group takes seconds to start.
#[test]
fn locks_go_on_when_the_master_changes() {
    let group = Group::start(2, 3);
    // The first Sentinel of the list hangs before the client's first connection.
    group.sentinels[0].stop();
    let locks = settings(&group).lease(LEASE).build().unwrap();
    let began = Stopwatch::start();
    let mails = locks.queue("mails").lease(LEASE);
    mails.push_all(["first", "second"]).unwrap();
    let job = mails.claim().unwrap();
    let held = locks.mutex("held").lock().unwrap();
    assert!(began.elapsed() < BUSY, "the Sentinel that hangs delayed the calls by {:?}", began.elapsed());
    eventually("the replicas have the key", SOON, || is_replicated(&group, "held"));
    let lock = locks.mutex("held");
    let waits = thread::spawn(move || lock.lock().map(drop));
    a_master_dies(&group, &locks);
    held.extend(LEASE).unwrap();
    let mut least = held.remaining();
    eventually("the lock is renewed", SOON, || {
        least = least.min(held.remaining());
        held.remaining() > least + Duration::from_secs(1)
    });
    held.unlock().unwrap();
    waits.join().unwrap().unwrap();
    // The queue's claim and its tasks survive too.
    job.extend(LEASE).unwrap();
    job.ack().unwrap();
    let job = mails.try_claim_for(SOON).unwrap().unwrap();
    assert_eq!(job.body(), b"second");
    job.ack().unwrap();
    assert!(mails.is_empty().unwrap());
    group.sentinels[0].cont();
    a_master_is_deposed_and_runs_on(&group, &locks);
}

fn a_master_dies(group: &Group, locks: &Redlock) {
    let crowd = Arc::new(Crowd::default());
    let threads: Vec<_> = (0..50)
        .map(|i| {
            let (crowd, locks) = (Arc::clone(&crowd), locks.clone());
            thread::spawn(move || crowd.work(&locks, i))
        })
        .collect();
    crowd.goes_on();
    let (old, began) = (group.master(), Stopwatch::start());
    old.kill();
    group.moved_from(old);
    let servers = began.elapsed();
    crowd.goes_on();
    let clients = began.elapsed();
    println!("a master was killed: a new one after {servers:?}, the first lock after {clients:?}");
    assert!(clients < servers.by_clock() + SLACK + BUSY, "{clients:?} after {servers:?}");
    crowd.is_over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*crowd.errors.lock().unwrap(), HashSet::new());
}

/// The old master runs on and accepts writes until it becomes a replica. The Sentinels make it one after about ten
/// seconds, or later if any of them does not answer for a second.
fn a_master_is_deposed_and_runs_on(group: &Group, locks: &Redlock) {
    let held = locks.mutex("held on").lock().unwrap();
    eventually("the replica has the key", SOON, || is_replicated(group, "held on"));
    let (old, took) = (group.master(), group.fail_over());
    let began = Stopwatch::start();
    let new = group.master();
    let goes_to_the_new_one = || {
        let guard = locks.mutex("next").lock().unwrap();
        let is_there = new.get("next").is_some();
        // If the client changed the master after it locked, then the new master does not have this lock, and `unlock`
        // fails.
        let unlocked = guard.unlock();
        if is_there {
            unlocked.unwrap();
        }
        is_there
    };
    eventually("locks are taken on the new master", SOON, goes_to_the_new_one);
    println!("a master was deposed: a new one after {took:?}, the first lock there {:?} later", began.elapsed());
    assert!(began.elapsed() < SLACK + BUSY, "{:?}", began.elapsed());
    assert_eq!(role(old), "master", "the old master is already a replica");
    held.extend(LEASE).unwrap();
    assert!(new.pttl("held on") > Some(LEASE / 2));
    held.unlock().unwrap();
    assert!(old.get("held on").is_some() && new.get("held on").is_none());
    old.replica_of(new);
    eventually("the old one is a replica", SOON, || role(old) == "slave" && old.get("held on").is_none());
    locks.mutex("next").lock().unwrap().unlock().unwrap();
}

fn role(server: &Server) -> String {
    server.info("role").unwrap()
}

/// The regular renewal comes after minutes, so only the change of the master can cause the one that is seen.
#[test]
fn locks_are_renewed_as_soon_as_the_master_changes() {
    const LONG: Duration = Duration::from_secs(600);
    let group = Group::start(1, 3);
    let locks = settings(&group).lease(LONG).build().unwrap();
    let (held, began) = (locks.mutex("held").lock().unwrap(), Instant::now());
    eventually("the replica has the key, and is older", SOON, || {
        is_replicated(&group, "held") && began.elapsed() > Duration::from_secs(3)
    });
    group.fail_over();
    let new = group.master();
    // The first lease leaves less than this.
    let least = || LONG.saturating_sub(began.elapsed()) + Duration::from_secs(1);
    eventually("the new master renews the lock", SOON, || new.pttl("held") > Some(least()));
    held.unlock().unwrap();
}

/// The old master hung, and the client asked it in vain. Once it continues, the client must not believe its replies on
/// old connections.
#[test]
fn the_first_calls_after_a_master_hung_go_to_the_new_one() {
    let group = Group::start(1, 1);
    let locks = settings(&group).lease(GRANTED).build().unwrap();
    // The two threads use two connections.
    let held = thread::scope(|scope| {
        scope.spawn(|| locks.mutex("other").lock().unwrap().unlock().unwrap());
        locks.mutex("held").lock().unwrap()
    });
    eventually("the replica has the key", SOON, || is_replicated(&group, "held"));
    let old = group.master();
    old.stop();
    assert!(locks.mutex("next").try_lock().unwrap_err().is_unavailable());
    let new = group.moved_from(old);
    old.cont();
    held.unlock().unwrap();
    assert_eq!(new.get("held"), None);
    let next = locks.mutex("next").lock().unwrap();
    assert!(new.get("next").is_some());
    next.unlock().unwrap();
}

/// The old master does not know that it was deposed while it hung. It executes the calls that arrived meanwhile, and
/// grants a lock.
#[test]
fn a_master_that_hung_is_not_believed_when_it_goes_on() {
    let group = Group::start(1, 1);
    let locks = settings(&group).lease(GRANTED).build().unwrap();
    // This client connects to the master directly, so it does not learn of the failover.
    let alone = redlock_tests::patient().node(group.master().url()).lease(GRANTED).build().unwrap();
    let granted = alone.mutex("granted").lock().unwrap();
    eventually("the replica has the key", SOON, || is_replicated(&group, "granted"));
    let (lock, (told, has)) = (locks.mutex("granted"), mpsc::channel());
    let waits = thread::spawn(move || {
        let guard = lock.lock()?;
        told.send(()).unwrap();
        guard.unlock()
    });
    eventually("a thread waits", SOON, || group.master().keys().contains(&"{granted}:waits".to_owned()));
    let (old, lost) = group.apart(|master| {
        let lost = locks.mutex("lost").lease(LEASE / 2).lock().unwrap();
        master.stop();
        (master, lost)
    });
    assert!(matches!(granted.unlock(), Err(Error::Unconfirmed { .. })));
    let new = group.moved_from(old);
    let taken = settings(&group).build().unwrap().mutex("lost").lock().unwrap();
    eventually("the client knows", SOON, || locks.mutex("other").try_lock().is_ok_and(|guard| guard.unlock().is_ok()));
    old.cont();
    eventually("it grants the lock", SOON, || old.get("granted").is_none_or(|token| token.contains(":granted:")));
    assert!(has.recv_timeout(Duration::from_millis(500)).is_err(), "the waiter took the old master's grant");
    eventually("check() reports the loss", SOON, || matches!(lost.check(), Err(Error::Lost { .. })));
    taken.unlock().unwrap();
    new.del("granted");
    waits.join().unwrap().unwrap();
}
