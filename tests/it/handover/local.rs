//! Threads of one client hand the lock to each other without a request. The tests check the order, the limits, and the
//! cases that need an acquisition of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use redlock_sync::{Error, LockId, LostReason, Mutex};
use redlock_tests::{Stopwatch, eventually};

use super::rig::{KEY, Rig, SOON, brisk, for_sizes, ms, settings, this_thread, until_asleep, warm};

/// Threads that wait for the lock. Each sends its number and its token when it has the lock, and releases the lock when
/// the test tells it to.
struct Queue<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    tell: Sender<(usize, LockId)>,
    told: Receiver<(usize, LockId)>,
    go: Vec<Sender<()>>,
    threads: Vec<ScopedJoinHandle<'scope, Result<(), Error>>>,
}

impl<'scope, 'env> Queue<'scope, 'env> {
    fn new(scope: &'scope Scope<'scope, 'env>) -> Queue<'scope, 'env> {
        let (tell, told) = mpsc::channel();
        Queue { scope, tell, told, go: Vec::new(), threads: Vec::new() }
    }

    /// Starts one more thread, and returns once it waits in the queue.
    fn add(&mut self, lock: Mutex) {
        let (i, tell) = (self.go.len(), self.tell.clone());
        let (go, gone) = mpsc::channel();
        let (say_id, id) = mpsc::channel();
        self.go.push(go);
        self.threads.push(self.scope.spawn(move || {
            say_id.send(this_thread()).unwrap();
            let guard = lock.lock()?;
            tell.send((i, guard.id().clone())).unwrap();
            gone.recv().unwrap();
            guard.check().and(guard.unlock())
        }));
        until_asleep(&id.recv().unwrap());
    }

    fn next(&self) -> (usize, LockId) {
        self.told.recv_timeout(SOON).expect("the next thread in the queue gets the lock")
    }

    fn release(&self, i: usize) {
        self.go[i].send(()).unwrap();
    }

    /// Lets all threads take and release the lock one after the other. Returns their numbers and tokens in that order.
    fn drain(self) -> Vec<(usize, LockId)> {
        let order: Vec<_> = (0..self.go.len())
            .map(|_| {
                let (i, id) = self.next();
                assert!(self.told.try_recv().is_err(), "two threads have the lock");
                self.release(i);
                (i, id)
            })
            .collect();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        order
    }
}

#[test]
fn threads_are_handed_the_lock_in_the_order_of_arrival_and_in_silence() {
    for_sizes(&[1, 3], |rig| {
        // At times the holder asks the servers whether other processes wait. It releases the lock if they do not answer
        // within a quarter of the node timeout, so that is long here.
        let locks = settings(rig.proxy_urls()).node_timeout(SOON / 2).build().unwrap();
        warm(&locks);
        let lock = locks.mutex(KEY);
        let first = lock.lock().unwrap();
        let token = first.id().clone();
        let order = thread::scope(|scope| {
            let mut queue = Queue::new(scope);
            (0..10).for_each(|_| queue.add(lock.clone()));
            rig.proxies.iter().for_each(redlock_tests::Proxy::clear_log);
            first.unlock().unwrap();
            queue.drain()
        });
        assert_eq!(order.iter().map(|(i, _)| *i).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        // All threads use one lease, so there is only one release.
        let spoken = rig.proxies[0].count("free") + rig.proxies[0].count("release");
        assert_eq!(spoken, 1, "releases");
        assert!(order.iter().all(|(_, id)| *id == token), "{order:?}");
        rig.assert_free(KEY);
    });
}

/// A thread with other settings, or with settings that count from the acquisition, must acquire the lock itself.
#[test]
fn a_thread_that_wants_other_settings_acquires_by_itself() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let plain = locks.mutex(KEY);
    let other: [(&str, Mutex); 4] = [
        ("another lease", plain.clone().lease(Duration::from_secs(20))),
        ("a retry of its own", plain.clone().retry(redlock_sync::Retry::every(ms(3)))),
        ("an id of its own", plain.clone().holder_name("worker-7")),
        ("no renewal", plain.clone().renew(false)),
    ];
    for (what, other) in other {
        let first = plain.lock().unwrap();
        let token = first.id().clone();
        let ids = thread::scope(|scope| {
            let mut queue = Queue::new(scope);
            queue.add(other.clone());
            queue.add(plain.clone());
            first.unlock().unwrap();
            queue.drain()
        });
        assert_eq!(ids.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1], "{what}");
        assert!(ids[0].1 != token && ids[1].1 != ids[0].1, "handed over to {what}");
    }
    rig.assert_free(KEY);
}

#[test]
fn locks_that_count_from_their_acquisition_are_never_handed_over() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let kinds: [(&str, Mutex); 5] = [
        ("max_hold", locks.mutex("max_hold").max_hold(Duration::from_secs(60))),
        ("min_hold", locks.mutex("min_hold").min_hold(ms(60))),
        ("max_renewals", locks.mutex("max_renewals").max_renewals(3)),
        ("renew", locks.mutex("renew").renew(false)),
        ("plain", locks.mutex("plain")),
    ];
    for (what, lock) in kinds {
        let first = lock.lock().unwrap();
        let token = first.id().clone();
        let ids = thread::scope(|scope| {
            let mut queue = Queue::new(scope);
            (0..3).for_each(|_| queue.add(lock.clone()));
            first.unlock().unwrap();
            queue.drain()
        });
        let mut all: Vec<LockId> = ids.into_iter().map(|(_, id)| id).chain([token]).collect();
        all.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        all.dedup();
        assert_eq!(all.len(), if what == "plain" { 1 } else { 4 }, "{what}: {all:?}");
        eventually("the minimum hold is over", SOON, || rig.holding(what) == 0);
        rig.assert_free(what);
    }
}

/// After a hand-over, the former guard's `on_lost` handler is never called, and its end does not touch the lease.
#[test]
fn the_former_guard_is_inert() {
    let rig = Rig::start(1);
    let lock = brisk(&rig.urls(), ms(900)).mutex(KEY);
    let first = lock.lock().unwrap();
    let token = first.id().clone();
    let told = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&told);
    first.on_lost(move |_| heard.store(true, Ordering::SeqCst));
    thread::scope(|scope| {
        let (tell, ready) = mpsc::channel();
        let lock = lock.clone();
        let mut queue = Queue::new(scope);
        queue.add(lock.clone());
        first.unlock().unwrap();
        let (i, id) = queue.next();
        assert_eq!(id, token);
        // The lease is renewed for the successor, for longer than one lease.
        let start = Stopwatch::start();
        while start.elapsed() < ms(1400) {
            assert_eq!(rig.having(KEY, token.as_str()), 1, "the key disappeared after the hand-over");
            thread::sleep(ms(5));
        }
        rig.servers[0].del(KEY);
        // Another thread takes the lock after the loss. By then the former guard's handler would have been called.
        scope.spawn(move || {
            let guard = lock.lock().unwrap();
            guard.unlock().unwrap();
            tell.send(()).unwrap();
        });
        ready.recv_timeout(SOON).expect("another thread takes the lost lock");
        queue.release(i);
        let end = queue.threads.pop().unwrap().join().unwrap();
        assert!(end.unwrap_err().is_lost());
    });
    assert!(!told.load(Ordering::SeqCst), "the former guard's handler was called for the successor's loss");
    rig.assert_free(KEY);
}

/// A thread gets the lock in one client by a grant, and another thread of that client takes over the lease. The first
/// thread then waits in a second client. The release must notify this second wait.
#[test]
fn a_thread_that_waits_in_another_client_is_a_waiter_of_its_own() {
    let rig = Rig::start(1);
    let lease = Duration::from_secs(5);
    let [one, two, other] = [(); 3].map(|()| brisk(&rig.urls(), lease).mutex(KEY));
    let held = other.lock().unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let first = one.clone();
        let traveller = scope.spawn(move || {
            let guard = first.lock().unwrap();
            assert!(guard.id().holder_name().starts_with("granted:"));
            tell.send(()).unwrap();
            gone.recv().unwrap();
            guard.unlock().unwrap();
            // With the first client, this thread would wait in the queue behind the thread that holds the lock.
            let guard = two.lock().unwrap();
            let at = Instant::now();
            guard.unlock().unwrap();
            at
        });
        rig.until_blocked(0, 1);
        held.unlock().unwrap();
        told.recv_timeout(SOON).unwrap();
        let mut queue = Queue::new(scope);
        queue.add(one.clone());
        go.send(()).unwrap();
        let (i, _) = queue.next();
        rig.until_blocked(0, 1);
        let released = Instant::now();
        queue.release(i);
        let took = traveller.join().unwrap().saturating_duration_since(released);
        assert!(took < ms(1500), "no grant reached the wait, which took {took:?}");
    });
    rig.assert_free(KEY);
}

/// Two threads hand the lease to each other while its renewal falls due. The lease must be renewed for whichever thread
/// holds it.
#[test]
fn a_lease_is_renewed_whenever_it_is_handed_over() {
    let rig = Rig::start(1);
    let lease = ms(900);
    let (rounds, keys) = (2, 4);
    thread::scope(|scope| {
        for key in 0..keys {
            let lock = brisk(&rig.urls(), lease).mutex(format!("{KEY}:{key}"));
            let (long, since) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(Instant::now())));
            for _ in 0..2 {
                let (lock, long, since) = (lock.clone(), long.clone(), since.clone());
                scope.spawn(move || {
                    while long.load(Ordering::SeqCst) < rounds {
                        let guard = lock.lock().unwrap();
                        let mut since = since.lock().unwrap();
                        // If a renewal was due since the last long hold, the thread holds the lock for longer than one
                        // lease.
                        if since.elapsed() > lease / 3 + ms(60) {
                            let end = Instant::now() + lease + ms(200);
                            while Instant::now() < end {
                                guard.check().expect("the lease is renewed");
                                thread::sleep(ms(10));
                            }
                            long.fetch_add(1, Ordering::SeqCst);
                            *since = Instant::now();
                        }
                        drop(since);
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
}

#[test]
fn those_in_line_get_a_lock_that_was_lost() {
    for_sizes(&[1, 3], |rig| {
        let lock = brisk(&rig.urls(), ms(1200)).mutex(KEY);
        let first = lock.lock().unwrap();
        thread::scope(|scope| {
            let mut queue = Queue::new(scope);
            (0..3).for_each(|_| queue.add(lock.clone()));
            rig.servers.iter().for_each(|server| assert!(server.del(KEY)));
            let (i, id) = queue.next();
            assert_ne!(&id, first.id());
            let lost = first.check().unwrap_err().lost_reason();
            assert_eq!(lost, Some(LostReason::Deleted));
            // The unlock of the lost guard leaves the new holder's key in place.
            assert!(first.unlock().unwrap_err().is_lost());
            assert_eq!(rig.having(KEY, id.as_str()), rig.servers.len());
            queue.release(i);
            for _ in 0..2 {
                let (i, _) = queue.next();
                queue.release(i);
            }
            queue.threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        rig.assert_free(KEY);
    });
}

#[test]
fn unlock_all_with_threads_in_line_gives_up_one_lock_and_they_get_it() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.client();
        let lock = locks.mutex(KEY);
        let first = lock.lock().unwrap();
        thread::scope(|scope| {
            let mut queue = Queue::new(scope);
            (0..3).for_each(|_| queue.add(lock.clone()));
            assert_eq!(locks.unlock_all().unwrap().given_up.len(), 1);
            assert_eq!(first.check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
            let ids = queue.drain();
            assert_eq!(ids.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1, 2]);
            assert!(ids.iter().all(|(_, id)| id != first.id()));
        });
        drop(first);
        rig.assert_free(KEY);
    });
}

/// A lock that is on its way from one thread to the next is held by this client, so `unlock_all` gives it up too.
#[test]
fn unlock_all_gives_up_what_is_being_handed_over() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let lock = locks.mutex(KEY);
    let mut given_up = 0;
    for round in 0..100 {
        let first = lock.lock().unwrap();
        let (token, before) = (first.id().clone(), given_up);
        thread::scope(|scope| {
            let mut queue = Queue::new(scope);
            queue.add(lock.clone());
            // The next thread has mostly not run yet at this point.
            first.unlock().unwrap();
            // On a busy machine, the release may leave the lock to programs of other libraries.
            given_up += locks.unlock_all().unwrap().given_up.len();
            let (i, id) = queue.next();
            queue.release(i);
            let end = queue.threads.pop().unwrap().join().unwrap();
            // The next thread either got the lease that was given up, and its calls report the loss. Or it noticed this
            // in time and acquired the lock again.
            assert_eq!(end.is_err(), id == token && given_up > before, "in round {round}: {end:?}");
        });
    }
    assert!(given_up > 0);
    rig.assert_free(KEY);
}

/// Threads of one client hand their lease to each other. A lease that its holder extended beyond the next thread's
/// setting must not be handed over.
#[test]
fn a_lock_that_was_extended_is_not_handed_on_as_it_is() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let lock = locks.mutex("order:42").lease(ms(4000));
    let held = lock.lock().unwrap();
    held.extend(Duration::from_secs(60)).unwrap();
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            say.send(this_thread()).unwrap();
            let guard = lock.lock().unwrap();
            (guard.remaining(), guard.id().clone())
        });
        until_asleep(&said.recv().unwrap());
        let id = held.id().clone();
        held.unlock().unwrap();
        let (left, next_id) = next.join().unwrap();
        assert!(left <= ms(4000) && next_id != id, "{left:?} are left");
    });
}

/// Threads of one client also hand over a lock that another process granted.
#[test]
fn a_granted_lock_is_handed_over_like_any_other() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    let locks = rig.client();
    let lock = locks.mutex(KEY);
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (say, said) = mpsc::channel();
        for i in 0..2 {
            let (lock, tell, say) = (lock.clone(), tell.clone(), say.clone());
            scope.spawn(move || {
                say.send(this_thread()).unwrap();
                let guard = lock.lock().unwrap();
                tell.send(guard.id().clone()).unwrap();
                guard.unlock().unwrap();
            });
            let id = said.recv().unwrap();
            if i == 0 { rig.until_blocked(0, 1) } else { until_asleep(&id) }
        }
        held.unlock().unwrap();
        let (one, two) = (told.recv_timeout(SOON).unwrap(), told.recv_timeout(SOON).unwrap());
        assert!(one.holder_name().starts_with("granted:"));
        assert_eq!(one, two, "the second thread got another token");
    });
}

/// While `unlock_all` runs again and again, each thread that passes `check()` must really hold the lock.
#[test]
fn unlock_all_leaves_no_holder_without_a_lock() {
    let rig = Rig::start(1);
    let locks = rig.client();
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let lock = locks.mutex(KEY);
                let mut n = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().unwrap();
                    n += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                    if n.is_multiple_of(16) {
                        thread::sleep(ms(2));
                        let is_there = rig.servers[0].get(KEY).as_deref() == Some(guard.id().as_str());
                        if !is_there && guard.check().is_ok() {
                            stop.store(true, Ordering::Relaxed);
                            panic!("a thread holds a lock without a key, after {} locks", done.load(Ordering::Relaxed));
                        }
                    }
                    _ = guard.unlock();
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            _ = locks.unlock_all();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
