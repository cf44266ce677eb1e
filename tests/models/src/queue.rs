//! Models of the queue in which the threads of a process wait for a lock: `handover/thread_queue.rs`.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread::{self, JoinHandle, ThreadId};

use crate::clock::{Clock, Tick};
use crate::handover::thread_queue::{QueueHead, QueueOutcome, ThreadQueues};
use crate::options::{Kind, LockOptions, Mode};
use crate::sync::{Condvar, Mutex};
use crate::world::{self, ModelClock};

pub(crate) const EXCLUSIVE: Kind = Kind { name: "mutex", mode: Mode::Exclusive };
const SHARED: Kind = Kind { name: "permit", mode: Mode::Shared };

/// The queues of one client, and one key.
pub(crate) struct Rig<T> {
    pub(crate) queues: Arc<ThreadQueues<T>>,
    pub(crate) key: Arc<str>,
    /// True while a thread holds the lock.
    is_held: Arc<Mutex<bool>>,
}

impl<T> Clone for Rig<T> {
    fn clone(&self) -> Rig<T> {
        Rig { queues: Arc::clone(&self.queues), key: Arc::clone(&self.key), is_held: Arc::clone(&self.is_held) }
    }
}

impl<T: std::fmt::Debug + Send + 'static> Rig<T> {
    pub(crate) fn new() -> Rig<T> {
        Rig::on(Arc::new(ModelClock))
    }

    fn on(clock: Arc<dyn Clock>) -> Rig<T> {
        Rig { queues: ThreadQueues::new(clock), key: "key".into(), is_held: Arc::new(Mutex::new(false)) }
    }

    pub(crate) fn enter(&self, until: Tick) -> QueueOutcome<T> {
        self.enter_as(until, EXCLUSIVE)
    }

    pub(crate) fn enter_as(&self, until: Tick, kind: Kind) -> QueueOutcome<T> {
        self.queues.enqueue(&self.key, until, kind, &LockOptions::default())
    }

    fn head(&self) -> QueueHead<T> {
        self.try_head().expect("no thread is there")
    }

    fn try_head(&self) -> Option<QueueHead<T>> {
        match self.queues.try_enqueue(&self.key, EXCLUSIVE, &LockOptions::default())? {
            QueueOutcome::Head(head) => Some(head),
            other => unexpected(&other),
        }
    }

    /// Holds the lock for a moment. Asserts that no other thread holds it.
    pub(crate) fn hold(&self) {
        let was_held = std::mem::replace(&mut *self.is_held.lock(), true);
        assert!(!was_held, "two are at the head");
        *self.is_held.lock() = false;
    }

    /// Holds the lock, and then leaves the head of the queue.
    fn hold_and_leave(&self, head: QueueHead<T>) {
        self.hold();
        drop(head);
    }

    pub(crate) fn spawn<R: Send + 'static>(&self, run: impl FnOnce(Rig<T>) -> R + Send + 'static) -> JoinHandle<R> {
        let rig = self.clone();
        thread::spawn(move || run(rig))
    }

    /// Asserts that nothing is kept for a key that no thread uses.
    pub(crate) fn assert_empty(&self) {
        let queues = format!("{:?}", self.queues);
        assert!(queues.contains("by_key: {}"), "left over: {queues}");
    }
}

/// Panics with the outcome. The outcome is formatted before, because formatting can lock a mutex. No other thread may
/// run within the panic hook.
pub(crate) fn unexpected<T: std::fmt::Debug>(entered: &QueueOutcome<T>) -> ! {
    let entered = format!("{entered:?}");
    panic!("{entered}");
}

pub(crate) fn all<R>(threads: Vec<JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// A clock that records which threads have read it. A thread in a queue reads the clock after it has taken its place.
#[derive(Debug)]
struct Watched {
    seen: Mutex<Vec<ThreadId>>,
    changed: Condvar,
}

impl Clock for Watched {
    fn now(&self) -> Tick {
        self.seen.lock().push(thread::current().id());
        self.changed.notify_all();
        world::now()
    }

    fn sleep(&self, time: Duration) {
        world::pass(time);
    }
}

impl Watched {
    fn until_seen(&self, thread: ThreadId) {
        let mut seen = self.seen.lock();
        while !seen.contains(&thread) {
            self.changed.wait(&mut seen);
        }
    }
}

/// Threads that came one after the other get to the head in that order.
pub fn first_come_first_served() {
    let clock = Arc::new(Watched { seen: Mutex::new(Vec::new()), changed: Condvar::new() });
    let rig: Rig<()> = Rig::on(Arc::clone(&clock) as Arc<dyn Clock>);
    let head = rig.head();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for i in 0..3 {
        let order = Arc::clone(&order);
        let thread = rig.spawn(move |rig| {
            let QueueOutcome::Head(head) = rig.enter(Tick::NEVER) else { panic!("neither time nor gift") };
            order.lock().push(i);
            rig.hold_and_leave(head);
        });
        clock.until_seen(thread.thread().id());
        threads.push(thread);
    }
    rig.hold_and_leave(head);
    all(threads);
    assert_eq!(*order.lock(), [0, 1, 2]);
    rig.assert_empty();
}

/// Several threads come at once. Only one of them is at the head at a time, and none is left waiting. No time passes,
/// so a lost wake-up is a deadlock.
pub fn a_crowd() {
    let rig: Rig<()> = Rig::new();
    let threads = (0..3).map(|_| {
        rig.spawn(|rig| {
            for _ in 0..2 {
                let QueueOutcome::Head(head) = rig.enter(Tick::NEVER) else { panic!("neither time nor gift") };
                rig.hold_and_leave(head);
            }
        })
    });
    all(threads.collect());
    rig.assert_empty();
}

/// The time of a thread is up while it moves up. It passes the head on, and the thread behind it gets the head.
pub fn late_while_moving_up() {
    let rig: Rig<()> = Rig::new();
    let until = world::now().after(Duration::from_secs(5));
    let head = rig.head();
    let hurried = rig.spawn(move |rig| match rig.enter(until) {
        QueueOutcome::Head(head) => rig.hold_and_leave(head),
        QueueOutcome::Late => assert!(world::now() >= until, "before its time"),
        other => unexpected(&other),
    });
    let patient = rig.spawn(|rig| match rig.enter(Tick::NEVER) {
        QueueOutcome::Head(head) => rig.hold_and_leave(head),
        other => unexpected(&other),
    });
    let time = rig.spawn(move |_| world::pass_until(until));
    rig.hold_and_leave(head);
    for thread in [hurried, patient, time] {
        thread.join().unwrap();
    }
    rig.assert_empty();
}

/// A lock is promised to a thread while its time is up or the client ends. The thread takes the lock, so no hand-over
/// is lost.
pub fn late_or_closed_while_promised() {
    let rig: Rig<Gift> = Rig::new();
    let until = world::now().after(Duration::from_millis(300));
    let head = rig.head();
    let waiter = rig.spawn(move |rig| match rig.enter(until) {
        QueueOutcome::Handed(gift) => gift.take(),
        QueueOutcome::Late => assert!(world::now() >= until, "before its time"),
        QueueOutcome::Closed => assert!(rig.queues.is_closed(), "closed by no thread"),
        QueueOutcome::Head(_) => panic!("the head stays until the end"),
    });
    let time = rig.spawn(move |_| world::pass_until(until));
    let end = rig.spawn(|rig| rig.queues.close());
    if let Some(thread) = head.successor(EXCLUSIVE, &LockOptions::default()) {
        let gift = Gift::default();
        thread.hand_over(gift.clone());
        waiter.join().unwrap();
        assert_eq!(*gift.0.lock(), 1, "one takes it");
    } else {
        waiter.join().unwrap();
    }
    all(vec![time, end]);
    drop(head);
    rig.assert_empty();
}

/// A value that is handed over. It counts the threads that took it.
#[derive(Debug, Clone)]
struct Gift(Arc<Mutex<u32>>);

impl Default for Gift {
    fn default() -> Gift {
        Gift(Arc::new(Mutex::new(0)))
    }
}

impl Gift {
    fn take(self) {
        *self.0.lock() += 1;
    }
}

/// What threads hand over: the head of the queue, and the options of the lock.
#[derive(Debug)]
struct Baton {
    head: QueueHead<Baton>,
    options: LockOptions,
}

impl Rig<Baton> {
    /// Acquires the lock from the queue or from another thread. Then hands it over to the next thread, if there is one.
    /// Returns false if the thread got no lock.
    fn take_part(&self, until: Tick, options: &LockOptions) -> bool {
        let baton = match self.queues.enqueue(&self.key, until, EXCLUSIVE, options) {
            QueueOutcome::Head(head) => Baton { head, options: options.clone() },
            QueueOutcome::Handed(baton) => baton,
            QueueOutcome::Late | QueueOutcome::Closed => return false,
        };
        assert_eq!(baton.options, *options, "handed to a thread that wants something else");
        self.hold();
        // The first thread in the queue may change in between.
        if baton.head.has_successor(EXCLUSIVE, options)
            && let Some(thread) = baton.head.successor(EXCLUSIVE, options)
        {
            thread.hand_over(baton);
        }
        true
    }
}

/// Threads with two kinds of options hand the lock over or leave. Each thread gets the lock, one at a time.
pub fn hand_to_hand() {
    let rig: Rig<Baton> = Rig::new();
    let other = LockOptions { renew: false, ..LockOptions::default() };
    let threads = [LockOptions::default(), LockOptions::default(), LockOptions::default(), other].map(|options| {
        rig.spawn(move |rig| assert!(rig.take_part(Tick::NEVER, &options), "it has time, and nothing is closed"))
    });
    all(threads.into());
    rig.assert_empty();
}

/// Threads do the same as in `hand_to_hand`, while the time of one thread is up and the client ends.
pub fn hand_to_hand_to_the_end() {
    let rig: Rig<Baton> = Rig::new();
    let until = world::now().after(Duration::from_millis(300));
    let other = LockOptions { renew: false, ..LockOptions::default() };
    let threads = [(Tick::NEVER, LockOptions::default()), (until, LockOptions::default()), (Tick::NEVER, other)].map(
        |(until, options)| {
            rig.spawn(move |rig| {
                let got = rig.take_part(until, &options);
                assert!(got || world::now() >= until || rig.queues.is_closed(), "sent away for nothing");
            })
        },
    );
    world::pass_until(until);
    rig.queues.close();
    all(threads.into());
    assert!(matches!(rig.enter(Tick::NEVER), QueueOutcome::Closed));
    rig.assert_empty();
}

/// The client ends. All threads leave the queue, including those that come at this moment. The lock is held all the
/// time, so no thread moves up.
pub fn closed_while_entering() {
    let rig: Rig<()> = Rig::new();
    let head = rig.head();
    let threads = (0..2).map(|_| rig.spawn(|rig| assert!(matches!(rig.enter(Tick::NEVER), QueueOutcome::Closed))));
    let threads = threads.collect();
    rig.queues.close();
    all(threads);
    drop(head);
    rig.assert_empty();
}

/// Threads that only try get the head if no other thread has it. They delay no other thread.
pub fn trying_while_others_wait() {
    let rig: Rig<()> = Rig::new();
    let until = world::now().after(Duration::from_millis(300));
    let trying = (0..2).map(|_| {
        rig.spawn(|rig| {
            if let Some(head) = rig.try_head() {
                rig.hold_and_leave(head);
            }
        })
    });
    let mut threads: Vec<_> = trying.collect();
    threads.extend([Tick::NEVER, until].map(|until| {
        rig.spawn(move |rig| match rig.enter(until) {
            QueueOutcome::Head(head) => rig.hold_and_leave(head),
            QueueOutcome::Late => assert!(world::now() >= until, "before its time"),
            other => unexpected(&other),
        })
    }));
    world::pass_until(until);
    all(threads);
    rig.assert_empty();
    assert!(rig.try_head().is_some());
    rig.assert_empty();
}

/// Threads that share the lock hold it together, and never beside a thread that does not share. Each thread gets the
/// lock, or its time is up.
pub fn sharing() {
    let rig: Rig<()> = Rig::new();
    let until = world::now().after(Duration::from_millis(300));
    let readers = Arc::new(Mutex::new(0_usize));
    let turns = [(SHARED, Tick::NEVER), (EXCLUSIVE, until), (SHARED, Tick::NEVER), (EXCLUSIVE, Tick::NEVER)];
    let threads = turns.map(|(kind, until)| {
        let readers = Arc::clone(&readers);
        rig.spawn(move |rig| {
            let _head = match rig.enter_as(until, kind) {
                QueueOutcome::Head(head) => head,
                QueueOutcome::Late => return assert!(world::now() >= until, "before its time"),
                other => unexpected(&other),
            };
            if kind == SHARED {
                *readers.lock() += 1;
                assert!(!*rig.is_held.lock(), "beside one that does not share");
                *readers.lock() -= 1;
            } else {
                assert_eq!(*readers.lock(), 0, "beside one that shares");
                rig.hold();
            }
        })
    });
    world::pass_until(until);
    all(threads.into());
    rig.assert_empty();
}
