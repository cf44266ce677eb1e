//! Threads that claim tasks and handle them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Queue;
use super::job::{Job, kept};
use super::task::sendable;
use crate::acquire::MaxWait;
use crate::clock::Tick;
use crate::error::Error;
use crate::handler::caught;
use crate::lease::Core;
use crate::protocol::queue::Ending;
use crate::sync::{AtomicBool, Condvar, Mutex};

/// Longest uninterrupted wait for the threads of a worker.
const SLICE: Duration = Duration::from_secs(1);

/// How a handler ends a job. A handler that returns `()` or `Ok(())` means `Done`; an `Err` is a `Retry` with the
/// error's text.
///
/// ```
/// use redlock_sync::Verdict;
/// let verdict: Verdict = Err("the mail server is away").into();
/// assert_eq!(verdict, Verdict::Retry("the mail server is away".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// [`Job::ack`].
    Done,
    /// [`Job::retry`], with the error.
    Retry(String),
    /// [`Job::retry_after`], with the error. A pause of more than 100 years is shortened to 100 years.
    RetryAfter(Duration, String),
    /// [`Job::again_after`]. A pause of more than 100 years is shortened too.
    AgainAfter(Duration),
    /// [`Job::fail`], with the error.
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

/// Threads of this process that handle the tasks of a queue. Made by [`Queue::worker`].
///
/// Each thread claims a task, calls the handler and ends the claim by what that returns. A panic of the handler is a
/// retry with the panic's text. One thread at a time waits for a task. While the server is away, refuses for a while or
/// is a replica the threads go on trying, a few times a second; other errors, such as [`Config`](Error::Config), end
/// the worker, and [`join`](Worker::join) returns them. Dropping the worker stops its claiming; jobs in hand go on.
///
/// ```
/// # let server = redlock_tests::Server::start();
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
pub struct Worker {
    crew: Arc<Crew>,
}

/// What the threads of a worker share.
struct Crew {
    queue: Queue,
    handler: Box<dyn Fn(&Job) -> Verdict + Send + Sync>,
    stop: AtomicBool,
    /// The thread that has it waits for a task; the others wait for it.
    turn: Mutex<()>,
    state: Mutex<State>,
    changed: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    threads: usize,
    /// The claims of the handlers that run.
    working: Vec<Arc<Core>>,
    error: Option<Error>,
}

impl Worker {
    pub(super) fn start(
        queue: Queue,
        threads: usize,
        handler: Box<dyn Fn(&Job) -> Verdict + Send + Sync>,
    ) -> Result<Worker, Error> {
        let clock = Arc::clone(&queue.client.quorum.clock);
        let (stop, turn, changed) = (AtomicBool::new(false), Mutex::new(()), Arc::new(Condvar::new()));
        let crew = Arc::new(Crew { queue, handler, stop, turn, state: Mutex::default(), changed });
        // Made before its threads: if one of them cannot be started, dropping it ends the others.
        let worker = Worker { crew };
        for _ in 0..threads {
            let present = Present::new(&worker.crew);
            if let Err(error) = clock.start("redlock-worker", Box::new(move || present.0.run())) {
                let why = format!("no worker thread could be started: {error}");
                return Err(worker.crew.queue.unavailable("claim", why));
            }
        }
        Ok(worker)
    }

    /// Ends the worker: no task is claimed from now on, threads that wait end within 50 ms, and handlers that run may
    /// go on for `grace`. Returns how many still run then; in a forked child that is none. Their claims are no longer
    /// renewed: their tasks come back when their leases have ended, unless the handlers end before that.
    ///
    /// A longer grace lets more jobs finish; a shorter one ends the process sooner, and work that was under way is done
    /// once more.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// let worker = mails.worker(2, |_job| ())?;
    /// assert_eq!(worker.stop(Duration::from_secs(30)), 0);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "so many handlers still run"]
    pub fn stop(self, grace: Duration) -> usize {
        self.crew.stop.store(true, Ordering::SeqCst);
        let until = self.crew.queue.client.quorum.now().after(grace);
        if self.crew.wait(until).is_err() {
            return 0;
        }
        let state = self.crew.state.lock();
        state.working.iter().for_each(|core| core.renew_no_more());
        state.working.len()
    }

    /// Waits until the worker has ended by an error: of a setting, of a permission, or because the client was closed.
    ///
    /// # Errors
    /// That error. [`Closed`](Error::Closed) at once in a forked child, which has none of the threads.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let worker = locks.queue("emails").worker(2, |_job| ())?;
    /// locks.close()?;
    /// assert_eq!(worker.join(), Err(redlock_sync::Error::Closed));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn join(self) -> Result<(), Error> {
        self.crew.wait(Tick::NEVER)?;
        self.crew.state.lock().error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.crew.stop.store(true, Ordering::SeqCst);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Worker");
        // In a forked child a thread that is not there can have it locked.
        if let Some(state) = self.crew.state.try_lock() {
            shown.field("threads", &state.threads).field("working", &state.working.len());
        }
        shown.finish_non_exhaustive()
    }
}

/// A thread of the crew is there for as long as this lives.
struct Present(Arc<Crew>);

impl Present {
    fn new(crew: &Arc<Crew>) -> Present {
        crew.state.lock().threads += 1;
        Present(Arc::clone(crew))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

impl Crew {
    fn run(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            let turn = self.turn.lock();
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let claimed = self.queue.claim_until(MaxWait::Until(Tick::NEVER), Some(&self.stop));
            drop(turn);
            match claimed {
                // It came while the worker was stopped.
                Ok(Some(job)) if self.stop.load(Ordering::SeqCst) => job.give_back(),
                Ok(Some(job)) => self.work(job),
                Ok(None) => {}
                Err(error) => return self.fail(error),
            }
        }
    }

    fn fail(&self, error: Error) {
        if error != Error::Closed {
            log::warn!("a worker has ended: {error}");
        }
        self.state.lock().error.get_or_insert(error);
        self.stop.store(true, Ordering::SeqCst);
    }

    fn work(&self, job: Job) {
        let core = Arc::clone(job.core());
        self.state.lock().working.push(Arc::clone(&core));
        let ending = match caught(|| (self.handler)(&job)) {
            Ok(verdict) => ending(&job, verdict),
            Err(panic) => job.failed(None, &format!("the handler panicked: {panic}")),
        };
        let outcome = job.end(ending);
        self.state.lock().working.retain(|other| !Arc::ptr_eq(other, &core));
        match outcome {
            // A loss is logged where it is noticed.
            Ok(()) | Err(Error::Lost { .. } | Error::Closed) => {}
            Err(error) => log::warn!("the end of a job is in doubt: {error}"),
        }
    }

    /// Until all threads have ended. A forked child has none of them, and one of them may have held the lock of the
    /// state.
    fn wait(&self, until: Tick) -> Result<(), Error> {
        if self.queue.client.tokens.home().is_left() {
            return Err(Error::Closed);
        }
        let clock = &self.queue.client.quorum.clock;
        let mut state = self.state.lock();
        while state.threads > 0 {
            let now = clock.now();
            if now >= until {
                break;
            }
            clock.wait_until(&self.changed, &mut state, until.min(now.after(SLICE)));
        }
        Ok(())
    }
}

fn ending(job: &Job, verdict: Verdict) -> Ending {
    match verdict {
        Verdict::Done => Ending::Done,
        Verdict::Retry(why) => job.failed(None, &why),
        Verdict::RetryAfter(pause, why) => job.failed(Some(pause), &why),
        Verdict::AgainAfter(pause) => Ending::Again(sendable(pause)),
        Verdict::Fail(why) => Ending::Dead(kept(&why)),
    }
}
