//! Locks that are held and waited for go on after a failover.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use redlock_tests::{Group, Server, Stopwatch, eventually};

use super::{SOON, settings};

/// Beyond the servers' own failover, and what a busy machine may add.
const SLACK: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_secs(5);
/// Outlasts a failover on a machine that is busy.
const LEASE: Duration = Duration::from_secs(12);
/// The longest for which a lock is granted.
const GRANTED: Duration = Duration::from_secs(30);

/// Threads that take locks in every way, and what became of it.
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

/// One group through everything, one thing after the other: a group takes seconds to start.
#[test]
fn locks_go_on_when_the_master_changes() {
    let group = Group::start(2, 3);
    // The first sentinel of the list hangs, from before the first connection on.
    group.sentinels[0].stop();
    let locks = settings(&group).lease(LEASE).build().unwrap();
    let began = Stopwatch::start();
    let mails = locks.queue("mails").lease(LEASE);
    mails.push_all(["first", "second"]).unwrap();
    let job = mails.claim().unwrap();
    let held = locks.mutex("held").lock().unwrap();
    assert!(began.elapsed() < BUSY, "a sentinel that hangs held it up for {:?}", began.elapsed());
    eventually("the replicas have it", SOON, || is_replicated(&group, "held"));
    let lock = locks.mutex("held");
    let waits = thread::spawn(move || lock.lock().map(drop));
    a_master_dies(&group, &locks);
    held.extend(LEASE).unwrap();
    let mut least = held.remaining();
    eventually("it is renewed", SOON, || {
        least = least.min(held.remaining());
        held.remaining() > least + Duration::from_secs(1)
    });
    held.unlock().unwrap();
    waits.join().unwrap().unwrap();
    // A queue goes on as well: its claim, and its tasks.
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

/// It answers, and takes writes, until it is made a replica. Its sentinels do that after some ten seconds, and later if any of them does not answer for one.
fn a_master_is_deposed_and_runs_on(group: &Group, locks: &Redlock) {
    let held = locks.mutex("held on").lock().unwrap();
    eventually("the replica has it", SOON, || is_replicated(group, "held on"));
    let (old, took) = (group.master(), group.fail_over());
    let began = Stopwatch::start();
    let new = group.master();
    let goes_to_the_new_one = || {
        let guard = locks.mutex("next").lock().unwrap();
        let is_there = new.get("next").is_some();
        // One that was taken on the old master is not there to be unlocked, if the client has moved in between.
        let unlocked = guard.unlock();
        if is_there {
            unlocked.unwrap();
        }
        is_there
    };
    eventually("locks are taken on the new master", SOON, goes_to_the_new_one);
    println!("a master was deposed: a new one after {took:?}, the first lock there {:?} later", began.elapsed());
    assert!(began.elapsed() < SLACK + BUSY, "{:?}", began.elapsed());
    assert_eq!(role(old), "master", "it runs on");
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

/// Nor is what it says on connections from before, though it was asked in vain while it hung.
#[test]
fn the_first_calls_after_a_master_hung_go_to_the_new_one() {
    let group = Group::start(1, 1);
    let locks = settings(&group).lease(GRANTED).build().unwrap();
    // On two connections.
    let held = thread::scope(|scope| {
        scope.spawn(|| locks.mutex("other").lock().unwrap().unlock().unwrap());
        locks.mutex("held").lock().unwrap()
    });
    eventually("the replica has it", SOON, || is_replicated(&group, "held"));
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

/// It does not know that it was deposed while it hung: it executes what came meanwhile, and grants a lock.
#[test]
fn a_master_that_hung_is_not_believed_when_it_goes_on() {
    let group = Group::start(1, 1);
    let locks = settings(&group).lease(GRANTED).build().unwrap();
    // A client that does not hear of the failover.
    let alone = redlock_tests::patient().node(group.master().url()).lease(GRANTED).build().unwrap();
    let granted = alone.mutex("granted").lock().unwrap();
    eventually("the replica has it", SOON, || is_replicated(&group, "granted"));
    let (lock, (told, has)) = (locks.mutex("granted"), mpsc::channel());
    let waits = thread::spawn(move || {
        let guard = lock.lock()?;
        told.send(()).unwrap();
        guard.unlock()
    });
    eventually("a thread waits", SOON, || group.master().keys().contains(&"{granted}:queue".to_owned()));
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
    assert!(has.recv_timeout(Duration::from_millis(500)).is_err(), "on the new master it is held");
    eventually("the holder is told", SOON, || matches!(lost.check(), Err(Error::Lost { .. })));
    taken.unlock().unwrap();
    new.del("granted");
    waits.join().unwrap().unwrap();
}
