//! Leader election: the leader holds a mutex while its body runs, and the other candidates wait for that mutex.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::{Cancel, Cancelling};
use crate::clock::{Clock, SystemClock, Tick};
use crate::error::Error;
use crate::handler::caught;
use crate::inner::ClientInner;
use crate::lease::{Lease, LeaseInner, revoke};
use crate::lock::mutex::{Mutex, MutexGuard};
use crate::lock::settings::settings;
use crate::names::{escaped, printable};
use crate::options::LockOptions;
use crate::options::{check_within, jittered};
use crate::parker::Parker;
use crate::sync::Mutex as SyncMutex;

/// The default pause after a term.
const PAUSE: Duration = Duration::from_secs(1);
/// With a shorter pause, a body that returns at once would take and release the lock too often.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// A candidate that leads whenever it is its turn. [`Redlock::leader`](crate::Redlock::leader) makes it.
///
/// Picture a chair at the head of a table: one process sits there and works, the others wait in a queue behind it. When
/// it stands up, or its process dies, the next one sits down.
///
/// The chair is the [`Mutex`](crate::Mutex) of that name, with its [order](crate::Mutex#order). It excludes a mutex of
/// the same name. Waiting candidates cost the servers what waiting threads do. If the process of a leader dies, another
/// candidate leads when the lease has ended, or about a second later.
///
/// **The promise**: under the [two conditions](crate::guarantees) of every lock, no two leaders both pass
/// [`check`](crate::Lease::check) at the same time. **The duty of the body**: the body calls `lease.check()?` before
/// each step, and returns if that fails. So a leader that was paused, or cut off from the servers, learns of it before
/// it acts. If a resource can compare numbers, give it the [fencing token](crate::Lease::fencing_token) too, since a
/// step that began in time can end late.
///
/// A term ends when the body returns or panics. Then the lock is released, so that another candidate leads. This
/// candidate waits again after a [pause](Leader::pause). So a body that fails at once does not acquire and release the
/// lock in a busy loop. An error or a panic of the body is logged.
///
/// Observers get the events of the mutex, with the [`label`](Leader::label) of the leader.
/// [`Acquired`](crate::Event::Acquired) comes when this process begins to lead. [`Released`](crate::Event::Released) or
/// [`Lost`](crate::Event::Lost) comes when it does not lead any more.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Error, Redlock};
/// let locks = Redlock::open(&url)?;
/// let leading = locks.leader("scheduler").spawn(|lease| {
///     loop {
///         lease.check()?; // `Err` once this process does not lead any more: the body returns
///         // one step of the work
///         std::thread::sleep(std::time::Duration::from_millis(10));
///     }
///     # #[allow(unreachable_code)]
///     Ok::<_, Error>(())
/// })?;
/// # while !leading.is_leader() { std::thread::yield_now(); }
/// leading.resign();
/// leading.join()?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Leader {
    client: Arc<ClientInner>,
    mutex: Mutex,
    cancel: Option<Cancel>,
    pause: Duration,
}

impl Leader {
    pub(crate) fn new(client: Arc<ClientInner>, mutex: Mutex) -> Leader {
        Leader { client, mutex, cancel: None, pause: PAUSE }
    }

    /// Waits until this process leads, runs the body, releases the lock, and waits again, on this thread. The call
    /// returns if it was [cancelled](Leader::cancel), once a body that runs has returned. Otherwise it returns only an
    /// error.
    ///
    /// While no majority of the nodes answers, the call goes on trying, and logs that.
    ///
    /// # Errors
    /// - [`WouldDeadlock`](Error::WouldDeadlock) if this thread holds the lock already
    /// - [`WrongType`](Error::WrongType)
    /// - [`Config`](Error::Config), also for a [pause](Leader::pause) outside of its limits
    /// - [`Closed`](Error::Closed) when the client was closed
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Cancel, Error, Redlock};
    /// let (locks, cancel) = (Redlock::open(&url)?, Cancel::new());
    /// locks.leader("scheduler").cancel(&cancel).run(|lease| {
    ///     lease.check()?;
    ///     cancel.cancel(); // enough
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run<E: fmt::Display>(&self, body: impl FnMut(&Lease) -> Result<(), E>) -> Result<(), Error> {
        self.lead(self.cancel.as_ref(), &CandidateStatus::default(), body)
    }

    /// Like [`run`](Leader::run), but on a thread of its own.
    ///
    /// # Errors
    /// [`Unavailable`](Error::Unavailable) if no thread could be started. [`join`](LeaderHandle::join) returns what
    /// `run` would return.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Error, Redlock};
    /// let locks = Redlock::open(&url)?;
    /// let leading = locks.leader("scheduler").spawn(|lease| lease.check())?;
    /// leading.resign();
    /// leading.join()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn spawn<E: fmt::Display + 'static>(
        &self,
        mut body: impl FnMut(&Lease) -> Result<(), E> + Send + 'static,
    ) -> Result<LeaderHandle, Error> {
        // A `Cancel` of its own: the given one may belong to other waits as well, which go on when this candidacy ends.
        let (leader, cancel, status) =
            (self.clone(), Cancel::within(self.cancel.clone()), Arc::new(CandidateStatus::default()));
        let handle =
            LeaderHandle { client: Arc::clone(&self.client), cancel: cancel.clone(), status: Arc::clone(&status) };
        let run = move || {
            let outcome = leader.lead(Some(&cancel), &status, &mut body);
            if let Err(error) = &outcome
                && *error != Error::Closed
            {
                log::warn!("a candidate has ended: {error}");
            }
            // The body is dropped before the outcome is stored. If its destructor panics, `join` still returns.
            if caught(move || drop(body)).is_err() {
                log::error!("a value owned by the body of a leader panicked when it was dropped");
            }
            status.ended.change(|ended| *ended = Some(outcome));
        };
        // Not started by the clock: a test clock would wait until the body of the user does nothing.
        SystemClock.start("redlock-leader", Box::new(run)).map_err(|error| {
            let key = self.mutex.key().map_or_else(|_| String::new(), |key| key.as_str().to_owned());
            self.client.quorum.unavailable("acquire", key, format!("no thread could be started: {error}"))
        })?;
        Ok(handle)
    }

    fn lead<E: fmt::Display>(
        &self,
        cancel: Option<&Cancel>,
        status: &CandidateStatus,
        mut body: impl FnMut(&Lease) -> Result<(), E>,
    ) -> Result<(), Error> {
        check_within("pause", &self.pause, MIN_PAUSE..=MAX_PAUSE)?;
        let mutex = cancel.map_or_else(|| self.mutex.clone(), |cancel| self.mutex.clone().cancel(cancel));
        let cancelling = cancel.map(Cancelling::by).unwrap_or_default();
        loop {
            match mutex.lock() {
                Ok(guard) => term(guard, &cancelling, status, &mut body),
                Err(Error::Cancelled { .. }) => return Ok(()),
                // The attempts log the begin and the end of an outage once. `Busy` means that another process leads.
                Err(error @ (Error::Unavailable { .. } | Error::Busy { .. })) => {
                    log::debug!("a candidate did not become the leader, and tries again: {error}");
                }
                Err(error) => return Err(error),
            }
            self.client.queues.sleep_until(self.client.quorum.now().after(jittered(self.pause)), &cancelling);
        }
    }
}

/// Runs the body once, while this process leads.
fn term<E: fmt::Display>(
    guard: MutexGuard,
    cancelling: &Cancelling,
    status: &CandidateStatus,
    body: &mut impl FnMut(&Lease) -> Result<(), E>,
) {
    *status.leads.lock() = Some(Arc::clone(guard.inner()));
    // `leads` is set before this check; `resign` cancels before it reads `leads`. So at least one of the two notices
    // the other. Displaying the error may panic, like the body.
    let body = || body(&guard).map_err(|error| error.to_string());
    let outcome = if cancelling.is_cancelled() { Ok(Ok(())) } else { caught(body) };
    *status.leads.lock() = None;
    let key = guard.key().to_owned();
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::warn!("the body of leader `{}` returned an error: {}", escaped(&key), printable(&error)),
        Err(_) => log::error!("the body of leader `{}` panicked", escaped(&key)),
    }
    match guard.unlock() {
        // After `resign`, the client has already given the lock up.
        Err(error) if !cancelling.is_cancelled() => {
            log::warn!("the release at the end of a leader's term failed: {error}");
        }
        _ => {}
    }
}

/// # Settings
///
/// Each is a method that returns the candidate with this setting.
impl Leader {
    fn set(self, change: impl FnOnce(&mut LockOptions)) -> Leader {
        Leader { mutex: self.mutex.set(change), ..self }
    }

    settings!("locks.leader(\"scheduler\")": lease label fenced);

    /// Sets a [`Cancel`], by which another thread ends the candidacy; default none. A candidate of
    /// [`spawn`](Leader::spawn) also has [`resign`](LeaderHandle::resign). Unlike `resign`, a `Cancel` takes no lock
    /// away: a body that runs goes on until it returns. Several candidates may have the same `Cancel`, such as one for
    /// the end of the program. If a candidate resigns, or its handle is dropped, that does not cancel it.
    ///
    /// ```
    /// use redlock_sync::{Cancel, Error, Redlock};
    /// let (locks, cancel) = (Redlock::open("redis://127.0.0.1/")?, Cancel::new());
    /// cancel.cancel();
    /// locks.leader("scheduler").cancel(&cancel).run(|_lease| Ok::<_, Error>(()))?; // returns at once
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Leader {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Sets how long this candidate stands aside after each term, 10 ms to 24 h; default 1 s. It also does so after a
    /// call that found no servers. A random part of the pause, up to half of it, is left out. With a longer pause, a
    /// body that fails at once costs less. With a shorter pause, a candidate that is the only one leads again sooner.
    ///
    /// ```
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// let candidate = locks.leader("scheduler").pause(Duration::from_secs(10));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Leader {
        self.pause = pause;
        self
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("mutex", &self.mutex).field("pause", &self.pause).finish_non_exhaustive()
    }
}

/// The state that the thread of a candidate and its handle share.
#[derive(Default)]
struct CandidateStatus {
    /// While the body runs.
    leads: SyncMutex<Option<Arc<LeaseInner>>>,
    ended: Arc<Parker<Option<Result<(), Error>>>>,
}

/// A candidate on a thread of its own. [`Leader::spawn`] makes it. Its drop cancels the candidacy, but a body that runs
/// goes on until it returns.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let leading = locks.leader("scheduler").spawn(|lease| lease.check())?;
/// println!("leads now: {}", leading.is_leader());
/// leading.resign();
/// leading.join()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[must_use = "if unused the candidacy ends at once, and so it does with `let _ = …`: keep it as long as it has to lead"]
pub struct LeaderHandle {
    client: Arc<ClientInner>,
    cancel: Cancel,
    status: Arc<CandidateStatus>,
}

impl LeaderHandle {
    /// Returns whether the body runs at this moment, and its lease has not ended. That can have changed when this
    /// returns, so use it to watch. The body calls [`check`](crate::Lease::check).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let leading = locks.leader("scheduler").spawn(|lease| lease.check())?;
    /// println!("leads now: {}", leading.is_leader());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_leader(&self) -> bool {
        // In a forked child the mutex can be locked for ever, by a thread that does not exist there.
        self.status.leads.try_lock().is_some_and(|leads| leads.as_ref().is_some_and(|inner| inner.check().is_ok()))
    }

    /// Ends the candidacy. If the candidate waits, it stops within 10 ms. If it leads, it gives up the lock at once,
    /// within two node timeouts. From then on, `check` in the body returns [`Lost`](Error::Lost), and another candidate
    /// leads. The body is not interrupted: [`join`](LeaderHandle::join) waits for it.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let leading = locks.leader("scheduler").spawn(|lease| lease.check())?;
    /// leading.resign();
    /// assert!(!leading.is_leader());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn resign(&self) {
        self.cancel.cancel();
        if self.client.check_not_ended().is_ok() {
            // Not called with the mutex locked: a handler of the loss may resign too, or wait for the end of the term.
            // If the term ends meanwhile, its lease was released or handed over, and nothing is revoked.
            let leads = self.status.leads.lock().clone();
            if let Some(inner) = leads {
                revoke(&self.client.pending, vec![inner]);
            }
        }
    }

    /// Waits until the candidacy has ended: after [`resign`](LeaderHandle::resign) or [`cancel`](Leader::cancel), or by
    /// an error.
    ///
    /// # Errors
    /// The errors of [`Leader::run`]. [`Closed`](Error::Closed) at once in a forked child, which has no such thread.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let leading = locks.leader("scheduler").spawn(|lease| lease.check())?;
    /// locks.shutdown(std::time::Duration::ZERO)?;
    /// assert_eq!(leading.join(), Err(redlock_sync::Error::Closed));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn join(self) -> Result<(), Error> {
        if self.client.process.is_forked_child() {
            return Err(Error::Closed);
        }
        let outcome = self.status.ended.wait(&*self.client.quorum.clock, Tick::NEVER, &[], Option::take);
        outcome.unwrap_or(Ok(()))
    }
}

impl Drop for LeaderHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl fmt::Debug for LeaderHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderHandle").field("is_leader", &self.is_leader()).finish_non_exhaustive()
    }
}
