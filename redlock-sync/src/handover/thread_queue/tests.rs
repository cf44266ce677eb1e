//! The thread queue, without servers.

use super::*;
use crate::clock::SystemClock;
use crate::handover::sharing::{HolderCount, JOINS_PER_CHECK};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const KIND: Kind = Kind { name: "mutex", mode: Mode::Exclusive };
const SHARED: Kind = Kind { name: "permit", mode: Mode::Shared };

fn queues() -> Arc<ThreadQueues<u32>> {
    ThreadQueues::new(Arc::new(SystemClock))
}

fn at_head(queues: &Arc<ThreadQueues<u32>>, key: &Arc<str>, until: Tick) -> Option<QueueHead<u32>> {
    match queues.enqueue(key, until, KIND, &LockOptions::default()) {
        QueueOutcome::Head(head) => Some(head),
        _ => None,
    }
}

fn try_head(queues: &Arc<ThreadQueues<u32>>, key: &Arc<str>, kind: Kind) -> Option<QueueHead<u32>> {
    match queues.try_enqueue(key, kind, &LockOptions::default())? {
        QueueOutcome::Head(head) => Some(head),
        _ => None,
    }
}

fn waiting(queues: &ThreadQueues<u32>, key: &Arc<str>) -> usize {
    queues.by_key.lock().get(key).map_or(0, |queue| queue.waiting.len())
}

fn until_waiting(queues: &ThreadQueues<u32>, key: &Arc<str>, n: usize) {
    while waiting(queues, key) != n {
        SystemClock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn first_come_first_served() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let head = at_head(&queues, &key, Tick::NEVER).unwrap();
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let (queues, key, tell) = (Arc::clone(&queues), Arc::clone(&key), tell.clone());
            let thread = thread::spawn({
                let queues = Arc::clone(&queues);
                let key = Arc::clone(&key);
                move || {
                    let _turn = at_head(&queues, &key, Tick::NEVER).unwrap();
                    tell.send(i).unwrap();
                }
            });
            until_waiting(&queues, &key, i + 1);
            thread
        })
        .collect();
    drop(head);
    assert_eq!(told.iter().take(8).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(queues.by_key.lock().is_empty(), "nothing is left of an idle queue");
}

#[test]
fn a_thread_that_gives_up_leaves_no_gap() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let head = at_head(&queues, &key, Tick::NEVER).unwrap();
    let soon = SystemClock.now().after(Duration::from_millis(5));
    assert!(at_head(&queues, &key, soon).is_none());
    assert_eq!(waiting(&queues, &key), 0);
    drop(head);
    assert!(at_head(&queues, &key, Tick::ZERO).is_some());
}

#[test]
fn giving_up_while_moving_up_passes_the_turn_on() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    for _ in 0..200 {
        let head = at_head(&queues, &key, Tick::NEVER).unwrap();
        let racer = {
            let (queues, key) = (Arc::clone(&queues), Arc::clone(&key));
            let until = SystemClock.now().after(Duration::from_micros(fastrand::u64(50..400)));
            thread::spawn(move || drop(at_head(&queues, &key, until)))
        };
        SystemClock.sleep(Duration::from_micros(fastrand::u64(50..400)));
        drop(head);
        racer.join().unwrap();
        assert!(queues.by_key.lock().is_empty());
    }
}

#[test]
fn a_gift_goes_to_the_first_thread_that_wants_it_with_the_same_settings() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let head = at_head(&queues, &key, Tick::NEVER).unwrap();
    assert!(head.successor(KIND, &LockOptions::default()).is_none());
    let waiter = {
        let (queues, key) = (Arc::clone(&queues), Arc::clone(&key));
        thread::spawn(move || queues.enqueue(&key, Tick::NEVER, KIND, &LockOptions::default()))
    };
    until_waiting(&queues, &key, 1);
    let other = LockOptions { renew: false, ..LockOptions::default() };
    assert!(!head.has_successor(KIND, &other) && head.successor(KIND, &other).is_none());
    head.successor(KIND, &LockOptions::default()).unwrap().hand_over(7);
    assert!(matches!(waiter.join().unwrap(), QueueOutcome::Handed(7)));
}

#[test]
fn a_thread_whose_time_runs_out_while_promised_takes_the_gift() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    for _ in 0..100 {
        let head = at_head(&queues, &key, Tick::NEVER).unwrap();
        let waiter = {
            let (queues, key) = (Arc::clone(&queues), Arc::clone(&key));
            let until = SystemClock.now().after(Duration::from_micros(fastrand::u64(100..600)));
            thread::spawn(move || queues.enqueue(&key, until, KIND, &LockOptions::default()))
        };
        SystemClock.sleep(Duration::from_micros(fastrand::u64(50..600)));
        let thread = head.successor(KIND, &LockOptions::default());
        let promised = thread.is_some();
        if let Some(thread) = thread {
            SystemClock.sleep(Duration::from_micros(fastrand::u64(0..300)));
            thread.hand_over(1);
        }
        let got = matches!(waiter.join().unwrap(), QueueOutcome::Handed(1));
        assert_eq!(got, promised, "what is handed over arrives");
    }
}

#[test]
fn closing_sends_everybody_away() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let _turn = at_head(&queues, &key, Tick::NEVER).unwrap();
    let waiter = {
        let (queues, key) = (Arc::clone(&queues), Arc::clone(&key));
        thread::spawn(move || queues.enqueue(&key, Tick::NEVER, KIND, &LockOptions::default()))
    };
    until_waiting(&queues, &key, 1);
    queues.close();
    assert!(matches!(waiter.join().unwrap(), QueueOutcome::Closed));
    assert!(matches!(queues.enqueue(&key, Tick::NEVER, KIND, &LockOptions::default()), QueueOutcome::Closed));
}

/// A thread of a test, and the channel that makes it leave the queue.
struct Entrant {
    thread: thread::JoinHandle<()>,
    leave: mpsc::Sender<()>,
}

/// Starts a thread that wants a lock of this kind. The thread reports its number when it is a queue head. It stays the
/// head until the test makes it leave.
fn enter(
    queues: &Arc<ThreadQueues<u32>>,
    key: &Arc<str>,
    kind: Kind,
    number: u32,
    tell: &mpsc::Sender<u32>,
) -> Entrant {
    let (queues, key, tell) = (Arc::clone(queues), Arc::clone(key), tell.clone());
    let (leave, left) = mpsc::channel();
    let thread = thread::spawn(move || {
        if let QueueOutcome::Head(_head) = queues.enqueue(&key, Tick::NEVER, kind, &LockOptions::default()) {
            tell.send(number).unwrap();
            left.recv().unwrap();
        }
    });
    Entrant { thread, leave }
}

#[test]
fn threads_that_share_a_lock_are_heads_together_and_others_wait_for_all_of_them() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let head = at_head(&queues, &key, Tick::NEVER).unwrap();
    let (tell, told) = mpsc::channel();
    // Two threads share, one does not, and one that shares is behind it.
    let mut entrants = Vec::new();
    for (number, kind) in [(0, SHARED), (1, SHARED), (2, KIND), (3, SHARED)] {
        entrants.push(enter(&queues, &key, kind, number, &tell));
        until_waiting(&queues, &key, entrants.len());
    }
    drop(head);
    let mut first: Vec<u32> = told.iter().take(2).collect();
    first.sort_unstable();
    assert_eq!(first, [0, 1]);
    assert!(try_head(&queues, &key, SHARED).is_none(), "one that does not share waits before it");
    let mut entrants = entrants.into_iter();
    for (leaves, next) in [(2, 2), (1, 3)] {
        for entrant in entrants.by_ref().take(leaves) {
            assert!(told.try_recv().is_err());
            entrant.leave.send(()).unwrap();
            entrant.thread.join().unwrap();
        }
        assert_eq!(told.recv().unwrap(), next);
    }
    let beside = try_head(&queues, &key, SHARED);
    assert!(beside.is_some() && try_head(&queues, &key, KIND).is_none());
    for entrant in entrants {
        entrant.leave.send(()).unwrap();
        entrant.thread.join().unwrap();
    }
    drop(beside);
    assert!(queues.by_key.lock().is_empty());
}

#[test]
fn a_thread_that_gives_up_lets_those_behind_it_share() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let _shared = try_head(&queues, &key, SHARED).unwrap();
    let waiter = {
        let (queues, key) = (Arc::clone(&queues), Arc::clone(&key));
        let until = SystemClock.now().after(Duration::from_millis(50));
        thread::spawn(move || queues.enqueue(&key, until, KIND, &LockOptions::default()))
    };
    until_waiting(&queues, &key, 1);
    let (tell, told) = mpsc::channel();
    let behind = enter(&queues, &key, SHARED, 7, &tell);
    assert!(matches!(waiter.join().unwrap(), QueueOutcome::Late));
    assert_eq!(told.recv().unwrap(), 7);
    behind.leave.send(()).unwrap();
    behind.thread.join().unwrap();
}

const JOINT: Kind = Kind { name: "reader", mode: Mode::Joint };

fn shared(gate: &Arc<HolderCount>, part: u32) -> SharedLease<u32> {
    SharedLease::new(JOINT, Arc::default(), Arc::clone(gate), Box::new(move |_| part))
}

#[test]
fn what_is_shared_is_joined_until_it_is_closed_or_another_thread_waits_for_it_alone() {
    let (queues, key): (_, Arc<str>) = (queues(), "k".into());
    let plain = LockOptions::default();
    let gate = Arc::new(HolderCount::new());
    let head = try_head(&queues, &key, JOINT).unwrap();
    assert!(try_head(&queues, &key, JOINT).is_none(), "one competes for all");
    assert!(queues.join(&key, JOINT, &plain).is_none());
    head.share(shared(&gate, 7));
    assert_eq!(queues.join(&key, JOINT, &plain), Some((7, false)));
    let other = LockOptions { fenced: true, ..LockOptions::default() };
    assert!(queues.join(&key, JOINT, &other).is_none() && queues.join(&key, SHARED, &plain).is_none());
    assert!(matches!(queues.enqueue(&key, Tick::NEVER, JOINT, &plain), QueueOutcome::Handed(7)));
    let writer = at_head(&queues, &key, Tick::NEVER).unwrap();
    assert!(queues.join(&key, JOINT, &plain).is_none(), "one waits that wants it alone");
    drop(writer);
    assert!(matches!(queues.try_enqueue(&key, JOINT, &plain), Some(QueueOutcome::Handed(7))));
    assert!(!gate.leave() && !gate.leave() && !gate.leave(), "four hold it");
    queues.unshare(&key);
    assert!(gate.is_open() && gate.leave() && !gate.try_join());
    queues.unshare(&key);
    assert!(queues.by_key.lock().is_empty());
}

#[test]
fn a_look_is_due_after_some_joins_or_some_time() {
    let mut shared = shared(&Arc::new(HolderCount::new()), 7).open(Tick::ZERO);
    let at = |ms| Tick::ZERO.after(Duration::from_millis(ms));
    let plain = LockOptions::default();
    for _ in 0..JOINS_PER_CHECK {
        assert_eq!(shared.join(JOINT, &plain, at(0)), Some(7));
    }
    assert!(shared.is_check_due(at(1)) && !shared.is_check_due(at(20)));
    assert!(shared.is_check_due(at(21)) && !shared.is_check_due(at(22)));
}
