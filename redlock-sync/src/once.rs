//! Jobs that run once for each name: of several processes, no other runs the job again after it has succeeded.
//!
//! A job has the mutex of that name, and a latch of one arrival as its **mark**, in the helper key `{name}:done`. The
//! mark lives for `remember`. A call does this:
//!
//! 1. It checks the mark. If that is set, the call is `Done`: one round trip, and no lock.
//! 2. It takes the mutex: by one attempt, or by attempts until its deadline. If that stays held, the call is `Busy`.
//! 3. It checks the mark again. A run may have ended between steps 1 and 2. From now on none can.
//! 4. If `check` is `Ok`, it runs the body. An error or a panic of the body releases the mutex, and sets no mark.
//! 5. If `check` is `Ok`, it sets the mark on a majority. It repeats that for one lease at most.
//! 6. It calls `check` again, and releases the mutex on the servers. If neither says that the lock was lost, the call
//!    is `Ran`.
//!
//! **At most one call is `Ran`.** Let A and B be two calls that are `Ran`. Each holds the mutex from step 3 to step 6,
//! and under the two conditions no two holders pass `check` at the same time. So one hold ends before the other begins:
//! say that of A. A's mark was on a majority before A's last `check`. B's check of the mark began after B had the
//! mutex, however long B had waited for it. It asks a majority, and the mark of any node is enough. So B's check found
//! the mark, and B was `Done`.
//!
//! The release in step 6 asks the servers. So a loss of which `check` cannot know, such as a deleted key, does not end
//! as `Ran`. A mutex is usually handed to a waiting thread of the process without a request. A run that has succeeded
//! gives up its place in the queue of threads first, so its mutex is not handed over. That of a run that failed may be.
//!
//! A call that waits does not need step 1. If that check finds no majority, the call waits for the mutex all the same.
//!
//! The mark and the release are two steps, so that the nodes keep the mutex until the mark is set. One script for both
//! would be wrong on several nodes, which execute it at different times. A node that has executed it is free for the
//! next holder, while the mark is still on its way to the others. That holder could get the mutex, and miss the mark.
//!
//! What goes wrong, and what follows:
//!
//! - A body fails after half of its work, or the process dies before the mark: the next call runs the body again, from
//!   its start. So the body runs at least once for each success.
//! - The reply to the mark is lost: the mark is sent again, and counts once. If none arrives within a lease, the call
//!   returns an error, and later calls are `Done` if a server has executed it.
//! - The mark is on a minority: the call is not `Ran`. A later call that finds the mark stores it on a majority first,
//!   and is `Done` then. A call that does not find it runs the body.
//! - The holder was paused beyond its lease: `check` fails in step 4, 5 or 6. A mark that it set in step 5 is true all
//!   the same: its body had ended under the lock.
//! - A server loses its data, or has been promoted without the mark: as for the arrivals of a latch (`latch.rs`).
//! - A server becomes full during the body: it takes the mark, which is the open-mark of a latch.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::cancel::Cancelling;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::latch::{Latch, LatchTerms};
use crate::lease::Lease;
use crate::lock::mutex::{Mutex, MutexGuard};
use crate::lock::settings::settings;
use crate::options::{LockOptions, MAX_LIFETIME, MIN_LIFETIME, Retry, check_within};
use crate::protocol::latch_calls::LatchCalls;

/// For how long a success is remembered by default.
const REMEMBER: Duration = Duration::from_secs(48 * 60 * 60);
/// How error messages name the operations on the mark.
const TERMS: LatchTerms =
    LatchTerms { check: "look for the mark of", arrive: "mark", reset: "forget", lifetime: "`remember`" };

/// A job that several processes want to run, and that one of them runs once. [`Redlock::once`](crate::Redlock::once)
/// makes it.
///
/// Picture a list on the wall of a workshop. The first worker takes a job, does it, and ticks it off. The other workers
/// see that the job is in hand, or that it is ticked off. If the worker goes home before the tick, another one does the
/// job from its start.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Error, RunOutcome, Redlock};
/// let locks = Redlock::open(&url)?;
/// let report = locks.once("report:2026-11-24"); // the day for which it was scheduled
/// let first = report.run(|lease| {
///     lease.check()?; // before each step
///     Ok::<_, Error>("the report of that day")
/// })?;
/// assert_eq!(first, RunOutcome::Ran("the report of that day"));
/// let second = report.run(|_lease| Ok::<_, Error>("it does not run again"))?;
/// assert_eq!(second, RunOutcome::Done);
/// # Ok::<(), Error>(())
/// ```
///
/// **The promise**: under the [two conditions](crate::guarantees) of every lock, at most one call for a name returns
/// [`Ran`](RunOutcome::Ran), for as long as the success is [remembered](Once::remember). After a call has returned
/// [`Done`](RunOutcome::Done), no later call runs the body in that time.
///
/// **The duty of the body**: the body can run more than once. If it failed or panicked, or if its process died, the
/// next call runs it again from its start, even if only the mark of its success was missing. So each of its steps must
/// do no harm if it is repeated. It calls `lease.check()?` before each step, as under any lock.
///
/// **The duty of the caller**: after [`Busy`](RunOutcome::Busy) and after an error, the caller calls again, or leaves
/// the job to a process that does. If the process that runs the body dies, and no process calls again, the job does not
/// run at all. A call of [`run_for`](Once::run_for) waits until the job is done, and takes over if the other run fails.
///
/// The lock is the [`Mutex`](crate::Mutex) of that name, so it excludes a mutex and a leader of the same name. The mark
/// is another key, of about 150 bytes. A call costs one round trip if the job is done, two if another call runs it, and
/// five if this call runs the body.
///
/// # The name
///
/// A name stands for one run, so it has to say which: `report:2026-11-24`, `import:42`, `invoice:7:reminder:2`. **Put
/// the time into it for which the job was scheduled**, as cron libraries report it. Then clocks do not matter: a
/// process whose clock is an hour off, or that comes five hours late, asks for the same name. A name with the current
/// time does not work, because around midnight two processes ask for two days, and both run.
///
/// # What does not work instead
///
/// - [`min_hold`](crate::Mutex::min_hold) lasts for a lease at most. A process that is later than that runs the job
///   again.
/// - With the rule "not within 24 hours of the last run", a run that was five hours late suppresses that of the next
///   day.
/// - A server's clock that counts the periods can be a second late at the boundary. Then all processes find the old
///   period done, and the job of the new period does not run.
///
/// # What servers can lose
///
/// A mark is as durable as the data of the server. If a server restarts empty, or a replica takes over without the
/// mark, the success is forgotten, and the next call runs the body again.
/// [`min_replicas_ack`](crate::Builder::min_replicas_ack) and persistence make that rare. On several servers a majority
/// stores the mark, and each check stores it on the servers that lack it. A server may have restarted within
/// [`remember`](Once::remember), while another one did not. While one server does not answer, the restarted one does
/// not count as a server without a mark ([`restart_guard`](crate::Builder::restart_guard)). The call then returns
/// `Unavailable`. If all servers are younger than `remember`, each of them counts.
#[derive(Clone)]
pub struct Once {
    client: Arc<ClientInner>,
    mutex: Mutex,
    remember: Duration,
}

/// The outcome of a call of [`Once::run`], [`Once::run_for`] or [`Once::run_until`].
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Error, RunOutcome};
/// let locks = redlock_sync::Redlock::open(&url)?;
/// match locks.once("report:2026-11-24").run(|_lease| Ok::<_, Error>(42))? {
///     RunOutcome::Ran(lines) => println!("written, {lines} lines"),
///     RunOutcome::Done => println!("written before"),
///     RunOutcome::Busy => println!("another process writes it: call again later"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[must_use = "after `Busy` the job has not been run yet"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunOutcome<T> {
    /// The body ran and returned this, and its success is remembered.
    Ran(T),
    /// The body of an earlier call succeeded. This one did not run.
    Done,
    /// Another thread or process has the lock, most likely to run the body. This one did not run. After
    /// [`run_for`](Once::run_for) and [`run_until`](Once::run_until): that was so for the whole wait.
    Busy,
}

impl Once {
    pub(crate) fn new(client: Arc<ClientInner>, mutex: Mutex) -> Once {
        Once { client, mutex, remember: REMEMBER }
    }

    /// Runs the body, unless it has succeeded under this name, or another thread or process runs it. The call does not
    /// wait for the lock.
    ///
    /// If the body returns `Ok` and the lock is still held, the success is marked on a majority of the nodes. While
    /// no majority answers, that is repeated for one lease at most. Then the lock is released.
    ///
    /// # Errors
    /// The body did not run:
    /// - [`Unavailable`](Error::Unavailable) with the `op` `acquire` or `look for the mark of`: no majority answered
    /// - [`WouldDeadlock`](Error::WouldDeadlock) if this thread has the lock, as in the body of a call for that name
    /// - [`WrongType`](Error::WrongType) if a key holds something else: with the `op` `acquire` that of the lock, else
    ///   that of the mark, such as `{report}:done`
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// The body ran:
    /// - its own error
    /// - [`Lost`](Error::Lost) in place of its `Ok`: the lock was not held any more, at its end or at the release. If
    ///   another process had the lock by then, both bodies may have run at the same time
    /// - [`Unavailable`](Error::Unavailable) with the `op` `mark`: no majority confirmed the mark
    /// - [`WrongType`](Error::WrongType), [`Config`](Error::Config) or [`Closed`](Error::Closed) from the mark or the
    ///   release, likewise
    ///
    /// After an error nothing is held. Call again: the next call is [`Done`](RunOutcome::Done) if the mark was stored,
    /// and runs the body if it was not. A release that no majority confirmed is logged at WARN. If the body panics, the
    /// lock is released, there is no mark, and the panic goes on.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Error, RunOutcome};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let mail = locks.once("invoice:7:reminder:2");
    /// let failed = mail.run(|_lease| Err::<(), Box<dyn std::error::Error>>("the mail server is away".into()));
    /// assert!(failed.is_err());
    /// assert_eq!(mail.run(|_lease| Ok::<_, Error>("sent"))?, RunOutcome::Ran("sent"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run<T, E: From<Error>>(&self, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<RunOutcome<T>, E> {
        self.run_within(MaxWait::No, body)
    }

    /// Like [`run`](Once::run), but while another thread or process runs the body, the call waits, for at most `wait`.
    /// If that run succeeds, the call is [`Done`](RunOutcome::Done). If that run fails or its process dies, the call
    /// runs the body. After the time, the call is [`Busy`](RunOutcome::Busy). So a job that has to succeed is repeated
    /// without a later call.
    ///
    /// The wait is one for the lock, as in [`Mutex::try_lock_for`](crate::Mutex::try_lock_for). The checks of the mark
    /// can take four node timeouts more. With a longer wait, the call outlasts longer runs of other processes. Its
    /// thread is blocked meanwhile.
    ///
    /// # Errors
    /// The errors of [`run`](Once::run), with these differences:
    /// - [`Unavailable`](Error::Unavailable) with the `op` `acquire` comes as in `try_lock_for`: a short outage does
    ///   not end the wait
    /// - [`WouldDeadlock`](Error::WouldDeadlock) does not come if [`max_hold`](Once::max_hold) ends the hold of this
    ///   thread before the deadline
    /// - [`Cancelled`](Error::Cancelled) if another thread cancels the wait
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Error, RunOutcome};
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// // If another machine writes the report, this one waits for the end of that run.
    /// match locks.once("report:2026-11-24").run_for(Duration::from_secs(3600), |_lease| Ok::<_, Error>(42))? {
    ///     RunOutcome::Ran(lines) => println!("written here, {lines} lines"),
    ///     RunOutcome::Done => println!("written by another machine"),
    ///     RunOutcome::Busy => println!("not written within an hour"),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run_for<T, E: From<Error>>(
        &self,
        wait: Duration,
        body: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<RunOutcome<T>, E> {
        self.run_within(self.mutex.handle.for_at_most(wait), body)
    }

    /// Like [`run_for`](Once::run_for), but with a deadline in place of a length of time.
    ///
    /// # Errors
    /// The errors of `run_for`.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Error, Redlock, RunOutcome};
    /// use std::time::{Duration, Instant};
    /// let locks = Redlock::open(&url)?;
    /// let tonight = Instant::now() + Duration::from_secs(3600);
    /// let outcome = locks.once("report:2026-11-24").run_until(tonight, |_lease| Ok::<_, Error>(42))?;
    /// assert_eq!(outcome, RunOutcome::Ran(42));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn run_until<T, E: From<Error>>(
        &self,
        deadline: Instant,
        body: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<RunOutcome<T>, E> {
        self.run_within(self.mutex.handle.until(deadline), body)
    }

    fn run_within<T, E: From<Error>>(
        &self,
        wait: MaxWait,
        body: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<RunOutcome<T>, E> {
        let run = match self.begin(wait) {
            Ok(Some(run)) => run,
            Ok(None) => return Ok(RunOutcome::Done),
            Err(Error::Busy { .. }) => return Ok(RunOutcome::Busy),
            Err(error) => return Err(error.into()),
        };
        let outcome = body(run.lease());
        match run.end(outcome.is_ok()) {
            Err(error) if outcome.is_ok() => return Err(error.into()),
            Err(error) => log::warn!("{error}"),
            Ok(()) => {}
        }
        outcome.map(RunOutcome::Ran)
    }

    /// Returns whether the body has succeeded under this name, as far as it is remembered. The call acquires no lock.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - [`WrongType`](Error::WrongType), [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// assert!(!locks.once("report:2026-11-24").is_done()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_done(&self) -> Result<bool, Error> {
        Ok(self.mark()?.progress()?.is_open)
    }

    /// Forgets a success, on every server, so that the next call runs the body again. It is for an operator whose job
    /// did the wrong thing. It does not affect a run that is under way.
    ///
    /// Call it while no process calls [`run`](Once::run) or [`is_done`](Once::is_done) for that name. On several
    /// servers, a check that has found the mark stores it again on servers that lack it, even if it was forgotten
    /// meanwhile. If you cannot stop such calls, call `is_done` afterwards, and forget the success once more.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) if not all servers have confirmed it. Some may remember the success, so
    ///   repeat the call
    /// - [`WrongType`](Error::WrongType), [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Error, RunOutcome};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let report = locks.once("report:2026-11-24");
    /// assert_eq!(report.run(|_lease| Ok::<_, Error>(1))?, RunOutcome::Ran(1));
    /// report.forget()?;
    /// assert_eq!(report.run(|_lease| Ok::<_, Error>(2))?, RunOutcome::Ran(2));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn forget(&self) -> Result<(), Error> {
        self.mark()?.reset()
    }

    /// Takes the lock for a run. `None` if the job has succeeded.
    pub(crate) fn begin(&self, wait: MaxWait) -> Result<Option<OnceGuard>, Error> {
        let mark = self.mark()?;
        match mark.progress() {
            Ok(progress) if progress.is_open => return Ok(None),
            // The wait for the lock outlasts an outage, and the mark is checked again after it.
            Err(error) if wait != MaxWait::No && error.is_unavailable() => {}
            checked => drop(checked?),
        }
        let guard = self.mutex.acquire(wait).map_err(|error| match error {
            // `Busy` asks for another call, and this thread would make calls for ever.
            Error::Busy { key, by_this_thread: true, .. } => Error::WouldDeadlock { key },
            other => other,
        })?;
        let run = OnceGuard { guard, mark };
        // Another run may have ended since. From here on none can.
        if run.mark.progress()?.is_open {
            return Ok(None);
        }
        run.guard.check()?;
        Ok(Some(run))
    }

    /// The limit of a wait that an annotated function has, or that of one attempt.
    pub(crate) fn for_at_most(&self, wait: Option<Duration>) -> MaxWait {
        wait.map_or(MaxWait::No, |wait| self.mutex.handle.for_at_most(wait))
    }

    fn mark(&self) -> Result<Latch, Error> {
        let (name, lifetime) = (self.mutex.key()?.clone(), self.remember);
        check_within("remember", &lifetime, MIN_LIFETIME..=MAX_LIFETIME)?;
        let (client, calls) = (Arc::clone(&self.client), LatchCalls::new(name.done(), 1));
        let (retry, cancel) = (Retry::default(), Cancelling::default());
        // The mark is repeated for one lease, however long the servers are away: see `OnceGuard::end`.
        Ok(Latch { client, name, terms: TERMS, calls, lifetime, retry, unavailable_after: Duration::MAX, cancel })
    }
}

/// The lock of a run. Dropping it releases the lock, and sets no mark.
#[doc(hidden)]
#[derive(Debug)]
pub struct OnceGuard {
    guard: MutexGuard,
    mark: Latch,
}

impl OnceGuard {
    pub(crate) fn lease(&self) -> &Lease {
        &self.guard
    }

    /// Ends the run: sets the mark if the body succeeded and the lock is still held, and releases the lock.
    pub(crate) fn end(self, has_succeeded: bool) -> Result<(), Error> {
        let OnceGuard { guard, mark } = self;
        if !has_succeeded {
            return guard.unlock();
        }
        guard.check()?;
        let until = mark.client.quorum.now().after(guard.inner().options.lease);
        let marked = mark.open(MaxWait::Until(until));
        // No other run has checked the mark while the lock was held. The release tells whether the servers agree.
        let held = guard.check();
        // Without its place in the queue of threads, the lock is released on the servers, which know of each loss.
        drop(guard.inner().take_head());
        let released = match guard.unlock() {
            Err(error @ Error::Unconfirmed { .. }) => {
                log::warn!("{error}");
                Ok(())
            }
            released => released,
        };
        held.and(released).and(marked)
    }
}

/// # Settings
///
/// Each is a method that returns the handle with this setting. With a shorter [`lease`](Once::lease), the body runs
/// again sooner after its process died. After [`max_hold`](Once::max_hold), another call can run a body that hangs. The
/// mark of a success is repeated for one lease, whatever [`unavailable_after`](Once::unavailable_after) is.
impl Once {
    fn set(self, change: impl FnOnce(&mut LockOptions)) -> Once {
        Once { mutex: self.mutex.set(change), ..self }
    }

    /// Sets for how long a success is remembered, 1 s to 365 days; default 48 h. Choose more than the time from the
    /// first call for a name to the last one. A call that comes later runs the body again. A longer time costs more
    /// memory on the servers, about 150 bytes for each name.
    ///
    /// The time is a time-to-live, which each success sets with the setting of its own call. No check extends it. So
    /// versions of a program may have different settings. The wall clocks of clients do not matter. If a server's wall
    /// clock is set forward, the server forgets sooner.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let import = locks.once("import:42").remember(Duration::from_secs(30 * 24 * 60 * 60));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn remember(mut self, remember: Duration) -> Once {
        self.remember = remember;
        self
    }

    settings!("locks.once(\"report:2026-11-24\")": lease max_hold unavailable_after cancel fenced label);
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("mutex", &self.mutex).field("remember", &self.remember).finish_non_exhaustive()
    }
}
