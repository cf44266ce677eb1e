//! A claimed task, and the ways to end a claim.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Queue;
use super::task::{check_due, limited};
use crate::acquire::claim::{HeldTask, end_and_claim};
use crate::error::{Error, LostReason};
use crate::lease::Lease;
use crate::observer::Event;
use crate::protocol::task_queue::{Claim, Due, Ending};
use crate::protocol::task_replies::Claimed;

/// The most bytes of an error that the server keeps.
const MAX_ERROR_LEN: usize = 200;

/// A claimed task. While its lease is held, no other claimant has the task. A `Job` derefs to that [`Lease`].
///
/// End the claim by [`ack`](Job::ack), [`retry`](Job::retry), [`retry_after`](Job::retry_after),
/// [`again_after`](Job::again_after) or [`fail`](Job::fail). A drop without one of these counts as a `retry`. The
/// client can also give the claim up ([`shutdown`](crate::Redlock::shutdown),
/// [`unlock_all`](crate::Redlock::unlock_all)). Then the attempt counts, and the task is due again at once. If it was
/// the last attempt, the task is dead.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
/// mails.push("welcome ann@a.example")?;
/// let job = mails.claim()?;
/// assert_eq!((job.body(), job.attempt()), (&b"welcome ann@a.example"[..], 1));
/// job.check()?; // still held: before each step that must not be done by two claimants
/// job.ack()?;
/// assert_eq!(mails.len()?, 0);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[must_use = "if unused the task fails at once, and is tried again later: `ack` it when its work is done"]
pub struct Job {
    lease: Lease,
    claim: Arc<Claim>,
    task: Claimed,
    queue: Queue,
}

impl Job {
    pub(super) fn new(held: HeldTask, queue: Queue) -> Job {
        let HeldTask { lease, claim, task } = held;
        let job = Job { lease, claim, task, queue };
        // A claim that the client gives up counts as a failed attempt. Otherwise the task of a handler that hangs
        // whenever its process stops would have more attempts than others.
        job.claim.given_up_by(job.failed(Some(Duration::ZERO), &"the client gave the claim up"));
        job
    }

    /// Returns the body of the task.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// assert_eq!(mails.claim()?.body(), b"welcome");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.task.body()
    }

    /// Returns the id of the task. The id of the claim is [`Lease::id`].
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push(redlock_sync::Task::new("welcome").id("ann"))?;
    /// assert_eq!(mails.claim()?.id(), "ann");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        self.task.id()
    }

    /// Returns the number of this claim of the task, counted from 1. Every claim counts, also that of a process that
    /// was killed.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # use std::time::Duration;
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.retry_after(Duration::ZERO, "the mail server is away")?;
    /// assert_eq!(mails.claim()?.attempt(), 2);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// Returns how long the task had been due when it was claimed, by the server's clock. This time grows if there are
    /// too few workers. If an earlier attempt failed, or its lease ran out, the time counts from when the task was due
    /// again.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # use std::time::Duration;
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// std::thread::sleep(Duration::from_millis(20));
    /// assert!(mails.claim()?.waited() >= Duration::from_millis(20));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.task.waited
    }

    /// Ends the claim because the work is done, and removes the task from the queue. If the task was pushed again
    /// meanwhile ([`Again`](crate::Pushed::Again), [`RunsAgain`](crate::Pushed::RunsAgain)), it is queued again, as a
    /// new task. If the lease has run out, the server still accepts the ack, unless the task was claimed again since.
    ///
    /// # Errors
    /// - [`Lost`](Error::Lost) if the task was claimed again, removed or popped since, or if the client had given the
    ///   claim up. The work may be done twice
    /// - [`Unconfirmed`](Error::Unconfirmed) if the server did not answer, or if `unlock_all` or `shutdown` gave the
    ///   claim up at that moment. The client repeats the request in the background until the lease has ended, or the
    ///   client is closed. If the server has not accepted it by then, the task runs again
    /// - [`WrongType`](Error::WrongType) if a key of the queue holds something else
    /// - [`Closed`](Error::Closed) in a forked child
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.ack()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn ack(self) -> Result<(), Error> {
        self.end(Ending::Done)
    }

    /// Ends the claim like [`ack`](Job::ack), and claims the next task of the queue, in one round trip. Returns `None`
    /// if no task was due, or if none could be claimed. Then call [`claim`](crate::Queue::claim), which waits for a
    /// task and says what is wrong. Begin the work on the new job at once.
    ///
    /// # Errors
    /// The errors of [`ack`](Job::ack). Nothing is claimed after an error: if a task was claimed, it is given back, and
    /// its attempt does not count.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push_all(["welcome ann", "welcome bob"])?;
    /// let mut next = Some(mails.claim()?);
    /// while let Some(job) = next {
    ///     println!("send {:?}", job.body());
    ///     next = job.ack_and_claim()?;
    /// }
    /// assert_eq!(mails.len()?, 0);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "if unused the claimed task fails at once: `ack` the job when its work is done"]
    pub fn ack_and_claim(self) -> Result<Option<Job>, Error> {
        let (ended, next) = self.end_and_claim(Ending::Done);
        match (ended, next) {
            (Ok(()), next) => Ok(next),
            (Err(error), next) => {
                next.into_iter().for_each(Job::give_back);
                Err(error)
            }
        }
    }

    /// Ends the claim because the attempt failed. The task is due again after the pause of the queue's
    /// [`retry`](crate::Queue::retry) policy. If this was the last attempt, the task is dead. The server keeps the
    /// first 200 bytes of `why`.
    ///
    /// # Errors
    /// The errors of [`ack`](Job::ack).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.retry("the mail server is away")?;
    /// assert_eq!(mails.peek(1)?[0].why(), "the mail server is away");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn retry(self, why: impl fmt::Display) -> Result<(), Error> {
        let ending = self.failed(None, &why);
        self.end(ending)
    }

    /// Like [`retry`](Job::retry), but with this pause, to the microsecond, in place of the policy's.
    ///
    /// # Errors
    /// The errors of [`ack`](Job::ack), and [`Config`](Error::Config) if the pause is longer than 100 years. The call
    /// then counts as a drop of the job, so the task is tried again as the policy says.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # use std::time::Duration;
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.retry_after(Duration::from_secs(60), "the mail server is away")?;
    /// assert!(mails.try_claim()?.is_none());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn retry_after(self, pause: Duration, why: impl fmt::Display) -> Result<(), Error> {
        check_due(Due::In(pause))?;
        let ending = self.failed(Some(pause), &why);
        self.end(ending)
    }

    /// Ends the claim because the work is done for now. The task is due again after `pause`, and its next attempt has
    /// number 1. Use it for periodic work.
    ///
    /// # Errors
    /// The errors of [`retry_after`](Job::retry_after).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # use std::time::Duration;
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("clean up")?;
    /// mails.claim()?.again_after(Duration::from_secs(3600))?;
    /// assert_eq!(mails.peek(1)?[0].attempts(), 0);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn again_after(self, pause: Duration) -> Result<(), Error> {
        check_due(Due::In(pause))?;
        self.end(Ending::Again(pause))
    }

    /// Ends the claim because the work can never succeed. The task is [dead](crate::Queue::dead) then. If it was pushed
    /// meanwhile, it is queued again instead. The server keeps the first 200 bytes of `why`.
    ///
    /// # Errors
    /// The errors of [`ack`](Job::ack).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.fail("no such address")?;
    /// assert_eq!(mails.dead(10)?.len(), 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn fail(self, why: impl fmt::Display) -> Result<(), Error> {
        self.end(Ending::Dead(truncated(&why)))
    }

    /// Gives the task back as if it had not been claimed.
    pub(super) fn give_back(self) {
        self.claim.end(Ending::Undo);
        self.lease.release_detached();
    }

    pub(super) fn end(self, ending: Ending) -> Result<(), Error> {
        let verdict = ending.name();
        let is_stored = self.claim.end(ending);
        self.ended(verdict, is_stored, self.lease.release())
    }

    /// Ends the claim, and claims the next task. Returns how the claim has ended, and the next job, if there is one.
    pub(super) fn end_and_claim(self, ending: Ending) -> (Result<(), Error>, Option<Job>) {
        let Ok(request) = self.queue.claim_request() else { return (self.end(ending), None) };
        let verdict = ending.name();
        let is_stored = self.claim.end(ending);
        let (outcome, held) = end_and_claim(&self.lease, &request);
        (self.ended(verdict, is_stored, outcome), held.map(|held| Job::new(held, self.queue.clone())))
    }

    /// The result of the end of the claim, for the caller and for observers.
    fn ended(&self, verdict: &'static str, is_stored: bool, outcome: Result<(), Error>) -> Result<(), Error> {
        let outcome = outcome.map_err(|error| match error.lost_reason() {
            // `unlock_all` has given the claim up meanwhile. It sends this ending.
            Some(LostReason::Revoked) if is_stored => self.inner().unconfirmed(None),
            _ => error,
        });
        self.notify_observers(match &outcome {
            Ok(()) => verdict,
            Err(error) if error.is_lost() => "lost",
            Err(_) => "unconfirmed",
        });
        outcome
    }

    fn notify_observers(&self, verdict: &'static str) {
        let observers = self.lease.observers();
        if observers.are_there() {
            let queue = &*self.inner().options.label;
            let (id, Claimed { attempt, waited, .. }) = (self.task.id(), &self.task);
            let ran = self.lease.held_for();
            observers.notify(&Event::Job { queue, id, attempt: *attempt, verdict, waited: *waited, ran });
        }
    }

    /// How a failed attempt ends: with a retry, or with the death of the task after the last attempt.
    pub(super) fn failed(&self, pause: Option<Duration>, why: &dyn fmt::Display) -> Ending {
        let retry = &self.queue.options.retry;
        if retry.is_exhausted(self.task.attempt) {
            return Ending::Dead(truncated(why));
        }
        let pause = pause.unwrap_or_else(|| retry.pause(self.task.attempt, fastrand::f64()));
        Ending::Retry(limited(pause), truncated(why))
    }
}

/// The first bytes of an error text, cut between characters.
pub(super) fn truncated(why: &dyn fmt::Display) -> String {
    let mut text = why.to_string();
    let end = (0..=MAX_ERROR_LEN.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.truncate(end);
    text
}

impl Deref for Job {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Job {
    /// Stores how the claim ends, if the job was not ended. The drop of the lease sends that.
    fn drop(&mut self) {
        if !self.lease.is_over() {
            let ending = self.failed(None, &"the job was dropped");
            self.notify_observers(if self.lease.check().is_ok() { ending.name() } else { "lost" });
            self.claim.end(ending);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.task.id())
            .field("attempt", &self.task.attempt)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_at_the_end_of_a_character() {
        assert_eq!(truncated(&"boom"), "boom");
        let long = "é".repeat(150);
        assert_eq!(truncated(&long), "é".repeat(100));
        assert_eq!(truncated(&format!("a{long}")).len(), 199);
    }
}
