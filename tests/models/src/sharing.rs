//! Models of the lease that threads of a process share: `handover/sharing.rs` in the queue of
//! `handover/thread_queue.rs`. A count of the leases of readers and writers replaces the servers.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::handover::sharing::{HolderCount, SharedLease};
use crate::handover::thread_queue::QueueOutcome;
use crate::options::{Kind, LockOptions, Mode};
use crate::queue::{EXCLUSIVE, Rig, all, unexpected};
use crate::sync::{Condvar, Mutex};
use crate::world;

const READER: Kind = Kind { name: "reader", mode: Mode::Joint };

/// The servers of a read-write lock.
#[derive(Debug)]
struct Servers {
    held: Mutex<i32>,
    changed: Condvar,
    /// The number of leases to read that were acquired so far.
    taken: Mutex<usize>,
}

impl Servers {
    fn new() -> Arc<Servers> {
        Arc::new(Servers { held: Mutex::new(0), changed: Condvar::new(), taken: Mutex::new(0) })
    }

    fn acquire(&self, writes: bool) {
        let mut held = self.held.lock();
        while *held < 0 || writes && *held > 0 {
            self.changed.wait(&mut held);
        }
        *held = if writes { -1 } else { *held + 1 };
    }

    fn release(&self) {
        let mut held = self.held.lock();
        assert_ne!(*held, 0, "released twice");
        *held = (*held - 1).max(0);
        self.changed.notify_all();
    }
}

/// One lease, of which threads have parts.
#[derive(Debug)]
struct Held {
    servers: Arc<Servers>,
    gate: Arc<HolderCount>,
    is_lost: Mutex<bool>,
    is_released: Mutex<bool>,
}

/// The part of a lease that a thread has. The end of the last part releases the lease, as with the library's `Lease`.
#[derive(Debug)]
struct Part {
    held: Arc<Held>,
    rig: Rig<Part>,
}

impl std::fmt::Debug for Rig<Part> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rig")
    }
}

impl Part {
    fn read(&self) {
        assert!(!*self.held.is_released.lock(), "it was given up while a thread has it");
        assert!(*self.held.servers.held.lock() > 0, "beside a writer");
    }

    fn is_good(&self) -> bool {
        let is_lost = *self.held.is_lost.lock();
        if is_lost {
            self.held.gate.close();
        }
        !is_lost
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.held.gate.leave() {
            self.rig.queues.unshare(&self.rig.key);
            assert!(!std::mem::replace(&mut *self.held.is_released.lock(), true), "two were the last");
            self.held.servers.release();
        }
    }
}

/// Reads on this thread. The thread joins a lease, or it acquires one and lets other threads join. Returns false if its
/// time is up.
fn read(rig: &Rig<Part>, servers: &Arc<Servers>, until: Tick, during: impl Fn(&Part)) -> bool {
    let plain = LockOptions::default();
    loop {
        let joined = rig.queues.join(&rig.key, READER, &plain).map(|(part, _)| part);
        let part = match joined.filter(Part::is_good) {
            Some(part) => part,
            None => match rig.enter_as(until, READER) {
                QueueOutcome::Head(head) => {
                    let part = take(rig, servers);
                    let (lease, of) = (Arc::clone(&part.held), rig.clone());
                    let another = Box::new(move |_| Part { held: Arc::clone(&lease), rig: of.clone() });
                    head.share(SharedLease::new(READER, plain.clone().into(), Arc::clone(&part.held.gate), another));
                    part
                }
                QueueOutcome::Handed(part) => part,
                QueueOutcome::Late => return false,
                other @ QueueOutcome::Closed => unexpected(&other),
            },
        };
        if part.is_good() {
            during(&part);
            part.read();
            return true;
        }
    }
}

fn take(rig: &Rig<Part>, servers: &Arc<Servers>) -> Part {
    servers.acquire(false);
    *servers.taken.lock() += 1;
    let held = Held {
        servers: Arc::clone(servers),
        gate: Arc::new(HolderCount::new()),
        is_lost: Mutex::new(false),
        is_released: Mutex::new(false),
    };
    Part { held: Arc::new(held), rig: rig.clone() }
}

fn write(rig: &Rig<Part>, servers: &Servers) {
    match rig.enter_as(Tick::NEVER, EXCLUSIVE) {
        QueueOutcome::Head(head) => {
            servers.acquire(true);
            rig.hold();
            servers.release();
            drop(head);
        }
        other => unexpected(&other),
    }
}

fn is_over(rig: &Rig<Part>, servers: &Servers) {
    assert_eq!(*servers.held.lock(), 0, "a lease is held that no thread has");
    rig.assert_empty();
}

/// Threads come and go. Each lease is released once, by the last thread that has it, and no thread joins it after that.
pub fn a_join_meets_the_last_leave() {
    let (rig, servers) = (Rig::new(), Servers::new());
    let threads = (0..3).map(|_| {
        let servers = Arc::clone(&servers);
        rig.spawn(move |rig| {
            for _ in 0..2 {
                assert!(read(&rig, &servers, Tick::NEVER, Part::read));
            }
        })
    });
    all(threads.collect());
    assert!((1..=6).contains(&*servers.taken.lock()));
    is_over(&rig, &servers);
}

/// A thread that has joined learns that others wait. No thread joins from then on, and the parts of this lease end
/// beside the next lease.
pub fn a_close_meets_joins() {
    let (rig, servers) = (Rig::new(), Servers::new());
    let close = |part: &Part| {
        part.held.gate.close();
        assert!(!part.held.gate.try_join(), "it is closed");
        part.read();
    };
    let mut threads: Vec<_> = (0..3)
        .map(|_| {
            let servers = Arc::clone(&servers);
            rig.spawn(move |rig| assert!(read(&rig, &servers, Tick::NEVER, Part::read)))
        })
        .collect();
    let closing = Arc::clone(&servers);
    threads.push(rig.spawn(move |rig| assert!(read(&rig, &closing, Tick::NEVER, close))));
    all(threads);
    is_over(&rig, &servers);
}

/// The lease is lost. A thread that comes then closes it and acquires another one. The threads that have the lost lease
/// release it once.
pub fn lost_while_threads_join() {
    let (rig, servers) = (Rig::new(), Servers::new());
    let lose = |part: &Part| *part.held.is_lost.lock() = true;
    let losing = Arc::clone(&servers);
    let mut threads = vec![rig.spawn(move |rig| assert!(read(&rig, &losing, Tick::NEVER, lose)))];
    threads.extend((0..3).map(|_| {
        let servers = Arc::clone(&servers);
        rig.spawn(move |rig| assert!(read(&rig, &servers, Tick::NEVER, Part::read)))
    }));
    all(threads);
    is_over(&rig, &servers);
}

/// A writer of the same process gets its turn, even if there are many readers. Readers behind it get their turns too.
pub fn a_writer_waits_for_its_turn() {
    let (rig, servers) = (Rig::new(), Servers::new());
    let mut threads: Vec<_> = (0..2)
        .map(|_| {
            let servers = Arc::clone(&servers);
            rig.spawn(move |rig| {
                for _ in 0..2 {
                    assert!(read(&rig, &servers, Tick::NEVER, Part::read));
                }
            })
        })
        .collect();
    threads.extend((0..2).map(|_| {
        let servers = Arc::clone(&servers);
        rig.spawn(move |rig| write(&rig, &servers))
    }));
    all(threads);
    is_over(&rig, &servers);
}

/// The time of a reader is up while it is handed a part. Either it has the part, or nothing is held for it.
pub fn late_while_it_is_shared() {
    let (rig, servers) = (Rig::new(), Servers::new());
    let until = world::now().after(Duration::from_millis(300));
    let mut threads: Vec<_> = [until, until, Tick::NEVER]
        .map(|until| {
            let servers = Arc::clone(&servers);
            rig.spawn(move |rig| {
                let has_read = read(&rig, &servers, until, Part::read);
                assert!(has_read || world::now() >= until, "before its time");
            })
        })
        .into();
    let writing = Arc::clone(&servers);
    threads.push(rig.spawn(move |rig| write(&rig, &writing)));
    world::pass_until(until);
    all(threads);
    is_over(&rig, &servers);
}
