//! Threads that lock, hold and wait while a cluster changes, and the errors that they get.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redlock_sync::{Error, Mutex, Redlock};
use redlock_tests::eventually;

use super::SOON;

/// One cycle of a thread. It takes a lock, calls the argument, and releases the lock.
pub(super) type Cycle = Box<dyn Fn(&dyn Fn()) -> Result<(), Failed> + Send>;

/// The step at which a cycle failed.
pub(super) enum Failed {
    Lock(Error),
    Unlock(Error),
}

#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    cycles: Vec<AtomicUsize>,
    /// The errors, with how often each occurred.
    locks: std::sync::Mutex<BTreeMap<String, usize>>,
    unlocks: std::sync::Mutex<BTreeMap<String, usize>>,
}

pub(super) struct Load {
    seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts a thread for each cycle, which repeats it until the end.
    pub(super) fn start(cycles: Vec<Cycle>) -> Load {
        let counts = cycles.iter().map(|_| AtomicUsize::new(0)).collect();
        let seen = Arc::new(Seen { cycles: counts, ..Seen::default() });
        let run = |(i, cycle): (usize, Cycle)| {
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                while !seen.is_over.load(Ordering::SeqCst) {
                    match cycle(&|| thread::sleep(Duration::from_millis(fastrand::u64(0..4)))) {
                        Ok(()) => _ = seen.cycles[i].fetch_add(1, Ordering::SeqCst),
                        Err(Failed::Lock(error)) => note(&seen.locks, &error),
                        Err(Failed::Unlock(error)) => note(&seen.unlocks, &error),
                    }
                }
            })
        };
        let threads = cycles.into_iter().enumerate().map(run).collect();
        Load { seen, threads }
    }

    /// Waits until each of the first `threads` threads has made `cycles` more cycles.
    pub(super) fn goes_on(&self, threads: usize, cycles: usize) {
        self.goes_on_within(SOON, threads, cycles);
    }

    pub(super) fn goes_on_within(&self, time: Duration, threads: usize, cycles: usize) {
        let count =
            || self.seen.cycles.iter().take(threads).map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let before = count();
        eventually("the threads go on", time, || count().iter().zip(&before).all(|(now, then)| *now >= then + cycles));
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Ends the load. Returns the errors of locking and those of unlocking.
    pub(super) fn end(self) -> [Vec<String>; 2] {
        self.seen.is_over.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        [&self.seen.locks, &self.seen.unlocks].map(|errors| {
            let errors = std::mem::take(&mut *errors.lock().unwrap());
            let all: Vec<_> = errors.into_iter().map(|(error, times)| format!("{times} times {error}")).collect();
            for error in &all {
                let is_redirect = ["MOVED", "ASK ", "CROSSSLOT"].iter().any(|word| error.contains(word));
                assert!(!is_redirect, "a redirect reached the user: {error}");
            }
            all
        })
    }
}

/// Counts the error by its kind and text.
fn note(errors: &std::sync::Mutex<BTreeMap<String, usize>>, error: &Error) {
    let is_documented = matches!(
        error,
        Error::Busy { .. } | Error::Unavailable { .. } | Error::Unconfirmed { .. } | Error::Lost { .. }
    );
    let text = format!("{}{error}", if is_documented { "" } else { "UNDOCUMENTED " });
    *errors.lock().unwrap().entry(text).or_default() += 1;
}

/// Counts the threads that hold the lock, to detect two at a time.
#[derive(Default)]
pub(super) struct Room(AtomicUsize);

impl Room {
    pub(super) fn enter(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "the lock had two holders");
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A thread that takes a mutex repeatedly. The room, if there is one, checks that it has one holder at a time.
pub(super) fn mutexes(locks: &Redlock, key: &str, room: Option<&Arc<Room>>) -> Cycle {
    cycles_of(locks.mutex(key), room)
}

pub(super) fn cycles_of(mutex: Mutex, room: Option<&Arc<Room>>) -> Cycle {
    let room = room.cloned();
    Box::new(move |hold| {
        let guard = mutex.try_lock_for(SOON).map_err(Failed::Lock)?;
        if let Some(room) = &room {
            room.enter();
        }
        hold();
        if let Some(room) = &room {
            room.leave();
        }
        guard.unlock().map_err(Failed::Unlock)
    })
}

pub(super) fn permits(locks: &Redlock, key: &str) -> Cycle {
    let semaphore = locks.semaphore(key, 2);
    Box::new(move |hold| {
        let permit = semaphore.try_acquire_for(SOON).map_err(Failed::Lock)?;
        hold();
        permit.release().map_err(Failed::Unlock)
    })
}

pub(super) fn writers(locks: &Redlock, key: &str) -> Cycle {
    let lock = locks.rw_lock(key);
    Box::new(move |hold| {
        let guard = lock.try_write_for(SOON).map_err(Failed::Lock)?;
        hold();
        guard.unlock().map(drop).map_err(Failed::Unlock)
    })
}

pub(super) fn readers(locks: &Redlock, key: &str) -> Cycle {
    let lock = locks.rw_lock(key);
    Box::new(move |hold| {
        let guard = lock.try_read_for(SOON).map_err(Failed::Lock)?;
        hold();
        guard.unlock().map(drop).map_err(Failed::Unlock)
    })
}

pub(super) fn several(locks: &Redlock, keys: &[String]) -> Cycle {
    let lock = locks.multi_lock(keys);
    Box::new(move |hold| {
        let guard = lock.try_lock_for(SOON).map_err(Failed::Lock)?;
        hold();
        guard.unlock().map_err(Failed::Unlock)
    })
}
