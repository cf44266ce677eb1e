//! Shows the tasks of a queue, and removes or revives them.

use super::Queue;
use super::calls::BATCH;
use super::task::TaskInfo;
use crate::error::Error;
use crate::key::TaskQueue;
use crate::protocol::task_queue::TaskFilter;

/// # Inspection and removal
///
/// The queue can have changed by the time the call returns.
impl Queue {
    /// Returns the first `most` tasks, at most 1000, in the order of their times. One call returns up to 1 MiB of
    /// bodies, or one body that is larger. The time of a claimed task is the end of its claim.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) if the server did not answer
    /// - [`WrongType`](Error::WrongType) if a key of the queue holds something else
    /// - [`Config`](Error::Config), also if `most` is greater than 1000, and [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// assert_eq!(mails.peek(10)?.len(), 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn peek(&self, most: usize) -> Result<Vec<TaskInfo>, Error> {
        self.entries("peek", most, |tasks, most| tasks.peek(most, TaskFilter::All))
    }

    /// Like [`peek`](Queue::peek), but returns only tasks that are due.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// # use std::time::Duration;
    /// mails.push(redlock_sync::Task::new("remind").after(Duration::from_secs(60)))?;
    /// assert_eq!(mails.peek_due(10)?.len(), 0);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn peek_due(&self, most: usize) -> Result<Vec<TaskInfo>, Error> {
        self.entries("peek", most, |tasks, most| tasks.peek(most, TaskFilter::Due))
    }

    /// Returns the first `most` dead tasks, at most 1000. The task that has been dead for longest comes first. One call
    /// returns up to 1 MiB of bodies, or one body that is larger.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.fail("no such address")?;
    /// assert_eq!(mails.dead(10)?[0].why(), "no such address");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn dead(&self, most: usize) -> Result<Vec<TaskInfo>, Error> {
        self.entries("peek", most, |tasks, most| tasks.peek(most, TaskFilter::Dead))
    }

    /// Returns the number of tasks in the queue, both waiting and claimed. Dead tasks do not count.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// assert_eq!(mails.len()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.ask("count", TaskQueue::count)?.unwrap_or_default())
    }

    /// Returns the number of dead tasks.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.fail("no such address")?;
    /// assert_eq!(mails.dead_len()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn dead_len(&self) -> Result<u64, Error> {
        Ok(self.ask("count", TaskQueue::count_dead)?.unwrap_or_default())
    }

    /// Returns whether no task is in the queue. Dead tasks do not count.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// assert!(mails.is_empty()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Removes a task, whether it is claimed, dead or neither. Returns whether there was a task with this id. If it is
    /// claimed, its claim is [`Lost`](Error::Lost) at the next renewal.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After `Unavailable`, the task may still be removed.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push(redlock_sync::Task::new("remind").id("invoice:42"))?;
    /// assert!(mails.remove("invoice:42")?);
    /// assert!(!mails.remove("invoice:42")?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn remove(&self, id: &str) -> Result<bool, Error> {
        Ok(self.ask("remove", |tasks| tasks.remove(id))?.is_some())
    }

    /// Removes a task, unless a claim, its renewal or its end, or a push has changed it since it was read. Returns
    /// whether this call removed it.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After `Unavailable`, the task may still be removed.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// let seen = mails.peek(1)?;
    /// assert!(mails.remove_if(&seen[0])?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn remove_if(&self, seen: &TaskInfo) -> Result<bool, Error> {
        Ok(self.ask("remove", |tasks| tasks.remove_if(&seen.0))?.is_some())
    }

    /// Removes all tasks that no claimant has, in requests of 100 tasks: those that are due, and those that are not due
    /// yet. Returns how many tasks it removed. Claimed tasks go on, and dead tasks stay
    /// ([`purge_dead`](Queue::purge_dead)). A task that is pushed during the call may stay too.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After an error, some tasks may be removed.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push_all(["welcome ann", "welcome bob"])?;
    /// assert_eq!(mails.clear()?, 2);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn clear(&self) -> Result<u64, Error> {
        let (all, mut removed) = (self.len()?, 0);
        loop {
            let (before, mut skipped) = (removed, 0);
            // Without this limit, a program that pushes all the time could keep the loop going for ever.
            while removed < all {
                let Some(cleared) = self.ask("clear", |tasks| tasks.clear(BATCH.into(), skipped))? else { break };
                (removed, skipped) = (removed + cleared.removed, skipped + cleared.kept);
                if cleared.is_all {
                    break;
                }
            }
            // If a claim ended meanwhile, another task was skipped in its place.
            if skipped == 0 || removed == before || removed >= all {
                return Ok(removed);
            }
        }
    }

    /// Pauses the queue for all clients: no task is claimed or popped until [`resume`](Queue::resume). Jobs that run go
    /// on and can end, and pushes are accepted. A thread that waits for a task goes on waiting. Returns whether the
    /// queue was not paused before.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After `Unavailable`, the queue may be paused.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.pause()?;
    /// assert!(mails.try_claim()?.is_none());
    /// mails.resume()?;
    /// assert!(mails.try_claim()?.is_some());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn pause(&self) -> Result<bool, Error> {
        Ok(self.ask("pause", |tasks| tasks.pause(true))? == Some(1))
    }

    /// Ends the pause of the queue, and wakes a thread that waits for a task. Returns whether the queue was paused.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After `Unavailable`, the pause may have ended.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// assert!(!mails.resume()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn resume(&self) -> Result<bool, Error> {
        Ok(self.ask("resume", |tasks| tasks.pause(false))? == Some(1))
    }

    /// Returns whether the queue is paused.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.pause()?;
    /// assert!(mails.is_paused()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_paused(&self) -> Result<bool, Error> {
        Ok(self.ask("ask for a pause of", TaskQueue::is_paused)? == Some(1))
    }

    /// Queues a dead task again. It is due now, and its attempts start anew. Returns whether there was a dead task with
    /// this id.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After `Unavailable`, the task may still be queued again.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push(redlock_sync::Task::new("welcome").id("ann"))?;
    /// mails.claim()?.fail("no such address")?;
    /// assert!(mails.revive("ann")?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn revive(&self, id: &str) -> Result<bool, Error> {
        Ok(self.ask("revive", |tasks| tasks.revive(id, 0))? == Some(1))
    }

    /// Queues all dead tasks again, in requests of 100 tasks. Returns how many tasks it queued.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After an error, some tasks may be queued again.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.fail("no such address")?;
    /// assert_eq!(mails.revive_all()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn revive_all(&self) -> Result<u64, Error> {
        self.in_batches("revive", |tasks, most| tasks.revive("", most))
    }

    /// Removes all dead tasks, in requests of 100 tasks. Returns how many tasks it removed.
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek). After an error, some tasks may be removed.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.fail("no such address")?;
    /// assert_eq!(mails.purge_dead()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn purge_dead(&self) -> Result<u64, Error> {
        self.in_batches("purge", TaskQueue::purge)
    }
}
