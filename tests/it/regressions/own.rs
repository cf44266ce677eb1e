use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, LockToken, Mutex, Redlock, SemaphorePermit};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually};

use crate::handover::rig::{Rig, SLACK, SOON, brisk, for_sizes, ms};
use crate::kinds::{Kind, each_kind};

/// Three holds of this thread that each end in less than a second.
fn ends_by_itself(lock: Mutex) -> [Mutex; 3] {
    [lock.clone().renew(false), lock.clone().max_renewals(0), lock.lease(ms(5000)).max_hold(ms(900))]
}

fn a_thread_waits_for_its_own_hold_to_end<K: Kind>() {
    let rig = Rig::start(1);
    let locks = brisk(&rig.urls(), ms(900));
    for own in ends_by_itself(locks.mutex("order:42")) {
        let start = Stopwatch::start();
        let held = own.lock().unwrap();
        let wanted = K::new(&locks, "order:42");
        // This limit is too short, because it ends before the hold does.
        match wanted.try_lock_for(ms(50)).err() {
            Some(Error::Busy { by_this_thread: true, expires_in: Some(left), .. }) => assert!(left <= ms(900)),
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < ms(900), "the call did not fail at once");
        let guard = wanted.try_lock_for(ms(5000)).unwrap();
        assert!(start.elapsed() < ms(900) + SLACK, "{:?}", start.elapsed());
        assert!(held.check().is_err_and(|error| error.is_lost()));
        guard.check().unwrap();
        K::unlock(guard).unwrap();
        assert!(held.unlock().unwrap_err().is_lost());
        let held = own.lock().unwrap();
        K::unlock(wanted.lock().unwrap()).unwrap();
        assert!(held.unlock().is_err_and(|error| error.is_lost()));
    }
}

fn a_thread_is_told_that_it_is_the_holder<K: Kind>() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let _held = locks.mutex("order:42").lock().unwrap();
    let wanted = K::new(&locks, "order:42");
    for error in [wanted.try_lock().err().unwrap(), wanted.try_lock_for(ms(60_000)).err().unwrap()] {
        assert!(error.is_busy() && error.to_string().contains("this thread"), "{error}");
    }
    assert!(matches!(wanted.lock().err(), Some(Error::WouldDeadlock { .. })));
    let other = K::new(&rig.client(), "order:42").try_lock().err().unwrap();
    assert!(other.to_string().contains("another holder"), "{other}");
}

/// The outer code believes that it holds the lock. So the mutex reports the loss, not that the thread would wait for
/// itself.
#[test]
fn a_mutex_behind_a_lost_reentrant_lock_is_lost_too() {
    let rig = Rig::start(1);
    let locks = brisk(&rig.urls(), ms(900));
    let outer = locks.reentrant_mutex("order:42").lock().unwrap();
    assert!(rig.servers[0].del("order:42"));
    eventually("the loss is noticed", SOON, || outer.check().is_err());
    let wanted = locks.mutex("order:42");
    for outcome in [wanted.lock(), wanted.try_lock(), wanted.try_lock_for(ms(50))] {
        assert!(outcome.err().is_some_and(|error| error.is_lost()));
    }
    assert!(outer.unlock().unwrap_err().is_lost());
    wanted.lock().unwrap().unlock().unwrap();
}

each_kind!(a_thread_waits_for_its_own_hold_to_end, a_thread_is_told_that_it_is_the_holder);

/// Takes a lock, and returns a closure that releases it.
type Take = fn(&Redlock) -> Box<dyn FnOnce()>;

/// The hold keeps its place in the queue of this process, so the thread would wait for itself there.
#[test]
fn a_permit_with_the_name_of_a_lock_of_this_thread_is_refused() {
    let holds: [Take; 3] = [
        |locks| {
            let held = locks.mutex("order:42").lock().unwrap();
            Box::new(|| held.unlock().unwrap())
        },
        |locks| {
            let held = locks.reentrant_mutex("order:42").lock().unwrap();
            Box::new(|| _ = held.unlock().unwrap())
        },
        |locks| {
            let held = locks.rw_lock("order:42").write().unwrap();
            Box::new(|| _ = held.unlock().unwrap())
        },
    ];
    for_sizes(&[1, 3], |rig| {
        let many = if rig.servers.len() == 1 { 2 } else { 1 };
        for hold in holds {
            let (locks, (tell, told)) = (rig.client(), mpsc::channel());
            thread::spawn(move || {
                let release = hold(&locks);
                let permits = locks.semaphore("order:42", 2);
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

/// If the key is deleted by hand, other processes get the lock at once. Waiting threads of the holder's client must get
/// it soon too.
#[test]
fn a_key_that_is_deleted_by_hand_ends_the_wait_of_threads_of_the_same_client() {
    let server = Server::start();
    let locks = Redlock::builder().node(server.url()).lease(Duration::from_secs(60)).build().unwrap();
    for renews in [false, true] {
        let lock = locks.mutex("order:42").renew(renews);
        let held = lock.lock().unwrap();
        let took = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = lock.try_lock_for(Duration::from_secs(30)).unwrap();
                let at = Instant::now();
                guard.unlock().unwrap();
                at
            });
            thread::sleep(Duration::from_millis(100));
            let deleted = Instant::now();
            assert!(server.del("order:42"));
            waiter.join().unwrap() - deleted
        });
        assert!(took < Duration::from_secs(15), "renews: {renews}, {took:?}");
        assert!(held.check().unwrap_err().is_lost());
    }
}

/// The wait must not fail while the server does not answer, because the lock of the other kind may be released
/// meanwhile.
#[test]
fn a_wait_behind_a_lock_of_another_kind_goes_on_while_the_server_does_not_answer() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = redlock_tests::open(proxy.url());
    let held = locks.mutex("order:42").lock().unwrap();
    let away = proxy.on("acquire", Act::Error("LOADING the server is away".into()));
    thread::scope(|scope| {
        let waiter =
            scope.spawn(|| locks.rw_lock("order:42").try_write_for(SOON).map(redlock_sync::RwLockWriteGuard::unlock));
        away.wait_hit(SOON);
        held.unlock().unwrap();
        waiter.join().unwrap().unwrap().unwrap();
    });
}

/// `catch_unwind` accepts clients, handles and guards.
#[test]
fn clients_and_guards_are_unwind_safe() {
    fn is_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_safe::<(Redlock, Mutex, redlock_sync::ReentrantMutex, redlock_sync::RwLock, redlock_sync::Semaphore)>();
    is_safe::<(redlock_sync::MultiLock, redlock_sync::CountDownLatch, redlock_sync::Queue)>();
    is_safe::<(redlock_sync::MutexGuard, redlock_sync::ReentrantMutexGuard, redlock_sync::MultiLockGuard)>();
    is_safe::<(redlock_sync::RwLockReadGuard, redlock_sync::RwLockWriteGuard, redlock_sync::SemaphorePermit)>();
    let server = Server::start();
    let locks = Redlock::open(server.url()).unwrap();
    let guard = locks.mutex("order:42").lock().unwrap();
    let panicked = catch_unwind(|| {
        guard.check().unwrap();
        locks.mutex("order:43").lock().map(|_held| panic!("while it is held")).unwrap()
    });
    assert!(panicked.is_err() && server.get("order:43").is_none());
    guard.unlock().unwrap();
}

/// If an id could be adopted as a token, then the guard would lose its lock, although its holder never gave it away.
#[test]
fn the_id_of_a_guard_is_no_token() {
    let server = Server::start();
    let locks = Redlock::open(server.url()).unwrap();
    let guard = locks.mutex("order:42").lock().unwrap();
    let id = guard.id().as_str().to_owned();
    assert!(matches!(id.parse::<LockToken>(), Err(Error::Config { .. })));
    let token = guard.into_token().unwrap();
    assert_ne!(token.as_str(), id);
    assert_eq!(server.get("order:42"), Some(id));
    let adopted = locks.mutex("order:42").adopt(&token.as_str().parse().unwrap()).unwrap();
    adopted.unlock().unwrap();
}
