//! Threads of one process that contend for one lock, and release it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Mutex;
use redlock_tests::bench::worker::answer_orders;
use redlock_tests::bench::{Outcome, client, clock};

/// The time for which a thread may wait for the lock after the end of its block. A longer wait is an error.
const GRACE: Duration = Duration::from_secs(15);

/// The results of a crowd in a block.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) acquisitions: u64,
    /// The longest wait of any thread, in nanoseconds.
    pub(crate) longest_wait: u64,
}

/// Lets `threads` threads lock and unlock from `start` to `end`.
pub(crate) fn run(mutex: &Mutex, threads: usize, start: u64, end: u64) -> Outcome<Crowd> {
    let inside = AtomicBool::new(false);
    let parts: Vec<Outcome<Crowd>> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| one(mutex, &inside, start, end))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    parts.into_iter().try_fold(Crowd::default(), |sum, part| {
        let part = part?;
        let longest_wait = sum.longest_wait.max(part.longest_wait);
        Ok(Crowd { acquisitions: sum.acquisitions + part.acquisitions, longest_wait })
    })
}

fn one(mutex: &Mutex, inside: &AtomicBool, start: u64, end: u64) -> Outcome<Crowd> {
    let mut done = Crowd::default();
    clock::sleep_until(start);
    let give_up = Instant::now() + Duration::from_nanos(end.saturating_sub(start)) + GRACE;
    let mut wanted = clock::now();
    while wanted < end {
        let guard = mutex.try_lock_until(give_up)?;
        let got = clock::now();
        if inside.swap(true, Ordering::AcqRel) {
            return Err("two threads hold the lock".into());
        }
        done.acquisitions += u64::from(got < end);
        done.longest_wait = done.longest_wait.max(got.min(end) - wanted);
        inside.store(false, Ordering::Release);
        guard.unlock()?;
        wanted = clock::now();
    }
    Ok(done)
}

/// The main function of a crowd in a process of its own: `THREADS KEY URL…`. Each order is `START END`.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [threads, key, urls @ ..] = args else { return Err("a crowd needs threads and a key".into()) };
    let mutex = client(urls).build()?.mutex(key);
    let threads = threads.parse()?;
    answer_orders(|words| {
        let done = run(&mutex, threads, words[0].parse()?, words[1].parse()?)?;
        Ok(vec![done.acquisitions, done.longest_wait])
    })
}
