//! A writer never holds the lock together with a reader or another writer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use redlock_sync::Redlock;
use redlock_tests::{Server, eventually, servers};

use super::{KEY, SOON, brisk, held, is_clean, ms, open, until_waiting};
use crate::rig::for_each;

const CLIENTS: usize = 3;
const THREADS: usize = 8;

/// The data that the lock protects, and the threads that hold the lock.
#[derive(Default)]
struct Books {
    /// The number of readers that hold the lock, or -1 for a writer.
    inside: AtomicI64,
    most: AtomicI64,
    value: AtomicU64,
    last_fence: AtomicU64,
}

impl Books {
    fn read(&self, fence: u64) {
        let readers = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(readers > 0, "a reader got in while a writer held the lock");
        self.most.fetch_max(readers, Ordering::SeqCst);
        let before = self.value.load(Ordering::SeqCst);
        thread::yield_now();
        assert_eq!(self.value.load(Ordering::SeqCst), before, "a writer got in while a reader held the lock");
        assert!(fence == 0 || fence > self.last_fence.load(Ordering::SeqCst));
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn write(&self, fence: u64) {
        assert_eq!(self.inside.swap(-1, Ordering::SeqCst), 0, "a writer got in while another holder had the lock");
        let before = self.value.load(Ordering::SeqCst);
        thread::yield_now();
        self.value.store(before + 1, Ordering::SeqCst);
        if fence > 0 {
            assert!(self.last_fence.swap(fence, Ordering::SeqCst) < fence, "the fencing token did not rise");
        }
        self.inside.store(0, Ordering::SeqCst);
    }
}

fn excludes(servers: &[Server], rounds: u64) {
    let books = Books::default();
    let writes = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let locks = open(servers);
            for _ in 0..THREADS {
                let (lock, books, writes) = (locks.rw_lock(KEY), &books, &writes);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let asks = fastrand::u32(0..4) == 0;
                        if fastrand::u32(0..10) < 3 {
                            let guard = lock.write().unwrap();
                            books.write(if asks { guard.fencing_token().unwrap() } else { 0 });
                            writes.fetch_add(1, Ordering::SeqCst);
                            guard.check().unwrap();
                            guard.unlock().unwrap();
                        } else {
                            let guard = lock.read().unwrap();
                            let fence = if asks { guard.fencing_token().unwrap() } else { 0 };
                            books.read(fence);
                            guard.check().unwrap();
                            guard.unlock().unwrap();
                        }
                        if fastrand::usize(0..8) == client {
                            thread::sleep(ms(1));
                        }
                    }
                });
            }
        }
    });
    assert_eq!(books.value.load(Ordering::SeqCst), writes.load(Ordering::SeqCst), "a write is lost");
    assert!(books.most.load(Ordering::SeqCst) > 1, "readers do not share the lock");
    eventually("nothing is left", SOON, || is_clean(servers));
}

#[test]
fn readers_are_never_beside_a_writer_on_one_node() {
    excludes(&servers(1), 60);
}

#[test]
fn readers_are_never_beside_a_writer_on_three_nodes() {
    excludes(&servers(3), 15);
}

/// A waiting thread gets a notification, and does not wait for its next attempt a second later. The shortest time
/// counts, because the machine is busy.
#[test]
fn waits_end_promptly() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (ours, theirs) = (open(&servers), open(&servers));
        let [mut readers, mut writers] = [SOON; 2];
        // Each client acts like another process, because the readers of one client share a lease.
        let clients: Vec<_> = (0..8).map(|_| open(&servers)).collect();
        for _ in 0..6 {
            let writer = ours.rw_lock(KEY).write().unwrap();
            let last = thread::scope(|scope| {
                let wait = |locks: &Redlock| {
                    locks.rw_lock(KEY).read().unwrap().unlock().unwrap();
                    Instant::now()
                };
                let waiting: Vec<_> = clients.iter().map(|locks| scope.spawn(move || wait(locks))).collect();
                until_waiting(&servers, "readers", 8);
                let began = Instant::now();
                writer.unlock().unwrap();
                waiting.into_iter().map(|reader| reader.join().unwrap() - began).max().unwrap()
            });
            readers = readers.min(last);
            let reader = ours.rw_lock(KEY).read().unwrap();
            let waited = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    theirs.rw_lock(KEY).write().unwrap().unlock().unwrap();
                    Instant::now()
                });
                until_waiting(&servers, "writers", 1);
                let began = Instant::now();
                reader.unlock().unwrap();
                writer.join().unwrap() - began
            });
            writers = writers.min(waited);
        }
        assert!(readers < ms(200) && writers < ms(200), "N = {nodes}: readers {readers:?}, writers {writers:?}");
    }
}

#[test]
fn reading_needs_no_writer_and_writing_needs_neither() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let [one, two, three] = [(); 3].map(|()| open(&servers).rw_lock(KEY));
        let (reader, beside) = (one.try_read().unwrap(), two.try_read().unwrap());
        assert!(three.try_write().unwrap_err().is_busy());
        reader.unlock().unwrap();
        assert!(three.try_write().unwrap_err().is_busy(), "a writer got in beside a reader");
        beside.unlock().unwrap();
        let writer = three.try_write().unwrap();
        assert!(one.try_read().unwrap_err().is_busy() && two.try_write().unwrap_err().is_busy());
        writer.unlock().unwrap();
        one.try_read().unwrap().unlock().unwrap();
        assert!(is_clean(&servers));
    }
}

#[test]
fn reading_and_writing_expire_apart() {
    let servers = servers(1);
    let locks = brisk(&servers, ms(3000));
    let lock = locks.rw_lock(KEY).renew(false);
    let reader = lock.clone().lease(ms(3000)).read().unwrap();
    assert!(servers[0].pttl(KEY).unwrap() <= ms(3000));
    eventually("the key expires with its last holder", SOON, || servers[0].pttl(KEY).is_none());
    assert!(reader.unlock().unwrap_err().is_lost());
    let writer = lock.lease(ms(20_000)).write().unwrap();
    let left = servers[0].pttl(KEY).unwrap();
    assert!(left > ms(10_000) && left <= ms(20_000), "{left:?}");
    writer.unlock().unwrap();
}

#[test]
fn an_expired_holder_is_ignored_and_only_the_owner_deletes() {
    for_each("nodes", &[1, 3], |nodes| {
        let servers = servers(nodes);
        let (brisk, locks, others) = (brisk(&servers, ms(3000)), open(&servers), open(&servers));
        let expires = brisk.rw_lock(KEY).renew(false).read().unwrap();
        let stays = locks.rw_lock(KEY).read().unwrap();
        assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
        eventually("the first reader's lease expires", SOON, || held(&others) == (0, 1));
        assert!(expires.unlock().unwrap_err().is_lost());
        assert_eq!(others.rw_lock(KEY).inspect().unwrap()[0].id, *stays.id(), "the release removed another holder");
        assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
        stays.unlock().unwrap();

        let expires = brisk.rw_lock(KEY).renew(false).write().unwrap();
        let next = others.rw_lock(KEY).try_write_for(SOON).unwrap();
        assert!(expires.unlock().unwrap_err().is_lost());
        next.check().unwrap();
        assert_eq!(others.rw_lock(KEY).inspect().unwrap()[0].id, *next.id());
        next.unlock().unwrap();
        assert!(is_clean(&servers));
    });
}
