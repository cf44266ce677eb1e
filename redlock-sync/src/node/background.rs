//! The thread pool that all nodes of a client share. Its threads make connections, probe servers, and run jobs for
//! other layers.

use std::panic::catch_unwind;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fmt, io, thread};

use parking_lot::Mutex;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::{Failure, FailureKind};

/// A handle to the shared thread pool. The threads start with the first job and end when the last handle is dropped.
///
/// A delayed job must hold what it needs by `Weak`. A strong reference would keep its target alive until the job has
/// run.
#[derive(Clone)]
pub(crate) struct Background(Arc<LazyThreads>);

struct LazyThreads {
    size: usize,
    /// `None` before the first job. Locked while the threads are started.
    threads: Mutex<Option<Arc<ScheduledThreadPool>>>,
    /// Receives all jobs instead of the threads, in a simulation.
    #[cfg(test)]
    job_sink: Option<JobSink>,
}

#[cfg(test)]
type JobSink = Box<dyn Fn(Duration, Box<dyn FnOnce() + Send>) + Send + Sync>;

impl Background {
    /// A pool sized for this many nodes.
    pub(crate) fn new(nodes: usize) -> Background {
        Background(Arc::new(LazyThreads {
            size: nodes.clamp(2, 8),
            threads: Mutex::default(),
            #[cfg(test)]
            job_sink: None,
        }))
    }

    /// Passes every job to the simulation.
    #[cfg(test)]
    pub(crate) fn given_to(job_sink: JobSink) -> Background {
        Background(Arc::new(LazyThreads { size: 0, threads: Mutex::default(), job_sink: Some(job_sink) }))
    }

    /// True if jobs go to a simulation.
    #[cfg(test)]
    pub(super) fn is_simulated(&self) -> bool {
        self.0.job_sink.is_some()
    }

    /// Runs the job after a delay, unless the client is dropped before. Returns false if the threads cannot be started.
    /// Then the job does not run.
    pub(crate) fn after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) -> bool {
        #[cfg(test)]
        if let Some(job_sink) = &self.0.job_sink {
            job_sink(delay, Box::new(job));
            return true;
        }
        let threads = self.threads().inspect_err(|failure| log::warn!("{}", failure.message));
        threads.map(|threads| threads.execute_after(delay, job)).is_ok()
    }

    /// Returns the threads, and starts them if needed. If that fails, the next call tries again.
    pub(super) fn threads(&self) -> Result<Arc<ScheduledThreadPool>, Failure> {
        let mut threads = self.0.threads.lock();
        if let Some(threads) = &*threads {
            return Ok(Arc::clone(threads));
        }
        let started = start(self.0.size).map_err(|why| {
            Failure::unsent(FailureKind::Unreachable, format!("cannot start the threads that make connections: {why}"))
        })?;
        Ok(Arc::clone(threads.insert(Arc::new(started))))
    }
}

/// Starts the pool. `build` panics if the system cannot start a thread, so `check_threads_start` first tries it with a
/// function that returns an error.
fn start(size: usize) -> io::Result<ScheduledThreadPool> {
    check_threads_start(size)?;
    let build = move || {
        ScheduledThreadPool::builder()
            .num_threads(size)
            .thread_name_pattern("redlock-pool-{}")
            .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
            .build()
    };
    // Other parts of the program may have started threads since the check.
    // Not `handler::caught`: no code of users runs here.
    catch_unwind(build).map_err(|_| io::Error::other("the operating system refused to start more threads"))
}

/// Starts this many threads at the same time. All of them have ended when this returns.
fn check_threads_start(size: usize) -> io::Result<()> {
    let mut started = Vec::new();
    for _ in 0..size {
        // The thread ends when its sender is dropped, also if a later thread cannot be started.
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("redlock-start".into()).spawn(move || _ = ended.recv())?;
        started.push((end, thread));
    }
    for (end, thread) in started {
        drop(end);
        drop(thread.join());
    }
    Ok(())
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Background({} threads)", self.0.size)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_and_a_job_may_drop_the_last_handle() {
        let (tx, rx) = mpsc::channel();
        let background = Background::new(1);
        let mine = background.clone();
        let later = tx.clone();
        background.after(Duration::from_secs(3600), move || later.send("much later").unwrap());
        background.after(Duration::ZERO, move || {
            drop(mine);
            tx.send("now").unwrap();
        });
        drop(background);
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok("now"));
        // The threads end, and drop the job that is not due yet.
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
