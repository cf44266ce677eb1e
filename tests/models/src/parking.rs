//! Models of threads that sleep until a cell changes, or until they are cancelled: `parker.rs` and `cancel.rs`.
//!
//! Time stands still unless a model lets it pass. So a lost wake-up is a deadlock.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::parker::{Parker, pause};
use crate::sync::Mutex;
use crate::world::{self, ModelClock};

/// Takes one of those that other threads have put into the cell.
fn take(parker: &Arc<Parker<u32>>, until: Tick, cancel: &Cancel) -> Option<u32> {
    let one = |cell: &mut u32| cell.checked_sub(1).map(|left| std::mem::replace(cell, left) - left);
    // Another thread can run between the looks at the two. So `cancel` may be cancelled after the look at it.
    let never = Cancel::new();
    parker.wait(&ModelClock, until, &[None, Some(cancel), Some(&never)], one)
}

fn taker(parker: &Arc<Parker<u32>>, cancel: &Cancel) -> JoinHandle<Option<u32>> {
    let (parker, cancel) = (Arc::clone(parker), cancel.clone());
    thread::spawn(move || take(&parker, Tick::NEVER, &cancel))
}

/// Each of two threads takes one of two, whether it sleeps by then or not.
pub fn a_change_wakes() {
    let (parker, cancel) = (Parker::new(0), Cancel::new());
    let takers = [taker(&parker, &cancel), taker(&parker, &cancel)];
    for _ in 0..2 {
        parker.change(|cell| *cell += 1);
    }
    assert!(takers.into_iter().all(|taker| taker.join().unwrap() == Some(1)));
}

/// A wait is cancelled before it begins, while it is registered, or while it sleeps. It always ends.
pub fn cancelled_at_each_moment() {
    let (parker, cancel) = (Parker::new(0), Cancel::new());
    let taker = taker(&parker, &cancel);
    cancel.cancel();
    assert_eq!(taker.join().unwrap(), None);
}

/// Two threads sleep for cells of their own with one `Cancel`, and one more sleeps with another `Cancel`.
pub fn sleepers_of_one_cancel() {
    let (cancel, other) = (Cancel::new(), Cancel::new());
    let takers = [(); 2].map(|()| taker(&Parker::new(0), &cancel));
    let cell = Parker::new(0);
    let patient = taker(&cell, &other);
    cancel.cancel();
    assert!(takers.into_iter().all(|taker| taker.join().unwrap().is_none()));
    cell.change(|cell| *cell = 1);
    assert_eq!(patient.join().unwrap(), Some(1), "the wrong one was cancelled");
}

/// The outer `Cancel` ends the sleep too. Two threads cancel at the same time.
pub fn cancelled_by_the_outer_one() {
    let outer = Cancel::new();
    let inner = Cancel::within(Some(outer.clone()));
    let sleeper = taker(&Parker::new(0), &inner);
    let theirs = outer.clone();
    let both = thread::spawn(move || theirs.cancel());
    outer.cancel();
    assert_eq!(sleeper.join().unwrap(), None);
    both.join().unwrap();
    let again = Cancel::within(Some(outer));
    assert_eq!(take(&Parker::new(0), Tick::NEVER, &again), None);
}

/// The cell changes when the sleep is cancelled. What was put into the cell is taken, or is still there.
pub fn changed_while_it_is_cancelled() {
    let (parker, cancel) = (Parker::new(0), Cancel::new());
    let taker = taker(&parker, &cancel);
    let theirs = Arc::clone(&parker);
    let giver = thread::spawn(move || theirs.change(|cell| *cell = 1));
    cancel.cancel();
    let got = taker.join().unwrap();
    giver.join().unwrap();
    assert_eq!(got.unwrap_or_default() + *parker.lock(), 1);
}

/// A thread sleeps several times with one `Cancel`. Another thread's sleeps come and go meanwhile.
pub fn one_sleep_after_the_other() {
    let cancel = Cancel::new();
    let threads = [(); 2].map(|()| {
        let cancel = cancel.clone();
        thread::spawn(move || {
            for _ in 0..3 {
                assert_eq!(take(&Parker::new(1), Tick::NEVER, &cancel), Some(1));
            }
            take(&Parker::new(0), Tick::NEVER, &cancel)
        })
    });
    cancel.cancel();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap().is_none()));
}

/// A pause ends at its time, or when one of two is cancelled. It is longer than a thread sleeps without a look at the
/// clock.
pub fn a_pause() {
    let (one, other) = (Cancel::new(), Cancel::new());
    let end = world::now().after(Duration::from_secs(3));
    let is_over = Arc::new(Mutex::new(false));
    let (theirs, told) = ([one.clone(), other.clone()], Arc::clone(&is_over));
    let sleeper = thread::spawn(move || {
        pause(&ModelClock, end, &[Some(&theirs[0]), None, Some(&theirs[1])]);
        *told.lock() = true;
        assert!(world::now() >= end || theirs.iter().any(Cancel::is_cancelled), "before its time");
    });
    let canceller = thread::spawn(move || other.cancel());
    while !*is_over.lock() {
        world::pass(Duration::from_millis(500));
        thread::yield_now();
    }
    sleeper.join().unwrap();
    canceller.join().unwrap();
}
