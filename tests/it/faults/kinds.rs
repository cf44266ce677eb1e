//! Faults of the kinds of lock other than the mutex. The test names have the numbers of "Other kinds of lock" in
//! `redlock-sync/src/guarantees.md`.
//!
//! Attempts, rounds, votes, renewals and releases use the same code for all kinds of lock. The tests `kind_01` check
//! this on every run, with readers and semaphores of several permits. With the feature `kinds`, the fault tests of
//! mutexes also run for the other kinds with one holder.

use std::ops::Deref;
use std::time::Duration;

use redlock_sync::testing::Memory;
use redlock_sync::{__private, Error, Lease, LeaseState, LostReason, Redlock};
use redlock_sync::{RwLockReadGuard, RwLockWriteGuard, SemaphorePermit};
use redlock_tests::{Act, Proxy, Server, eventually};

use crate::kinds::{Kind, OfOneKey, OfOneKeyGuard};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(30);

/// A guard of any of these kinds.
trait Guard: Deref<Target = Lease> {
    fn end(self: Box<Self>) -> Result<(), Error>;
}

impl Guard for SemaphorePermit {
    fn end(self: Box<Self>) -> Result<(), Error> {
        self.release()
    }
}

impl Guard for RwLockReadGuard {
    fn end(self: Box<Self>) -> Result<(), Error> {
        self.unlock().map(drop)
    }
}

impl Guard for RwLockWriteGuard {
    fn end(self: Box<Self>) -> Result<(), Error> {
        self.unlock().map(drop)
    }
}

impl Guard for OfOneKeyGuard {
    fn end(self: Box<Self>) -> Result<(), Error> {
        OfOneKey::unlock(*self)
    }
}

type Held = Box<dyn Guard>;
type Take = fn(&Redlock, &str) -> Result<Held, Error>;

/// How a lock of each kind is taken.
const KINDS: [(&str, Take); 4] = [
    ("permit", |locks, key| Ok(Box::new(locks.semaphore(key, 2).acquire()?))),
    ("reader", |locks, key| Ok(Box::new(locks.rw_lock(key).read()?))),
    ("writer", |locks, key| Ok(Box::new(locks.rw_lock(key).write()?))),
    ("several", |locks, key| Ok(Box::new(OfOneKey::new(locks, key).lock()?))),
];

/// One lock of each kind. The key has the name of the kind.
fn all(locks: &Redlock) -> Vec<(&'static str, Held)> {
    KINDS.map(|(kind, take)| (kind, take(locks, kind).unwrap_or_else(|error| panic!("{kind}: {error}")))).into()
}

/// Releases each guard. The release of a guard that no longer holds its lock must fail.
fn end(all: Vec<(&'static str, Held)>, is_held: bool) {
    for (kind, held) in all {
        let ended = held.end();
        assert_eq!(ended.is_ok(), is_held, "{kind}: {ended:?}");
    }
}

fn in_memory(memory: &Memory) -> Redlock {
    memory.build(Redlock::builder().node_timeout(Duration::from_secs(5)).unavailable_after(Duration::ZERO)).unwrap()
}

/// Whether each node has the key.
fn has(memory: &Memory, nodes: usize, key: &str) -> Vec<bool> {
    (1..=nodes).map(|node| __private::command(memory, node, &["EXISTS", key]) == ["1"]).collect()
}

/// Faults 10 and 11.
#[test]
fn kind_01_a_minority_may_be_away_and_a_majority_may_not() {
    let memory = Memory::new(3);
    let locks = in_memory(&memory);
    memory.take_away(1);
    let held = all(&locks);
    for (kind, lease) in &held {
        lease.extend(LEASE).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(lease.fencing_token().unwrap() > 0, "{kind}");
    }
    for _ in 0..3 {
        memory.advance(LEASE / 2);
        assert!(held.iter().all(|(_, lease)| lease.state() == LeaseState::Held), "a lease was not renewed");
    }
    end(held, true);
    assert!(KINDS.iter().all(|(kind, _)| has(&memory, 3, kind)[1..] == [false; 2]));
    let held = all(&locks);
    memory.take_away(2);
    for (kind, take) in KINDS {
        assert!(take(&locks, "another").err().unwrap().is_unavailable(), "{kind}");
    }
    // The first step makes a renewal fail. The second one passes the end of the lease.
    memory.advance(LEASE / 2);
    memory.advance(LEASE);
    for (kind, lease) in &held {
        assert_eq!(lease.check().unwrap_err().lost_reason(), Some(LostReason::Unreachable), "{kind}");
    }
    memory.bring_back(1);
    memory.bring_back(2);
    end(held, false);
    end(all(&locks), true);
}

/// Faults 2, 12 and 38: keys that are deleted, and leases that expire.
#[test]
fn kind_01_what_the_servers_lose_is_lost_or_filled_in() {
    for nodes in [1, 3] {
        let memory = Memory::new(nodes);
        let locks = in_memory(&memory);
        let held = all(&locks);
        if nodes > 1 {
            for (kind, _) in &held {
                _ = __private::command(&memory, 2, &["DEL", kind]);
            }
            memory.advance(LEASE / 2);
            for (kind, lease) in &held {
                lease.check().unwrap_or_else(|error| panic!("{kind}: {error}"));
                assert_eq!(has(&memory, nodes, kind), [true; 3], "{kind}");
            }
        }
        for (kind, _) in &held {
            memory.lose(kind);
        }
        memory.advance(LEASE / 2);
        for (kind, lease) in &held {
            assert_eq!(lease.check().unwrap_err().lost_reason(), Some(LostReason::Deleted), "{kind}");
        }
        end(held, false);
        let held = all(&locks);
        memory.advance(2 * LEASE);
        assert!(held.iter().all(|(_, lease)| lease.check().unwrap_err().lost_reason() == Some(LostReason::Expired)));
        drop(all(&in_memory(&memory)));
    }
}

/// Faults 5, 6 and 7.
#[test]
fn kind_01_connections_break() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(2)).build().unwrap();
    end(all(&locks), true);
    for (kind, take) in KINDS {
        for act in [Act::ResetBefore, Act::ResetAfter, Act::CutReply(2)] {
            for command in ["acquire", "extend", "release"] {
                let struck = proxy.on(command, act.clone());
                let held = take(&locks, kind).unwrap_or_else(|error| panic!("{kind}: {error}"));
                held.extend(LEASE * 2).unwrap_or_else(|error| panic!("{kind}: {error}"));
                held.end().unwrap_or_else(|error| panic!("{kind}: {error}"));
                assert_eq!(struck.hits(), 1, "{kind}: {command}");
                eventually("nothing is left", SOON, || server.keys().iter().all(|key| key.ends_with(":waits")));
            }
        }
    }
}

/// Fault 6: the client repeats a release that no server has confirmed.
#[test]
fn kind_01_a_release_is_repeated() {
    let memory = Memory::new(1);
    let locks = memory.build(Redlock::builder().node_timeout(Duration::from_millis(100))).unwrap();
    let held = all(&locks);
    memory.take_away(1);
    end(held, false);
    memory.bring_back(1);
    let is_free = || KINDS.iter().all(|(kind, _)| has(&memory, 1, kind) == [false]);
    eventually("all are released", SOON, || {
        memory.advance(Duration::from_millis(100));
        is_free()
    });
}

/// This test covers all kinds in `KINDS`, and a release that keeps a permit for its minimum hold. Downgrades and
/// latches have further cases in their own files.
#[test]
fn kind_08_a_full_server_takes_no_new_lock_and_keeps_those_that_are_held() {
    let server = Server::start();
    let locks = redlock_tests::patient().node(server.url()).unavailable_after(Duration::ZERO).build().unwrap();
    let held = all(&locks);
    let kept = locks.semaphore("kept", 2).min_hold(SOON / 2).acquire().unwrap();
    server.fill();
    for (kind, take) in KINDS {
        assert!(take(&locks, "another").err().unwrap().is_unavailable(), "{kind}");
    }
    for (kind, lease) in &held {
        lease.extend(LEASE * 2).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    end(held, true);
    kept.release().unwrap();
    assert!(KINDS.iter().all(|(kind, _)| server.pttl(kind).is_none()));
    server.unfill();
    drop(all(&locks));
}

#[test]
fn kind_10_the_end_of_a_client_ends_holds_and_waits_of_each_kind() {
    for nodes in [1, 3] {
        let memory = Memory::new(nodes);
        let (locks, others) = (in_memory(&memory), in_memory(&memory));
        let held = all(&locks);
        assert_eq!(locks.unlock_all().unwrap().given_up.len(), KINDS.len());
        for (kind, lease) in &held {
            assert_eq!(lease.check().unwrap_err().lost_reason(), Some(LostReason::Revoked), "{kind}");
        }
        drop(held);
        let held = all(&locks);
        // Other clients hold these locks, so each attempt below has to wait.
        let blocked = KINDS.map(|(kind, take)| {
            let key = format!("{kind}:taken");
            let blocking: Vec<Held> = match kind {
                "permit" => (0..2).map(|_| take(&others, &key).unwrap()).collect(),
                "several" => vec![take(&others, &key).unwrap()],
                _ => vec![Box::new(others.rw_lock(&key).write().unwrap())],
            };
            (key, blocking)
        });
        std::thread::scope(|scope| {
            let locks = &locks;
            let wait = |(kind, take): (&'static str, Take)| {
                (kind, scope.spawn(move || take(locks, &format!("{kind}:taken")).map(drop)))
            };
            let waiting = KINDS.map(wait);
            let latch = scope.spawn(|| locks.count_down_latch("latch", 1).wait());
            let waits = || {
                let keys = __private::command(&memory, 1, &["KEYS", "*"]);
                let is_wait = |key: &&String| {
                    [":waits", ":permit_queue", ":readers", ":writers", ":latch_waits"]
                        .iter()
                        .any(|end| key.ends_with(end))
                };
                keys.iter().filter(is_wait).count()
            };
            eventually("all wait", SOON, || waits() == KINDS.len() + 1);
            assert_eq!(locks.shutdown(Duration::ZERO).unwrap().given_up.len(), KINDS.len());
            for (kind, waiting) in waiting {
                assert_eq!(waiting.join().unwrap(), Err(Error::Closed), "{kind}");
            }
            assert_eq!(latch.join().unwrap(), Err(Error::Closed));
            eventually("no wait is left", SOON, || waits() == 0);
        });
        assert!(held.iter().all(|(_, lease)| lease.check().unwrap_err().is_lost()));
        assert!(blocked.iter().all(|(_, held)| held.iter().all(|lease| lease.check().is_ok())));
        assert!(KINDS.iter().all(|(_, take)| take(&locks, "another").is_err_and(|error| error == Error::Closed)));
        assert_eq!(locks.count_down_latch("latch", 1).count_down(), Err(Error::Closed));
    }
}

/// When a latch's lifetime is over, the latch is closed again, and another kind of lock can use its name.
#[test]
fn kind_06_the_life_of_a_latch_ends() {
    for nodes in [1, 3] {
        let memory = Memory::new(nodes);
        let latch = in_memory(&memory).count_down_latch("import", 2).lifetime(LEASE);
        latch.count_down_as("a").unwrap();
        memory.advance(LEASE / 2);
        latch.count_down_as("b").unwrap();
        assert!(latch.is_open().unwrap());
        memory.advance(LEASE * 3 / 4);
        assert!(in_memory(&memory).count_down_latch("import", 2).is_open().unwrap(), "its last arrival is too old");
        memory.advance(LEASE);
        assert_eq!((latch.is_open().unwrap(), latch.arrived().unwrap()), (false, 0));
        drop(in_memory(&memory).mutex("import").lock().unwrap());
    }
}
