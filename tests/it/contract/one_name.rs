//! Two kinds of lock with the same name: the second one is refused, and the first one is unchanged.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_sync::{
    Error, Lease, MutexGuard, Redlock, ReentrantMutexGuard, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit,
};

use redlock_tests::{Act, Proxy, Server, Stopwatch};

use super::rig::{SOON, open};
use crate::handover::rig::for_sizes;
use crate::place::{Place, each_place};

const KEY: &str = "order:42";
/// A time that is longer than the default lease.
const LONGER: Duration = Duration::from_secs(60);

/// Each kind, and a name for the type of its key. Both sides of a read-write lock share a key.
const KINDS: [(&str, &str); 6] = [
    ("mutex", "string"),
    ("reentrant", "string"),
    ("permit", "permits"),
    ("reader", "holders"),
    ("writer", "holders"),
    ("latch", "arrivals"),
];

/// A lock of any kind, or an arrival at a latch.
enum Held {
    Mutex(MutexGuard),
    Reentrant(ReentrantMutexGuard),
    Permit(SemaphorePermit),
    Reader(RwLockReadGuard),
    Writer(RwLockWriteGuard),
    Arrival(redlock_sync::CountDownLatch),
}

impl Held {
    fn take(locks: &Redlock, kind: &str) -> Result<Held, Error> {
        match kind {
            "mutex" => locks.mutex(KEY).lock().map(Held::Mutex),
            "reentrant" => locks.reentrant_mutex(KEY).lock().map(Held::Reentrant),
            "permit" => locks.semaphore(KEY, 2).acquire().map(Held::Permit),
            "reader" => locks.rw_lock(KEY).read().map(Held::Reader),
            "writer" => locks.rw_lock(KEY).write().map(Held::Writer),
            _ => {
                let latch = locks.count_down_latch(KEY, 2);
                latch.count_down()?;
                Ok(Held::Arrival(latch))
            }
        }
    }

    fn try_take(locks: &Redlock, kind: &str) -> Result<(), Error> {
        match kind {
            "mutex" => locks.mutex(KEY).try_lock().map(drop),
            "reentrant" => locks.reentrant_mutex(KEY).try_lock().map(drop),
            "permit" => locks.semaphore(KEY, 2).try_acquire().map(drop),
            "reader" => locks.rw_lock(KEY).try_read().map(drop),
            "writer" => locks.rw_lock(KEY).try_write().map(drop),
            _ => locks.count_down_latch(KEY, 2).reset(),
        }
    }

    fn take_for(locks: &Redlock, kind: &str, wait: Duration) -> Result<(), Error> {
        match kind {
            "mutex" => locks.mutex(KEY).try_lock_for(wait).map(drop),
            "reentrant" => locks.reentrant_mutex(KEY).try_lock_for(wait).map(drop),
            "permit" => locks.semaphore(KEY, 2).try_acquire_for(wait).map(drop),
            "reader" => locks.rw_lock(KEY).try_read_for(wait).map(drop),
            "writer" => locks.rw_lock(KEY).try_write_for(wait).map(drop),
            _ => locks.count_down_latch(KEY, 2).wait_for(wait),
        }
    }

    fn look(locks: &Redlock, kind: &str) -> Result<(), Error> {
        match kind {
            "mutex" => locks.mutex(KEY).inspect().map(drop),
            "reentrant" => locks.reentrant_mutex(KEY).inspect().map(drop),
            "permit" => locks.semaphore(KEY, 2).inspect().map(drop),
            "reader" => locks.rw_lock(KEY).inspect().map(drop),
            "writer" => locks.rw_lock(KEY).is_locked_exclusive().map(drop),
            _ => locks.count_down_latch(KEY, 2).is_open().map(drop),
        }
    }

    /// Extends the lease and checks it. For a latch, checks that the arrival still counts.
    fn lasts(&self) -> Result<(), Error> {
        let lease: &Lease = match self {
            Held::Mutex(guard) => guard,
            Held::Reentrant(guard) => guard,
            Held::Permit(permit) => permit,
            Held::Reader(guard) => guard,
            Held::Writer(guard) => guard,
            Held::Arrival(latch) => return latch.arrived().map(|arrived| assert_eq!(arrived, 1)),
        };
        lease.extend(LONGER).and_then(|()| lease.check())
    }

    fn end(self) -> Result<(), Error> {
        match self {
            Held::Mutex(guard) => guard.unlock(),
            Held::Reentrant(guard) => guard.unlock().map(drop),
            Held::Permit(permit) => permit.release(),
            Held::Reader(guard) => guard.unlock().map(drop),
            Held::Writer(guard) => guard.unlock().map(drop),
            Held::Arrival(_) => Ok(()),
        }
    }
}

fn kinds_of_one_name_refuse_each_other<P: Place>() {
    let node = P::one();
    let nodes = std::slice::from_ref(&node);
    let (locks, others) = (open(nodes), open(nodes));
    for (first, key) in KINDS {
        for (second, _) in KINDS.into_iter().filter(|(_, other)| *other != key) {
            let wrong = |outcome: Result<(), Error>, what: &str| {
                let is_wrong = matches!(outcome, Err(Error::WrongType { .. }));
                assert!(is_wrong, "{what} of a {second} beside a {first}: {outcome:?}");
            };
            let held = Held::take(&locks, first).unwrap_or_else(|error| panic!("{first}: {error}"));
            wrong(Held::take(&others, second).map(drop), "an acquire");
            wrong(Held::try_take(&others, second), "a try");
            wrong(Held::look(&others, second), "a look");
            held.lasts().unwrap_or_else(|error| panic!("a {second} broke a {first}: {error}"));
            // Another kind replaces the key while the first lock is held.
            node.del(KEY);
            let next = Held::take(&others, second).unwrap_or_else(|error| panic!("{second}: {error}"));
            wrong(held.lasts(), "a renewal");
            _ = held.end();
            next.lasts().unwrap_or_else(|error| panic!("the end of a {first} broke a {second}: {error}"));
            next.end().unwrap();
            node.del(KEY);
        }
    }
}

/// Threads of one client wait for each other without a request. The second kind must be refused in the holder's thread
/// and in other threads.
fn kinds_of_one_name_refuse_each_other_in_one_client<P: Place>() {
    let node = P::one();
    let locks = open(std::slice::from_ref(&node));
    for (first, key) in KINDS {
        for (second, _) in KINDS.into_iter().filter(|(_, other)| *other != key) {
            let held = Held::take(&locks, first).unwrap_or_else(|error| panic!("{first}: {error}"));
            let is_refused = |whose: &str| {
                let began = Stopwatch::start();
                for outcome in [Held::try_take(&locks, second), Held::take_for(&locks, second, LONGER)] {
                    let is_wrong = matches!(outcome, Err(Error::WrongType { .. }));
                    assert!(is_wrong, "a {second} beside a {first} in {whose}: {outcome:?}");
                }
                assert!(began.elapsed() < LONGER / 2, "a {second} beside a {first} in {whose}");
            };
            is_refused("the same thread");
            std::thread::scope(|scope| scope.spawn(|| is_refused("another thread")).join().unwrap());
            held.lasts().unwrap_or_else(|error| panic!("a {second} broke a {first}: {error}"));
            drop(held);
            node.del(KEY);
        }
    }
}

each_place!(kinds_of_one_name_refuse_each_other, kinds_of_one_name_refuse_each_other_in_one_client);

/// Takes a lock, and returns a closure that releases it.
type Take = fn(&Redlock) -> Box<dyn FnOnce()>;

/// The hold keeps its place in the queue of this process, so the thread would wait for itself there.
#[test]
fn a_permit_with_the_name_of_a_lock_of_this_thread_is_refused() {
    let holds: [Take; 3] = [
        |locks| {
            let held = locks.mutex(KEY).lock().unwrap();
            Box::new(|| held.unlock().unwrap())
        },
        |locks| {
            let held = locks.reentrant_mutex(KEY).lock().unwrap();
            Box::new(|| _ = held.unlock().unwrap())
        },
        |locks| {
            let held = locks.rw_lock(KEY).write().unwrap();
            Box::new(|| _ = held.unlock().unwrap())
        },
    ];
    for_sizes(&[1, 3], |rig| {
        let many = if rig.servers.len() == 1 { 2 } else { 1 };
        for hold in holds {
            let (locks, (tell, told)) = (rig.client(), mpsc::channel());
            thread::spawn(move || {
                let release = hold(&locks);
                let permits = locks.semaphore(KEY, 2);
                let taken = [permits.acquire(), permits.try_acquire_for(SOON * 2), permits.acquire_many(many)];
                release();
                tell.send((taken.map(Result::err), permits.acquire().and_then(SemaphorePermit::release))).unwrap();
            });
            let (errors, later) = told.recv_timeout(SOON).expect("the thread does not wait for itself");
            assert!(errors.iter().all(|error| matches!(error, Some(Error::WrongType { .. }))), "{errors:?}");
            later.unwrap();
        }
    });
}

/// The wait must not fail while the server does not answer, because the lock of the other kind may be released
/// meanwhile.
#[test]
fn a_wait_behind_a_lock_of_another_kind_goes_on_while_the_server_does_not_answer() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = redlock_tests::open(proxy.url());
    let held = locks.mutex(KEY).lock().unwrap();
    let away = proxy.on("acquire", Act::Error("LOADING the server is away".into()));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.rw_lock(KEY).try_write_for(SOON).map(redlock_sync::RwLockWriteGuard::unlock));
        away.wait_hit(SOON);
        held.unlock().unwrap();
        waiter.join().unwrap().unwrap().unwrap();
    });
}
