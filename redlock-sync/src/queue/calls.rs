//! The calls of a queue: pushing, claiming, and the helpers of all calls.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::Job;
use super::task::{Pushed, Task, TaskInfo};
use super::worker::{Verdict, Worker};
use super::{Queue, on_one_node};
use crate::acquire::MaxWait;
use crate::acquire::claim::{ClaimRequest, claim};
use crate::clock::tick_at;
use crate::error::Error;
use crate::key::TaskQueue;
use crate::protocol::TypedCall;
use crate::protocol::reply::{Reply, Vote};
use crate::protocol::task_queue::NewTask;
use crate::protocol::task_replies::{PushReply, SeenTask};

/// The most tasks and bytes of one call. A server handles no other call meanwhile.
pub(super) const BATCH: u8 = 100;
const BATCH_BYTES: usize = 1024 * 1024;
/// The most tasks that one call shows or pops.
const MOST_SHOWN: usize = 1000;

/// # Pushing
impl Queue {
    /// Puts one task into the queue, and returns what that did. Tasks that are due at the same time are claimed in the
    /// order of their pushes, by the server's clock.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) if the server did not answer or refused the push, such as for lack of
    ///   memory. The task may still be queued. If the same [`Task`] is pushed again while it is queued, the
    ///   queue does not have it twice
    /// - [`Full`](Error::Full), [`WrongType`](Error::WrongType), [`Config`](Error::Config) and
    ///   [`Closed`](Error::Closed). After any of these, nothing was queued
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// use redlock_sync::Task;
    /// use std::time::Duration;
    /// mails.push("welcome")?;
    /// mails.push(Task::new("remind").id("invoice:42").after(Duration::from_secs(60)))?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn push(&self, task: impl Into<Task>) -> Result<Pushed, Error> {
        let outcomes = self.push_all([task.into()])?;
        outcomes.first().copied().ok_or_else(|| self.unavailable("push", "the reply does not mention the task".into()))
    }

    /// Puts many tasks into the queue, and returns the outcome for each. The client sends them in requests of up to 100
    /// tasks and 1 MiB of bodies. Tasks that are due at once are claimed in the order of the list.
    ///
    /// # Errors
    /// The errors of [`push`](Queue::push). The server executes each request as a whole or not at all. So after an
    /// error, the tasks of the earlier requests are queued. If one of the tasks is not valid, the error is
    /// [`Config`](Error::Config), and no task is queued.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push_all(["welcome ann", "welcome bob"])?;
    /// assert_eq!(mails.claim()?.body(), b"welcome ann");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn push_all<T: Into<Task>>(&self, tasks: impl IntoIterator<Item = T>) -> Result<Vec<Pushed>, Error> {
        let tasks: Vec<Task> = tasks.into_iter().map(Into::into).collect();
        tasks.iter().try_for_each(|task| task.check(self.max_body))?;
        let (mut outcomes, mut done) = (Vec::with_capacity(tasks.len()), 0);
        while let Some(batch) = tasks.get(done..).filter(|rest| !rest.is_empty()).map(batch) {
            outcomes.extend(self.push_batch(batch)?);
            done += batch.len();
        }
        Ok(outcomes)
    }

    fn push_batch(&self, batch: &[Task]) -> Result<Vec<Pushed>, Error> {
        let policy = batch.first().map_or("keep", |task| task.if_queued.name());
        let new_tasks = (0..).zip(batch).map(|(offset, task)| task.to_new_task(offset));
        let new_tasks = new_tasks.collect::<Result<Vec<NewTask<'_>>, _>>()?;
        match self.ask("push", |tasks| tasks.push(policy, self.max_len, &new_tasks))? {
            Some(PushReply::Each(each)) => Ok(each.into_iter().filter_map(Pushed::parse).collect()),
            Some(PushReply::Full(len)) => Err(Error::Full { key: self.tasks()?.due.as_str().to_owned(), len }),
            None => Ok(Vec::new()),
        }
    }
}

/// The first tasks that fit into one call and have the same policy.
fn batch(tasks: &[Task]) -> &[Task] {
    let (mut bytes, policy) = (0, tasks.first().map(|task| task.if_queued));
    let fits = |task: &&Task| {
        bytes += task.body.len();
        Some(task.if_queued) == policy && bytes <= BATCH_BYTES
    };
    let len = tasks.iter().take(BATCH.into()).take_while(fits).count().max(1);
    tasks.get(..len).unwrap_or(tasks)
}

/// # Claiming
impl Queue {
    /// Claims the task that has been due for longest. If no task is due, the call waits for one. One thread of the
    /// process waits at the server, and the others wait for that thread. A push of a due task wakes it. It also asks
    /// the server when the next task is due, and at least every five seconds.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) once the server could not be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after)
    /// - [`WrongType`](Error::WrongType), [`Config`](Error::Config), also on a client of several nodes, and
    ///   [`Closed`](Error::Closed) at once
    ///
    /// Nothing is claimed after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// let job = mails.claim()?;
    /// println!("UPDATE … WHERE fence <= {}", job.fencing_token()?); // no I/O
    /// job.ack()?; // or `ack_and_claim`, in a loop
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "if unused the claimed task fails at once: `ack` the job when its work is done"]
    pub fn claim(&self) -> Result<Job, Error> {
        loop {
            if let Some(job) = self.claim_within(MaxWait::Forever)? {
                return Ok(job);
            }
        }
    }

    /// Claims a task, and waits for one for at most `wait`. Returns `None` if no task was due in that time.
    /// [`try_claim`](Queue::try_claim) says why that is not an error.
    ///
    /// # Errors
    /// The errors of [`claim`](Queue::claim). [`Unavailable`](Error::Unavailable) comes at the end of `wait` at the
    /// latest.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// # use std::time::Duration;
    /// assert!(mails.try_claim_for(Duration::from_millis(20))?.is_none());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "if unused the claimed task fails at once: `ack` the job when its work is done"]
    pub fn try_claim_for(&self, wait: Duration) -> Result<Option<Job>, Error> {
        self.claim_within(MaxWait::Until(self.client.quorum.now().after(wait)))
    }

    /// Like [`try_claim_for`](Queue::try_claim_for), but with a deadline in place of a length of time.
    ///
    /// # Errors
    /// The errors of `try_claim_for`.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// # use std::time::{Duration, Instant};
    /// assert!(mails.try_claim_until(Instant::now() + Duration::from_millis(20))?.is_none());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "if unused the claimed task fails at once: `ack` the job when its work is done"]
    pub fn try_claim_until(&self, deadline: Instant) -> Result<Option<Job>, Error> {
        self.claim_within(MaxWait::Until(tick_at(&*self.client.quorum.clock, deadline)))
    }

    /// Claims a task if one is due, in one round trip. Returns `None` if no task is due.
    ///
    /// If a lock is taken, the error is [`Busy`](Error::Busy), since a program must not go on without its lock. If a
    /// queue has no due task, that is not an error: there is nothing to do.
    ///
    /// # Errors
    /// The errors of [`claim`](Queue::claim). [`Unavailable`](Error::Unavailable) comes at once.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// assert!(mails.try_claim()?.is_none());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "if unused the claimed task fails at once: `ack` the job when its work is done"]
    pub fn try_claim(&self) -> Result<Option<Job>, Error> {
        self.claim_within(MaxWait::No)
    }

    pub(super) fn claim_within(&self, limit: MaxWait) -> Result<Option<Job>, Error> {
        self.ready()?;
        self.options.check(&self.client.quorum.settings)?;
        Ok(claim(&self.claim_request()?, limit)?.map(|held| Job::new(held, self.clone())))
    }

    pub(super) fn claim_request(&self) -> Result<ClaimRequest<'_>, Error> {
        let tasks = self.tasks()?;
        let attempts = self.options.retry.max_attempts.map_or(u64::MAX, u64::from);
        Ok(ClaimRequest { client: &self.client, tasks, options: &self.options, attempts, limit: self.dead_limit })
    }

    /// Starts this number of threads, which claim tasks and call `handler` with each job.
    ///
    /// With more threads, more tasks run at the same time. While a thread works, it has a renewal thread beside it. A
    /// thread claims a task only when it is free. It sends that claim together with the end of its job, as
    /// [`ack_and_claim`](Job::ack_and_claim) does.
    ///
    /// # Errors
    /// - [`Config`](Error::Config) and [`Closed`](Error::Closed) as for [`claim`](Queue::claim), and `Config` for zero
    ///   threads
    /// - [`Unavailable`](Error::Unavailable) if the system starts no more threads. Then those that have started end
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// use redlock_sync::{Job, Verdict};
    /// use std::time::Duration;
    /// let worker = mails.worker(4, |job: &Job| match job.body() {
    ///     b"" => Verdict::Fail("an empty mail".into()),
    ///     _ => Verdict::Done,
    /// })?;
    /// assert_eq!(worker.stop(Duration::from_secs(30)), 0);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn worker<V: Into<Verdict>>(
        &self,
        threads: usize,
        handler: impl Fn(&Job) -> V + Send + Sync + 'static,
    ) -> Result<Worker, Error> {
        self.ready()?;
        self.options.check(&self.client.quorum.settings)?;
        if threads == 0 {
            return Err(Error::config("a worker needs at least one thread"));
        }
        Worker::start(self.clone(), threads, Box::new(move |job: &Job| handler(job).into()))
    }

    /// Removes up to `most` due tasks, at most 1000, and returns them. The server keeps no copy, so each task is
    /// handled **at most once**. A paused queue returns none. One call returns up to 64 KiB of bodies, or one body that
    /// is larger. So call it until it returns no task. If a claim has run out, its task is due too. If the body of a
    /// task is missing, the task dies and is not returned. If the reply is lost, its tasks are lost. The client then
    /// repeats the request, which removes other tasks.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable). Tasks may then be removed without being returned
    /// - the other errors of [`peek`](Queue::peek)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// assert_eq!(mails.pop_due(10)?[0].body(), b"welcome");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn pop_due(&self, most: usize) -> Result<Vec<TaskInfo>, Error> {
        self.entries("pop", most, |tasks, most| tasks.pop(most, self.dead_limit))
    }
}

/// Helpers of all calls.
impl Queue {
    pub(super) fn tasks(&self) -> Result<&Arc<TaskQueue>, Error> {
        self.tasks.as_ref().map_err(Error::clone)
    }

    pub(super) fn ready(&self) -> Result<&Arc<TaskQueue>, Error> {
        let tasks = self.tasks()?;
        on_one_node(self.client.quorum.len())?;
        self.client.check_not_ended()?;
        Ok(tasks)
    }

    /// Makes one call to the server. `None` for a definite no.
    pub(super) fn ask<R: Reply>(
        &self,
        op: &'static str,
        call: impl FnOnce(&TaskQueue) -> TypedCall<R>,
    ) -> Result<Option<R>, Error> {
        let (tasks, quorum) = (self.ready()?, &self.client.quorum);
        let mut ballot = quorum.round(&call(tasks), quorum.round_deadline());
        if let Some(Vote::Failed(_)) = ballot.votes.first() {
            return Err(quorum.failed(op, tasks.due.as_str(), &ballot));
        }
        Ok(if let Some(Vote::Yes(reply)) = ballot.votes.pop() { Some(reply) } else { None })
    }

    /// Makes a call that returns at most this many tasks.
    pub(super) fn entries(
        &self,
        op: &'static str,
        most: usize,
        call: impl FnOnce(&TaskQueue, u64) -> TypedCall<Vec<SeenTask>>,
    ) -> Result<Vec<TaskInfo>, Error> {
        if most > MOST_SHOWN {
            return Err(Error::config(format!("{most} tasks at once are too many; ask for at most {MOST_SHOWN}")));
        }
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let seen = self.ask(op, |tasks| call(tasks, most))?.unwrap_or_default();
        Ok(seen.into_iter().map(TaskInfo).collect())
    }

    /// Repeats a call on batches of dead tasks, and returns how many tasks were affected. It ends after as many tasks
    /// as were dead at its begin.
    pub(super) fn in_batches(
        &self,
        op: &'static str,
        call: impl Fn(&TaskQueue, u64) -> TypedCall<u64>,
    ) -> Result<u64, Error> {
        // Tasks that die meanwhile are added at the end. Without this limit, a worker that fails all tasks could keep
        // the loop going for ever.
        let (dead, mut total) = (self.dead_len()?, 0);
        while total < dead {
            let Some(done @ 1..) = self.ask(op, |tasks| call(tasks, u64::from(BATCH).min(dead - total)))? else {
                break;
            };
            total += done;
        }
        Ok(total)
    }

    pub(super) fn unavailable(&self, op: &'static str, why: String) -> Error {
        let key = self.tasks.as_ref().map_or_else(|_| String::new(), |tasks| tasks.due.as_str().to_owned());
        self.client.quorum.unavailable(op, key, why)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.tasks.as_ref().map(|tasks| tasks.due.as_str());
        f.debug_struct("Queue").field("key", &key).field("options", &self.options).finish_non_exhaustive()
    }
}
