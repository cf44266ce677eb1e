//! The few threads that all nodes of a client share: they make connections, probe, and do what other layers leave to them.

use std::panic::catch_unwind;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use std::{fmt, io, thread};

use parking_lot::Mutex;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::{Failure, FailureKind};

/// A handle to the shared threads, which start with the first job and end with the last handle.
///
/// A job that waits for its time must hold what it needs by `Weak`: a strong handle inside a waiting job would keep everything alive
/// until it has run.
#[derive(Clone)]
pub(crate) struct Background(Arc<LazyThreads>);

struct LazyThreads {
    size: usize,
    threads: OnceLock<Arc<ScheduledThreadPool>>,
    /// Held while they are started.
    starting: Mutex<()>,
    /// Takes the jobs of a simulation.
    #[cfg(test)]
    job_sink: Option<JobSink>,
}

#[cfg(test)]
type JobSink = Box<dyn Fn(Duration, Box<dyn FnOnce() + Send>) + Send + Sync>;

impl Background {
    /// Threads for this many nodes.
    pub(crate) fn new(nodes: usize) -> Background {
        Background(Arc::new(LazyThreads {
            size: nodes.clamp(2, 8),
            threads: OnceLock::new(),
            starting: Mutex::new(()),
            #[cfg(test)]
            job_sink: None,
        }))
    }

    /// Gives each job away.
    #[cfg(test)]
    pub(crate) fn given_to(job_sink: JobSink) -> Background {
        let (threads, starting) = (OnceLock::new(), Mutex::new(()));
        Background(Arc::new(LazyThreads { size: 0, threads, starting, job_sink: Some(job_sink) }))
    }

    /// Jobs are given away.
    #[cfg(test)]
    pub(super) fn is_simulated(&self) -> bool {
        self.0.job_sink.is_some()
    }

    /// Runs the job after a delay. Never if the client is gone by then, or if the threads cannot be started; as long as there is a connection, they
    /// are there.
    pub(crate) fn after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        #[cfg(test)]
        if let Some(job_sink) = &self.0.job_sink {
            return job_sink(delay, Box::new(job));
        }
        match self.threads() {
            Ok(threads) => drop(threads.execute_after(delay, job)),
            Err(failure) => log::warn!("{}", failure.message),
        }
    }

    /// Starts them if they do not run yet. After a failure the next call tries again.
    pub(super) fn threads(&self) -> Result<&Arc<ScheduledThreadPool>, Failure> {
        if let Some(threads) = self.0.threads.get() {
            return Ok(threads);
        }
        let _starting = self.0.starting.lock();
        if let Some(threads) = self.0.threads.get() {
            return Ok(threads);
        }
        let started = start(self.0.size).map_err(|why| {
            Failure::unsent(FailureKind::Unreachable, format!("cannot start the threads that make connections: {why}"))
        })?;
        Ok(self.0.threads.get_or_init(|| Arc::new(started)))
    }
}

/// `build` panics if the system starts no thread. So as many threads are started before, by a function that returns an error.
fn start(size: usize) -> io::Result<ScheduledThreadPool> {
    check_threads_start(size)?;
    let build = move || {
        ScheduledThreadPool::builder()
            .num_threads(size)
            .thread_name_pattern("redlock-pool-{}")
            .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
            .build()
    };
    // In between, other parts of the program can start threads too.
    catch_unwind(build).map_err(|_| io::Error::other("the system started no more threads"))
}

/// Starts so many threads, all of which run at the same time and have ended when this returns.
fn check_threads_start(size: usize) -> io::Result<()> {
    let mut started = Vec::new();
    for _ in 0..size {
        // It ends when the sender is dropped, also where a later one cannot be started.
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
        // The threads end, and with them the job that was waiting.
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
