//! Threads that claim tasks and handle them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Queue;
use super::job::{Job, truncated};
use super::task::limited;
use crate::acquire::MaxWait;
use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::error::Error;
use crate::handler::caught;
use crate::lease::LeaseInner;
use crate::parker::Parker;
use crate::protocol::task_queue::Ending;
use crate::sync::Mutex;

/// How a handler ends a job. If a handler returns `()` or `Ok(())`, that means `Done`. An `Err` means `Retry` with the
/// text of the error.
///
/// ```
/// use redlock_sync::Verdict;
/// let verdict: Verdict = Err("the mail server is away").into();
/// assert_eq!(verdict, Verdict::Retry("the mail server is away".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Ends the job by [`Job::ack`].
    Done,
    /// Ends the job by [`Job::retry`], with this error.
    Retry(String),
    /// Ends the job by [`Job::retry_after`], with this pause and this error. A pause of more than 100 years becomes 100
    /// years.
    RetryAfter(Duration, String),
    /// Ends the job by [`Job::again_after`], with this pause. A pause of more than 100 years becomes 100 years.
    AgainAfter(Duration),
    /// Ends the job by [`Job::fail`], with this error.
    Fail(String),
}

impl From<()> for Verdict {
    fn from((): ()) -> Verdict {
        Verdict::Done
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Verdict {
        result.map_or_else(|error| Verdict::Retry(error.to_string()), |()| Verdict::Done)
    }
}

/// Threads of this process that handle the tasks of a queue. [`Queue::worker`] makes a `Worker`.
///
/// Each thread claims a task, calls the handler, and ends the claim by the value that the handler returns. In the same
/// round trip, it claims its next task. If the
/// handler panics, that counts as a [`Retry`](Verdict::Retry) with the panic's text. One thread at a time waits for a
/// task. While the server does not answer, refuses for the moment, or is a replica, the threads try again a few times a
/// second. Other errors, such as [`Config`](Error::Config), end the worker, and [`join`](Worker::join) returns them. If
/// a worker is dropped, its threads claim no more tasks, and current jobs go on.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Job, Redlock};
/// use std::time::Duration;
///
/// let mails = Redlock::open(&url)?.queue("emails");
/// let worker = mails.worker(4, |job: &Job| -> Result<(), std::io::Error> {
///     println!("send {:?}", job.body());
///     Ok(())
/// })?;
/// mails.push("welcome ann@a.example")?;
/// # while mails.len()? > 0 { std::thread::yield_now(); }
/// assert_eq!(worker.stop(Duration::from_secs(30)), 0); // no handler runs any more
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[must_use = "if unused the worker is stopped at once, and so it is with `let _ = …`: keep it as long as it has to work"]
pub struct Worker {
    inner: Arc<WorkerInner>,
}

/// The state that the threads and the handle of a worker share.
struct WorkerInner {
    queue: Queue,
    handler: Box<dyn Fn(&Job) -> Verdict + Send + Sync>,
    /// Ends the waits of its threads for a task. It is within the one of the queue.
    stop: Cancel,
    /// Held by the thread that waits for a task. The other threads wait for this mutex.
    turn: Mutex<()>,
    state: Arc<Parker<WorkerState>>,
}

#[derive(Default)]
struct WorkerState {
    threads: usize,
    /// The leases of the jobs whose handlers run.
    working: Vec<Arc<LeaseInner>>,
    /// No job begins any more.
    is_stopped: bool,
    /// The error that ended the worker.
    error: Option<Error>,
}

impl Worker {
    pub(super) fn start(
        mut queue: Queue,
        threads: usize,
        handler: Box<dyn Fn(&Job) -> Verdict + Send + Sync>,
    ) -> Result<Worker, Error> {
        let clock = Arc::clone(&queue.client.quorum.clock);
        let stop = Cancel::within(queue.options.cancel.get().cloned());
        // A worker outlasts every outage.
        queue.options_mut().unavailable_after = Duration::MAX;
        let (queue, turn, state) = (queue.cancel(&stop), Mutex::new(()), Arc::default());
        let inner = Arc::new(WorkerInner { queue, handler, stop, turn, state });
        // Made before its threads: if a thread cannot be started, the drop of the worker ends the others.
        let worker = Worker { inner };
        for _ in 0..threads {
            worker.inner.state.lock().threads += 1;
            let count = ThreadCount(Arc::clone(&worker.inner));
            if let Err(error) = clock.start("redlock-worker", Box::new(move || count.0.run())) {
                let why = format!("no worker thread could be started: {error}");
                return Err(worker.inner.queue.unavailable("claim", why));
            }
        }
        Ok(worker)
    }

    /// Ends the worker: from now on, it claims no task. Threads that wait end at once, and handlers that run have
    /// `grace` to end. Returns how many handlers still run after that, or zero in a forked child. The claims of these
    /// handlers are not renewed any more. So their tasks are due again when their leases have ended, unless the
    /// handlers end before that.
    ///
    /// With a longer grace, more jobs can finish. With a shorter grace, the process ends sooner, and work that was
    /// under way is done once more.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// let worker = mails.worker(2, |_job| ())?;
    /// assert_eq!(worker.stop(Duration::from_secs(30)), 0);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "so many handlers still run"]
    pub fn stop(self, grace: Duration) -> usize {
        self.inner.stop(None);
        let until = self.inner.queue.client.quorum.now().after(grace);
        if self.inner.wait(until).is_err() {
            return 0;
        }
        let state = self.inner.state.lock();
        state.working.iter().for_each(|inner| inner.renew_no_more());
        state.working.len()
    }

    /// Blocks until an error has ended the worker, such as a wrong setting, a missing permission, or a closed client.
    ///
    /// # Errors
    /// The error that ended the worker. In a forked child, which has none of the threads, the call returns
    /// [`Closed`](Error::Closed) at once.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let worker = locks.queue("emails").worker(2, |_job| ())?;
    /// locks.shutdown(std::time::Duration::ZERO)?;
    /// assert_eq!(worker.join(), Err(redlock_sync::Error::Closed));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn join(self) -> Result<(), Error> {
        self.inner.wait(Tick::NEVER)?;
        self.inner.state.lock().error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.inner.stop(None);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Worker");
        // In a forked child the mutex can be locked for ever, by a thread that does not exist there.
        if let Some(state) = self.inner.state.try_lock() {
            shown.field("threads", &state.threads).field("working", &state.working.len());
        }
        shown.finish_non_exhaustive()
    }
}

/// A thread that is counted until this is dropped.
struct ThreadCount(Arc<WorkerInner>);

impl Drop for ThreadCount {
    fn drop(&mut self) {
        self.0.state.change(|state| state.threads -= 1);
    }
}

impl WorkerInner {
    fn run(&self) {
        let mut next = None;
        loop {
            let claimed = next.take().map_or_else(|| self.wait_for_task(), |job| Ok(Some(job)));
            match claimed {
                Ok(Some(job)) if self.begin(&job) => next = self.handle(job),
                // The worker was stopped while the claim was under way.
                Ok(Some(job)) => job.give_back(),
                Ok(None) => {}
                Err(error) => return self.stop(Some(error)),
            }
        }
    }

    fn wait_for_task(&self) -> Result<Option<Job>, Error> {
        let _turn = self.turn.lock();
        self.queue.claim_within(MaxWait::Forever)
    }

    /// Ends the worker: on request, or because of the first error. Each other thread then ends by `Cancelled`.
    fn stop(&self, error: Option<Error>) {
        // In a forked child, a thread that does not exist there can have the state.
        if self.queue.client.process.is_forked_child() {
            return;
        }
        let is_first = self.state.change(|state| {
            let is_first = !std::mem::replace(&mut state.is_stopped, true);
            if is_first {
                state.error.clone_from(&error);
            }
            is_first
        });
        self.stop.cancel();
        if let Some(error) = error.filter(|error| is_first && *error != Error::Closed) {
            log::warn!("a worker stopped because of an error: {error}");
        }
    }

    /// Counts the job, unless the worker was stopped.
    fn begin(&self, job: &Job) -> bool {
        let mut state = self.state.lock();
        if !state.is_stopped {
            state.working.push(Arc::clone(job.inner()));
        }
        !state.is_stopped
    }

    /// Handles a job, and returns the next one, if there is one. A worker that was stopped claims no other.
    fn handle(&self, job: Job) -> Option<Job> {
        let inner = Arc::clone(job.inner());
        let ending = match caught(|| (self.handler)(&job)) {
            Ok(verdict) => ending(&job, verdict),
            Err(panic) => job.failed(None, &format!("the handler panicked: {panic}")),
        };
        let (outcome, next) =
            if self.state.lock().is_stopped { (job.end(ending), None) } else { job.end_and_claim(ending) };
        self.state.lock().working.retain(|other| !Arc::ptr_eq(other, &inner));
        match outcome {
            // A loss has been logged when it was noticed.
            Ok(()) | Err(Error::Lost { .. } | Error::Closed) => {}
            Err(error) => log::warn!("the end of a job may not have been recorded: {error}"),
        }
        next
    }

    /// Waits until all threads have ended, or until `until`. Returns `Closed` in a forked child: it has none of the
    /// threads, and one of them may have locked the state.
    fn wait(&self, until: Tick) -> Result<(), Error> {
        if self.queue.client.process.is_forked_child() {
            return Err(Error::Closed);
        }
        let clock = &self.queue.client.quorum.clock;
        self.state.wait(&**clock, until, &[], |state| (state.threads == 0).then_some(()));
        Ok(())
    }
}

/// The ending of the claim for a verdict of the handler.
fn ending(job: &Job, verdict: Verdict) -> Ending {
    match verdict {
        Verdict::Done => Ending::Done,
        Verdict::Retry(why) => job.failed(None, &why),
        Verdict::RetryAfter(pause, why) => job.failed(Some(pause), &why),
        Verdict::AgainAfter(pause) => Ending::Again(limited(pause)),
        Verdict::Fail(why) => Ending::Dead(truncated(&why)),
    }
}
