//! A writer never holds the lock together with a reader or another writer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use redlock_sync::Redlock;
use redlock_tests::{Server, eventually, servers};

use super::{KEY, SOON, brisk, held, is_clean, ms, open, until_waiting};

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

/// With writers only, the lock has one holder at a time, and fencing tokens rise.
#[test]
fn a_write_lock_alone_is_a_mutex() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let last = AtomicU64::new(0);
        let inside = AtomicI64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                let lock = open(&servers).rw_lock(KEY).fenced(true);
                let (last, inside) = (&last, &inside);
                scope.spawn(move || {
                    for _ in 0..25 {
                        let guard = lock.write().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        let fence = guard.fencing_token().unwrap();
                        assert!(last.swap(fence, Ordering::SeqCst) < fence);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
        let (one, other) = (open(&servers).rw_lock(KEY), open(&servers).rw_lock(KEY));
        let guard = one.write().unwrap();
        assert!(other.try_write().unwrap_err().is_busy());
        assert!(other.try_write_for(ms(50)).unwrap_err().is_busy());
        assert!(other.try_read().unwrap_err().is_busy());
        assert!(one.is_locked().unwrap() && one.is_locked_exclusive().unwrap());
        guard.unlock().unwrap();
        drop(other.try_write().unwrap());
    }
}

/// The lease of each holder expires separately. An expired holder is ignored, and no other holder's release removes a
/// live one.
#[test]
fn each_holder_has_its_own_end() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (brisk, locks) = (brisk(&servers, ms(3000)), open(&servers));
        let short = brisk.rw_lock(KEY).renew(false).read().unwrap();
        let long = locks.rw_lock(KEY).read().unwrap();
        assert_eq!(held(&locks), (0, 2));
        eventually("the short lease ends", SOON, || held(&locks) == (0, 1));
        assert!(short.check().unwrap_err().is_lost());
        assert!(short.unlock().unwrap_err().is_lost());
        long.check().unwrap();
        assert_eq!(held(&locks), (0, 1));
        long.unlock().unwrap();

        let writer = brisk.rw_lock(KEY).lease(ms(3000)).renew(false).write().unwrap();
        let reader = thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let guard = locks.rw_lock(KEY).read().unwrap();
                let id = guard.id().clone();
                std::mem::forget(guard);
                id
            });
            reads.join().unwrap()
        });
        assert!(writer.check().unwrap_err().is_lost());
        assert!(writer.unlock().unwrap_err().is_lost());
        assert_eq!(locks.rw_lock(KEY).inspect().unwrap()[0].id, reader);
        assert_eq!(locks.unlock_all().unwrap().given_up.len(), 1);
        assert_eq!(held(&locks), (0, 0));
    }
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
