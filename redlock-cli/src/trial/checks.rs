//! The checks of `redlock doctor --try`.

use std::error::Error as StdError;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::__private::{listens, remove_keys};
use redlock_sync::{Error, Once, Queue, Redlock, RunOutcome, Task};

use super::{Found, Outcome, Trial};

/// The longest wait for something that usually comes at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// What happens sooner than this is prompt, besides the time of the network. A busy machine may need a part of it.
const PROMPT: Duration = Duration::from_millis(150);
/// How often a lock is taken and released, and how often two clients look at one.
const PAIRS: usize = 21;
const LOOKS: usize = 50;
/// What it means if a waiter goes on late.
const LATE: &str = "it works, but waiters go on late: PUBLISH or SUBSCRIBE does not work, or the server is slow";
/// The lease whose end is measured. Longer with a longer node timeout.
const LEASE: Duration = Duration::from_secs(1);
/// The longest body of a task by default.
const BODY: usize = 512 * 1024;

/// The names, each of one check. All keys begin with the prefix of the trial.
const NAMES: [&str; 12] =
    ["lock", "busy", "visible", "wait", "lease", "fence", "rw", "permits", "latch", "once", "queue", "body"];

fn since(began: Instant) -> Found {
    Found::Works(Some(began.elapsed()), String::new())
}

/// Runs `work` so often, or until it has taken long enough, and returns the median of its times.
fn median(
    times: usize,
    mut work: impl FnMut() -> Result<Duration, Box<dyn StdError>>,
) -> Result<Duration, Box<dyn StdError>> {
    let began = Instant::now();
    let mut all = Vec::new();
    while all.is_empty() || all.len() < times && began.elapsed() < PATIENCE {
        all.push(work()?);
    }
    all.sort_unstable();
    Ok(all.get(all.len() / 2).copied().unwrap_or_default())
}

/// Returns an error unless the call was refused because the lock is taken.
fn is_busy<T>(outcome: Result<T, Error>, what: &str) -> Result<(), Box<dyn StdError>> {
    match outcome {
        Err(error) if error.is_busy() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(what.into()),
    }
}

impl Trial {
    pub(super) fn lock(&self) -> Outcome {
        let mutex = self.locks.mutex("lock");
        mutex.try_lock()?.unlock()?;
        let pair = median(PAIRS, || {
            let began = Instant::now();
            mutex.try_lock()?.unlock()?;
            Ok(began.elapsed())
        })?;
        Ok(Found::Works(Some(pair), "a pair".into()))
    }

    pub(super) fn unseen(&self) -> Outcome {
        let began = Instant::now();
        remove_keys(&self.locks, "lock")?;
        Ok(since(began))
    }

    pub(super) fn busy(&self) -> Outcome {
        let guard = self.locks.mutex("busy").try_lock()?;
        is_busy(self.other.mutex("busy").try_lock(), "two clients had the lock at the same time")?;
        guard.unlock()?;
        self.other.mutex("busy").try_lock()?.unlock()?;
        Ok(Found::Works(None, String::new()))
    }

    /// A write that was confirmed to one client is visible to another one.
    pub(super) fn visibility(&self) -> Outcome {
        let (mine, theirs) = (self.locks.mutex("visible"), self.other.mutex("visible"));
        let began = Instant::now();
        let mut times = 0;
        while times < LOOKS && began.elapsed() < PATIENCE {
            times += 1;
            let guard = mine.try_lock()?;
            if !theirs.is_locked()? {
                return Err("another connection did not see a lock that was confirmed".into());
            }
            guard.unlock()?;
            if theirs.is_locked()? {
                return Err("another connection saw a lock after its confirmed release".into());
            }
        }
        Ok(Found::Works(None, format!("{times} times")))
    }

    pub(super) fn wait(&self) -> Outcome {
        let (mine, theirs) = (self.locks.mutex("wait"), self.other.mutex("wait"));
        // The first wait subscribes.
        let mut all = Vec::new();
        for _ in 0..6 {
            let guard = mine.try_lock_for(PATIENCE)?;
            let got = thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let guard = theirs.try_lock_for(PATIENCE)?;
                    let at = Instant::now();
                    guard.unlock().map(|()| at)
                });
                thread::sleep(Duration::from_millis(300));
                let released = Instant::now();
                guard.unlock()?;
                let at = waits.join().map_err(|_| "the waiting thread panicked")??;
                Ok::<_, Box<dyn StdError>>(at.saturating_duration_since(released))
            })?;
            all.push(got);
        }
        let listens = listens(&self.other);
        let mut all = all.split_off(1);
        all.sort_unstable();
        let time = all.get(2).copied().unwrap_or_default();
        let longest = all.last().copied().unwrap_or_default();
        let mut says = format!("from a release to the next holder; the longest of five: {longest:.1?}");
        if !listens {
            says += "; the client could not subscribe";
        }
        let is_prompt = listens && time < self.prompt()?;
        Ok(if is_prompt { Found::Works(Some(time), says) } else { Found::Poorly(time, says, LATE) })
    }

    fn in_time(&self, time: Duration, says: &str) -> Outcome {
        let is_prompt = time < self.prompt()?;
        Ok(if is_prompt { Found::Works(Some(time), says.into()) } else { Found::Poorly(time, says.into(), LATE) })
    }

    /// What takes less long is not slow. A part of it is the network.
    fn prompt(&self) -> Result<Duration, Box<dyn StdError>> {
        Ok(PROMPT + self.round_trip()? * 4)
    }

    fn round_trip(&self) -> Result<Duration, Box<dyn StdError>> {
        median(5, || {
            let began = Instant::now();
            self.locks.mutex("wait").is_locked()?;
            Ok(began.elapsed())
        })
    }

    /// The lock is released at once, but kept by the server for its minimum hold.
    pub(super) fn lease(&self) -> Outcome {
        let lease = self.lease_length();
        let mutex = self.locks.mutex("lease").lease(lease).min_hold(lease);
        let began = Instant::now();
        let guard = mutex.try_lock()?;
        let confirmed = Instant::now();
        guard.unlock()?;
        let deadline = confirmed + lease + PATIENCE;
        let ended = loop {
            match self.other.mutex("lease").try_lock() {
                Ok(guard) => {
                    let at = Instant::now();
                    guard.unlock()?;
                    break at;
                }
                Err(error) if error.is_busy() && Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        };
        let took = ended.saturating_duration_since(began);
        // The lease began between the two times. A clock that is a little slow is no fault.
        if took < lease.mul_f64(0.99) {
            return Err(format!("a lease of {lease:?} ended after {took:.1?}").into());
        }
        let late = ended.saturating_duration_since(confirmed + lease);
        let says = format!("late, of a lease of {lease:?}");
        let meaning = "a lock of a holder that died stays taken for longer than its lease";
        Ok(if late < self.prompt()? { Found::Works(Some(late), says) } else { Found::Poorly(late, says, meaning) })
    }

    /// A lease that the node timeout allows.
    fn lease_length(&self) -> Duration {
        let allowed = |lease: &Duration| {
            let guard = self.locks.mutex("lease").lease(*lease).try_lock();
            !matches!(guard, Err(Error::Config { .. }))
        };
        [LEASE, LEASE * 4].into_iter().find(allowed).unwrap_or(LEASE * 16)
    }

    pub(super) fn fences(&self) -> Outcome {
        let fence = |locks: &Redlock| {
            let guard = locks.mutex("fence").fenced(true).try_lock()?;
            let fence = guard.fencing_token()?;
            guard.unlock().map(|()| fence)
        };
        let (first, second) = (fence(&self.locks)?, fence(&self.other)?);
        if second <= first {
            return Err(format!("{second} came after {first}").into());
        }
        Ok(Found::Works(None, String::new()))
    }

    pub(super) fn rw_lock(&self) -> Outcome {
        let began = Instant::now();
        let (mine, theirs) = (self.locks.rw_lock("rw"), self.other.rw_lock("rw"));
        let readers = (mine.try_read()?, theirs.try_read()?);
        is_busy(theirs.try_write(), "a writer got the lock beside two readers")?;
        readers.0.unlock()?;
        readers.1.unlock()?;
        let writer = theirs.try_write()?;
        is_busy(mine.try_read(), "a reader got the lock beside a writer")?;
        writer.unlock()?;
        Ok(since(began))
    }

    pub(super) fn permits(&self) -> Outcome {
        let began = Instant::now();
        let (mine, theirs) = (self.locks.semaphore("permits", 2), self.other.semaphore("permits", 2));
        let permits = (mine.try_acquire()?, theirs.try_acquire()?);
        is_busy(theirs.try_acquire(), "three holders have two permits")?;
        permits.0.release()?;
        theirs.try_acquire()?.release()?;
        permits.1.release()?;
        Ok(since(began))
    }

    pub(super) fn latch(&self) -> Outcome {
        let (mine, theirs) = (self.locks.count_down_latch("latch", 1), self.other.count_down_latch("latch", 1));
        let (opened, told) = thread::scope(|scope| {
            let waits = scope.spawn(|| theirs.wait_for(PATIENCE).map(|()| Instant::now()));
            thread::sleep(Duration::from_millis(200));
            let opened = Instant::now();
            mine.count_down()?;
            let told = waits.join().map_err(|_| "the waiting thread panicked")??;
            Ok::<_, Box<dyn StdError>>((opened, told))
        })?;
        self.in_time(told.saturating_duration_since(opened), "from the last arrival to the waiter")
    }

    pub(super) fn once(&self) -> Outcome {
        let run = |once: Once| once.run(|_| Ok::<(), Error>(()));
        let (mine, theirs) = (self.locks.once("once"), self.other.once("once"));
        if !matches!(run(mine)?, RunOutcome::Ran(())) || !matches!(run(theirs)?, RunOutcome::Done) {
            return Err("the job was not run exactly once".into());
        }
        Ok(Found::Works(None, String::new()))
    }

    fn on_one_node(&self, name: &str, work: impl FnOnce(Queue, Queue) -> Outcome) -> Outcome {
        if self.locks.health()?.nodes().len() > 1 {
            return Ok(Found::Skipped("a queue is on one server".into()));
        }
        work(self.locks.queue(name), self.other.queue(name))
    }

    pub(super) fn queue(&self) -> Outcome {
        self.on_one_node("queue", |mine, theirs| {
            let (pushed, claimed) = thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let job = theirs.try_claim_for(PATIENCE)?.ok_or("a waiting client got no task")?;
                    let at = Instant::now();
                    job.ack()?;
                    Ok::<_, Box<dyn StdError + Send + Sync>>(at)
                });
                thread::sleep(Duration::from_millis(300));
                let pushed = Instant::now();
                mine.push("redlock doctor")?;
                let claimed =
                    waits.join().map_err(|_| "the waiting thread panicked")?.map_err(|error| error.to_string())?;
                Ok::<_, Box<dyn StdError>>((pushed, claimed))
            })?;
            let delay = Duration::from_millis(200);
            let began = Instant::now();
            mine.push(Task::new("redlock doctor").after(delay))?;
            mine.try_claim_for(PATIENCE)?.ok_or("a delayed task was not due in time")?.ack()?;
            if began.elapsed() < delay {
                return Err("a delayed task was due early".into());
            }
            self.in_time(claimed.saturating_duration_since(pushed), "from a push to the waiting client")
        })
    }

    pub(super) fn body(&self) -> Outcome {
        self.on_one_node("body", |mine, theirs| {
            let began = Instant::now();
            let body: Vec<u8> = (0..=250).cycle().take(BODY).collect();
            mine.push(body.clone())?;
            let job = theirs.try_claim_for(PATIENCE)?.ok_or("the task was not there")?;
            if job.body() != body {
                return Err("the body came back changed".into());
            }
            job.ack()?;
            Ok(since(began))
        })
    }

    /// Fence counters and the like outlive their locks.
    pub(super) fn removed(&self) -> Outcome {
        // All of them are tried, also behind one that fails.
        NAMES.map(|name| remove_keys(&self.locks, name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        let left: u64 = NAMES.iter().map(|name| remove_keys(&self.locks, name)).sum::<Result<_, _>>()?;
        if left > 0 {
            return Err(format!("{left} keys were there after their removal").into());
        }
        Ok(Found::Works(None, String::new()))
    }
}
