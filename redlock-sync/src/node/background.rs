//! The few threads that all nodes of a client share: they make connections, probe, and do what other layers leave to them.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

/// A handle to the shared threads, which start with the first job and end with the last handle.
///
/// A job that waits for its time must hold what it needs by `Weak`: a strong handle inside a waiting job would keep everything alive
/// until it has run.
#[derive(Clone)]
pub(crate) struct Background(Arc<Lazy>);

struct Lazy {
    size: usize,
    threads: OnceLock<Arc<ScheduledThreadPool>>,
    /// Takes the jobs of a simulation.
    #[cfg(test)]
    taker: Option<Taker>,
}

#[cfg(test)]
type Taker = Box<dyn Fn(Duration, Box<dyn FnOnce() + Send>) + Send + Sync>;

impl Background {
    /// Threads for this many nodes.
    pub(crate) fn new(nodes: usize) -> Background {
        Background(Arc::new(Lazy {
            size: nodes.clamp(2, 8),
            threads: OnceLock::new(),
            #[cfg(test)]
            taker: None,
        }))
    }

    /// Without threads: gives each job away.
    #[cfg(test)]
    pub(crate) fn given_to(taker: Taker) -> Background {
        Background(Arc::new(Lazy { size: 0, threads: OnceLock::new(), taker: Some(taker) }))
    }

    /// Runs the job after a delay, or never if the client is gone by then.
    pub(crate) fn after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        #[cfg(test)]
        if let Some(taker) = &self.0.taker {
            return taker(delay, Box::new(job));
        }
        drop(self.threads().execute_after(delay, job));
    }

    pub(super) fn threads(&self) -> &Arc<ScheduledThreadPool> {
        self.0.threads.get_or_init(|| {
            let builder = ScheduledThreadPool::builder()
                .num_threads(self.0.size)
                .thread_name_pattern("redlock-pool-{}")
                .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled);
            Arc::new(builder.build())
        })
    }
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
