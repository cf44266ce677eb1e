//! The reading threads of a process share one lease.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{LostReason, Redlock, RwLock, RwLockReadGuard};
use redlock_tests::{Proxy, Server, eventually, servers};

use super::{KEY, SOON, agent, brisk, held, is_clean, ms, open, until_waiting};

/// Calls `hold` in this number of threads, which all read at the same time.
fn together(lock: &RwLock, threads: usize, hold: impl Fn(&RwLockReadGuard) + Sync) {
    let all_in = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let guard = lock.read().unwrap();
                all_in.wait();
                hold(&guard);
                all_in.wait();
                _ = guard.unlock();
            });
        }
    });
}

#[test]
fn the_readers_of_a_process_are_one_to_the_servers() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (locks, others) = (open(&servers), open(&servers));
        let lock = locks.rw_lock(KEY);
        let outer = others.rw_lock(KEY).read().unwrap();
        together(&lock, 16, |guard| {
            guard.check().unwrap();
            assert_eq!(held(&others), (0, 2));
            assert!(guard.fencing_token().unwrap() > 0);
        });
        // The last reader has released the shared lease.
        assert_eq!(held(&others), (0, 1));
        outer.unlock().unwrap();
        assert!(is_clean(&servers));
    }
}

/// While one thread reads, other threads join and leave without a request. Only the last one sends a release.
#[test]
fn a_reader_that_joins_sends_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(ms(2000)).build().unwrap();
    let lock = locks.rw_lock(KEY);
    // The server loads the scripts here.
    lock.read().unwrap().unlock().unwrap();
    let first = lock.read().unwrap();
    proxy.clear_log();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..2000).for_each(|_| lock.read().unwrap().unlock().map(drop).unwrap()));
        }
    });
    assert_eq!((proxy.count("acquire"), proxy.count("release")), (0, 0));
    // One thread asks the servers every 20 ms or 4096 joins, and the lease may be renewed.
    let most = 16_000 / 4096 + usize::try_from(began.elapsed().as_millis() / 20).unwrap() + 3;
    let seen = proxy.count("extend");
    assert!((16_000 / 4096..=most).contains(&seen), "{seen} requests, at most {most} were due");
    first.unlock().unwrap();
    assert_eq!(proxy.count("release"), 1);
}

/// A reader with other settings, or with settings that count from its own acquisition, has its own lease.
#[test]
fn own_terms_have_a_lease_of_their_own() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let lock = locks.rw_lock(KEY);
    let first = lock.read().unwrap();
    let own: Vec<RwLock> = vec![
        lock.clone().holder_name("me"),
        lock.clone().renew(false),
        lock.clone().max_hold(ms(60_000)),
        lock.clone().max_renewals(9),
        lock.clone().min_hold(ms(10)),
        lock.clone().lease(ms(20_000)),
        lock.clone().fenced(true),
    ];
    thread::scope(|scope| {
        for lock in &own {
            let id = scope.spawn(|| {
                let guard = lock.read().unwrap();
                assert_eq!(held(&others), (0, 2));
                guard.id().clone()
            });
            assert_ne!(&id.join().unwrap(), first.id());
            eventually("the minimum hold ends", SOON, || held(&others) == (0, 1));
        }
        let joins = scope.spawn(|| lock.try_read().unwrap().id().clone());
        assert_eq!(&joins.join().unwrap(), first.id());
    });
    first.unlock().unwrap();
    assert!(is_clean(&servers));
}

/// The loss of a shared lease is reported to each reader, and a new reader does not join the lost lease.
#[test]
fn kind_16_a_lost_lease_tells_every_reader() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = brisk(&servers, ms(3000));
        let (tell, told) = mpsc::channel();
        let lock = locks.rw_lock(KEY);
        // A reader that has left does not get the loss.
        let gone = tell.clone();
        let first = lock.read().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.read().unwrap();
                guard.on_lost(move |_| gone.send("gone").unwrap());
                guard.unlock().unwrap();
            });
        });
        together(&lock, 4, |guard| {
            let tell = tell.clone();
            guard.on_lost(move |error| tell.send(if error.is_lost() { "lost" } else { "odd" }).unwrap());
            for server in &servers {
                server.del(KEY);
            }
            eventually("the loss is noticed", SOON, || guard.check().is_err());
        });
        assert!(first.check().unwrap_err().is_lost());
        assert!(first.unlock().unwrap_err().is_lost());
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), ["lost"; 4]);
        let anew = lock.try_read_for(SOON).unwrap();
        anew.check().unwrap();
        drop(anew);
        eventually("nothing is left", SOON, || is_clean(&servers));
    }
}

/// If a join meets the last leave, it either joins the held lease or acquires a new one.
#[test]
fn kind_15_a_join_that_meets_the_last_leave_holds_the_lock() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let lock = locks.rw_lock(KEY);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for i in 0..300 {
                    let guard = lock.read().unwrap();
                    guard.check().unwrap();
                    if i % 50 == 0 {
                        assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
                    }
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert!(is_clean(&servers));
}

/// Readers of one process come all the time, and never all leave. A writer of another process waits only for the next
/// request to the servers and for the readers inside.
#[test]
fn a_writer_of_another_process_gets_in_beside_readers_that_join() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (locks, others) = (open(&servers), open(&servers));
        let (is_over, joins) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let hold = ms(40);
        thread::scope(|scope| {
            for i in 0..8 {
                let (lock, is_over, joins) = (locks.rw_lock(KEY), &is_over, &joins);
                scope.spawn(move || {
                    thread::sleep(ms(5 * i));
                    while is_over.load(Ordering::SeqCst) == 0 {
                        let guard = lock.read().unwrap();
                        joins.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(hold);
                        guard.unlock().unwrap();
                    }
                });
            }
            eventually("the readers read", SOON, || joins.load(Ordering::SeqCst) > 16);
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let began = Instant::now();
                others.rw_lock(KEY).try_write_for(SOON).unwrap().unlock().unwrap();
                best = best.min(began.elapsed());
            }
            is_over.store(1, Ordering::SeqCst);
            assert!(best < hold * 10, "N = {nodes}: a writer waited for {best:?} at best");
        });
        eventually("nothing is left", SOON, || is_clean(&servers));
    }
}

/// A writer of the same process gets its turn, and so do the readers that come after it.
#[test]
fn a_writer_of_the_same_process_gets_in_beside_readers_that_join() {
    let servers = servers(1);
    let locks = open(&servers);
    let (is_over, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for i in 0..6 {
            let (lock, is_over) = (locks.rw_lock(KEY), &is_over);
            scope.spawn(move || {
                thread::sleep(ms(3 * i));
                while is_over.load(Ordering::SeqCst) == 0 {
                    let guard = lock.read().unwrap();
                    thread::sleep(ms(10));
                    guard.unlock().unwrap();
                }
            });
        }
        for _ in 0..10 {
            let guard = locks.rw_lock(KEY).try_write_for(SOON).unwrap();
            written.fetch_add(1, Ordering::SeqCst);
            guard.unlock().unwrap();
            locks.rw_lock(KEY).try_read_for(SOON).unwrap().unlock().unwrap();
        }
        is_over.store(1, Ordering::SeqCst);
    });
    assert_eq!(written.load(Ordering::SeqCst), 10);
    assert!(is_clean(&servers));
}

/// Once a writer waits, no thread can join the shared lease any more. Later readers share a new lease, while the last
/// reader of the old one still holds it.
#[test]
fn an_old_lease_drains_beside_a_new_one() {
    let servers = servers(1);
    let (locks, others) = (open(&servers), open(&servers));
    let lock = locks.rw_lock(KEY);
    let old = lock.read().unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| others.rw_lock(KEY).try_write_for(ms(1500)).unwrap_err());
        until_waiting(&servers, "writers", 1);
        thread::sleep(ms(30));
        assert!(scope.spawn(|| lock.try_read().unwrap_err()).join().unwrap().is_busy());
        assert!(writer.join().unwrap().is_busy());
        let newer = scope.spawn(|| {
            let guard = lock.read().unwrap();
            assert_eq!(held(&others), (0, 2));
            let id = guard.id().clone();
            guard.unlock().unwrap();
            id
        });
        assert_ne!(&newer.join().unwrap(), old.id());
    });
    assert_eq!(held(&others), (0, 1));
    old.check().unwrap();
    old.unlock().unwrap();
    assert!(is_clean(&servers));
}

#[test]
fn the_end_of_a_client_is_the_end_of_what_its_threads_share() {
    let servers = servers(1);
    let others = open(&servers);
    for closes in [false, true] {
        let locks = open(&servers);
        let lock = locks.rw_lock(KEY);
        let is_ended = AtomicUsize::new(0);
        together(&lock, 4, |guard| {
            if is_ended.fetch_add(1, Ordering::SeqCst) == 0 {
                let ended = if closes { locks.shutdown(Duration::ZERO) } else { locks.unlock_all() };
                assert_eq!(ended.unwrap().given_up, [KEY], "the shared lease is one lock");
            }
            eventually("each reader notices the end", SOON, || guard.check().is_err());
            assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
        });
        assert_eq!(held(&others), (0, 0));
    }
}

/// A forked child does not share its parent's lease. It cannot use the guard, and a drop of its copy releases nothing.
#[test]
fn a_forked_child_has_no_part_in_what_is_shared() {
    let servers = servers(1);
    let mut agent = agent("fork", ms(1500), &servers);
    agent.line();
    let locks = open(&servers);
    let readers = locks.rw_lock(KEY).inspect().unwrap();
    assert_eq!(readers.len(), 1);
    thread::sleep(ms(2000));
    assert_eq!(locks.rw_lock(KEY).inspect().unwrap()[0].id, readers[0].id, "the lease was not renewed");
    agent.kill();
}
