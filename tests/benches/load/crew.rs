//! Threads that lock and unlock, and the results.

use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Mutex};
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::float;
use redlock_tests::bench::{Outcome, clock};

/// The pace at which a thread locks and unlocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    pub(crate) hold: Duration,
    pub(crate) pause: Duration,
}

/// The work that a thread repeats.
pub(crate) trait Cycle: Send {
    /// Acquires a lock, holds it, and releases it.
    fn once(&mut self, hold: Duration) -> Outcome<Result<(), Error>>;
}

impl Cycle for Mutex {
    fn once(&mut self, hold: Duration) -> Outcome<Result<(), Error>> {
        Ok(self.lock().and_then(|guard| {
            sleep(hold);
            guard.unlock()
        }))
    }
}

/// A mutex whose guards are dropped. A drop does not wait for the server, unlike `unlock`.
pub(crate) struct Dropping(pub(crate) Mutex);

impl Cycle for Dropping {
    fn once(&mut self, hold: Duration) -> Outcome<Result<(), Error>> {
        Ok(self.0.lock().map(|guard| {
            sleep(hold);
            drop(guard);
        }))
    }
}

impl Cycle for RawLock {
    fn once(&mut self, hold: Duration) -> Outcome<Result<(), Error>> {
        self.acquire()?;
        sleep(hold);
        self.release().map(Ok)
    }
}

/// Sleeps, but does not call the system if the time is zero.
fn sleep(span: Duration) {
    if !span.is_zero() {
        thread::sleep(span);
    }
}

/// The results of a load.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The times at which the pairs ended that succeeded.
    pairs: Vec<u64>,
    /// The number of locks that were lost while they were held.
    pub(crate) lost: u64,
    /// The number of releases that were not confirmed.
    pub(crate) unconfirmed: u64,
    /// The number of all other errors.
    pub(crate) errors: u64,
    /// The message of the first error.
    pub(crate) first: Option<String>,
}

impl Tally {
    /// Adds the outcome of a pair.
    fn count(&mut self, outcome: Result<(), Error>) {
        let error = match outcome {
            Ok(()) => return self.pairs.push(clock::now()),
            Err(error) => error,
        };
        match &error {
            Error::Lost { .. } => self.lost += 1,
            Error::Unconfirmed { .. } => self.unconfirmed += 1,
            _ => self.errors += 1,
        }
        self.first.get_or_insert_with(|| error.to_string());
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.pairs.extend(other.pairs);
        self.lost += other.lost;
        self.unconfirmed += other.unconfirmed;
        self.errors += other.errors;
        self.first = self.first.take().or(other.first);
    }

    /// Returns the tally without its pairs. Only the errors remain.
    pub(crate) fn without_pairs(mut self) -> Self {
        self.pairs = Vec::new();
        self
    }

    /// The number of pairs per second that ended between two times.
    pub(crate) fn per_second(&self, start: u64, end: u64) -> f64 {
        let count = self.pairs.iter().filter(|at| (start..end).contains(*at)).count();
        float(count as u64) / (float(end - start) / 1e9)
    }

    /// The number of errors of all kinds.
    pub(crate) fn failures(&self) -> u64 {
        self.lost + self.unconfirmed + self.errors
    }

    /// Prints the errors of a load, because the table has only numbers.
    pub(crate) fn tell(&self, load: &str) {
        if let Some(first) = &self.first {
            let Self { lost, unconfirmed, errors, .. } = self;
            eprintln!("{load}: {lost} lost, {unconfirmed} unconfirmed, {errors} other errors; first: {first}");
        }
    }
}

/// The time at which threads that are started now can begin together.
pub(crate) fn start_of(threads: usize) -> u64 {
    clock::now() + 2_000_000 + 100_000 * threads as u64
}

/// Repeats the cycle of each member of the crew, on a thread of its own, from `start` to `end`. A cycle that has begun
/// by the end is finished.
pub(crate) fn run<C: Cycle>(crew: &mut [C], pace: Pace, start: u64, end: u64) -> Outcome<Tally> {
    let work = |member: &mut C| -> Outcome<Tally> {
        let mut tally = Tally::default();
        clock::sleep_until(start);
        while clock::now() < end {
            tally.count(member.once(pace.hold)?);
            sleep(pace.pause);
        }
        Ok(tally)
    };
    thread::scope(|scope| {
        let running: Vec<_> = crew.iter_mut().map(|member| scope.spawn(move || work(member))).collect();
        running.into_iter().try_fold(Tally::default(), |mut sum, thread| {
            sum.add(thread.join().map_err(|_| "a thread panicked")??);
            Ok(sum)
        })
    })
}
