//! A waiting writer keeps new readers out. After a writer, all waiting readers get in. The tests count entries, not
//! time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use redlock_sync::Redlock;
use redlock_tests::{Server, servers};

use super::{KEY, ms, open, until_waiting, waits};

const TIMES: usize = 5;

/// Counts the entries of a stream of holders while `waiter` waits, from the time at which its wait is on the server.
fn entries_meanwhile(
    servers: &[Server],
    queue: &str,
    clients: &[Redlock],
    hold: impl Fn(&Redlock, &AtomicUsize) + Sync,
    waiter: impl Fn(&Redlock) + Sync,
) -> usize {
    let (entries, is_over, last) = (AtomicUsize::new(0), AtomicBool::new(false), open(servers));
    thread::scope(|scope| {
        for locks in clients {
            let (entries, is_over, hold) = (&entries, &is_over, &hold);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    hold(locks, entries);
                }
            });
        }
        while entries.load(Ordering::SeqCst) < 2 * clients.len() {
            thread::sleep(ms(1));
        }
        let counted = scope.spawn(|| {
            waiter(&last);
            entries.load(Ordering::SeqCst)
        });
        // The waiter may get in before the loop sees its wait.
        while waits(&servers[0], queue) == 0 && !counted.is_finished() {
            thread::sleep(ms(1));
        }
        let before = entries.load(Ordering::SeqCst);
        let after = counted.join().unwrap();
        is_over.store(true, Ordering::SeqCst);
        after.saturating_sub(before)
    })
}

fn read(locks: &Redlock, entries: &AtomicUsize) {
    let guard = locks.rw_lock(KEY).read().unwrap();
    entries.fetch_add(1, Ordering::SeqCst);
    thread::sleep(ms(20));
    guard.unlock().unwrap();
}

fn write(locks: &Redlock, entries: &AtomicUsize) {
    let guard = locks.rw_lock(KEY).write().unwrap();
    entries.fetch_add(1, Ordering::SeqCst);
    thread::sleep(ms(20));
    guard.unlock().unwrap();
}

#[test]
fn kind_17_a_stream_of_readers_lets_a_writer_in() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let clients: Vec<Redlock> = (0..6).map(|_| open(&servers)).collect();
        for _ in 0..TIMES {
            let later = entries_meanwhile(&servers, "writers", &clients, read, |locks| {
                locks.rw_lock(KEY).write().unwrap().unlock().unwrap();
            });
            // These readers got their reply before, but count themselves only now. With three nodes, the writer's wait
            // reaches the first node slightly earlier than the others.
            assert!(later <= 2 * clients.len(), "N = {nodes}: {later} readers entered while a writer waited");
        }
    }
}

#[test]
fn kind_17_a_stream_of_writers_lets_a_reader_in() {
    for (nodes, most) in [(1, 2), (3, 8)] {
        let servers = servers(nodes);
        let clients: Vec<Redlock> = (0..6).map(|_| open(&servers)).collect();
        for _ in 0..TIMES {
            let later = entries_meanwhile(&servers, "readers", &clients, write, |locks| {
                locks.rw_lock(KEY).read().unwrap().unlock().unwrap();
            });
            // The count includes the writer that holds the lock when the reader comes. With one node, it can include
            // one more that counts itself late.
            assert!(later <= most, "N = {nodes}: {later} writers entered while a reader waited");
        }
    }
}

/// All waiting readers get in after the writer, before the next writer.
#[test]
fn readers_go_in_together() {
    let servers = servers(1);
    let clients: Vec<Redlock> = (0..10).map(|_| open(&servers)).collect();
    let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let first = clients[0].rw_lock(KEY).write().unwrap();
    thread::scope(|scope| {
        for locks in &clients[2..] {
            let (inside, done) = (&inside, &done);
            scope.spawn(move || {
                let guard = locks.rw_lock(KEY).read().unwrap();
                inside.fetch_add(1, Ordering::SeqCst);
                while inside.load(Ordering::SeqCst) < 8 {
                    thread::sleep(ms(1));
                }
                done.fetch_add(1, Ordering::SeqCst);
                guard.unlock().unwrap();
            });
        }
        until_waiting(&servers, "readers", 8);
        let next = scope.spawn(|| {
            let guard = clients[1].rw_lock(KEY).write().unwrap();
            assert_eq!(done.load(Ordering::SeqCst), 8, "the next writer got in before a waiting reader");
            guard.unlock().unwrap();
        });
        until_waiting(&servers, "writers", 1);
        first.unlock().unwrap();
        next.join().unwrap();
    });
}

/// Readers and writers of one process get the lock in the order in which they came.
#[test]
fn threads_of_one_process_take_turns() {
    let servers = servers(1);
    let locks = open(&servers);
    let written = AtomicUsize::new(0);
    let reader = locks.rw_lock(KEY).read().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = locks.rw_lock(KEY).write().unwrap();
            written.fetch_add(1, Ordering::SeqCst);
            guard.unlock().unwrap();
        });
        until_waiting(&servers, "writers", 1);
        let late = scope.spawn(|| {
            let guard = locks.rw_lock(KEY).read().unwrap();
            assert_eq!(written.load(Ordering::SeqCst), 1, "a reader overtook a writer of its process");
            guard.unlock().unwrap();
        });
        // This thread reads already, so it may re-enter although a writer waits.
        drop(locks.rw_lock(KEY).read().unwrap());
        reader.unlock().unwrap();
        late.join().unwrap();
    });
}
