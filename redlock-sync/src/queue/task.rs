//! The tasks that are pushed, and the entries that a queue shows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::names::escaped;
use crate::protocol::task_queue::{Due, NewTask};
use crate::protocol::task_replies::SeenTask;
use crate::token::random_part;

/// The longest id, in bytes.
const MAX_ID: usize = 512;
/// The latest time that the servers keep exact to the microsecond, in the year 2255.
const LATEST: Duration = Duration::from_secs(9_000_000_000);
/// The longest delay: a hundred years.
const LONGEST_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A task for a [`Queue`](crate::Queue): a body, when it is due, and an id.
///
/// ```
/// use redlock_sync::{IfQueued, Task};
/// use std::time::Duration;
///
/// let at_once = Task::new("welcome ann@a.example");
/// let later = Task::new(vec![1, 2, 3]).after(Duration::from_secs(60));
/// let once = Task::new("remind").id("invoice:42").if_queued(IfQueued::Keep);
/// # let _ = (at_once, later, once);
/// ```
#[derive(Debug, Clone)]
pub struct Task {
    /// A random id is drawn when the task is made. If the system gave no random numbers, the push reports that.
    pub(super) id: Result<String, Error>,
    pub(super) body: Vec<u8>,
    pub(super) due: Due,
    pub(super) if_queued: IfQueued,
}

/// What a push does if a task with its id is queued already. If that task is claimed, or its claim has run out, it runs
/// once more after that claim in any case. [`Pushed::Again`] and [`Pushed::RunsAgain`] say with which body.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{IfQueued, Pushed, Redlock, Task};
/// let mails = Redlock::open(&url)?.queue("emails");
/// mails.push(Task::new("first").id("invoice:42"))?;
/// assert_eq!(mails.push(Task::new("second").id("invoice:42"))?, Pushed::Kept);
/// assert_eq!(mails.push(Task::new("third").id("invoice:42").if_queued(IfQueued::Replace))?, Pushed::Changed);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum IfQueued {
    /// The default. The queued task keeps its time and its body. A claimed task runs once more, at the time of the
    /// first push that came during the claim.
    #[default]
    Keep,
    /// The queued task gets the time and the body of this push, and its attempts start anew. A claimed task gets them
    /// when its claim ends, in whatever way it ends.
    Replace,
    /// The queued task is due at the earlier of the two times, and keeps its body. A claimed task runs once more, at
    /// the earliest time of the pushes that came during the claim.
    Earlier,
}

/// What a push did.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Pushed, Redlock};
/// let mails = Redlock::open(&url)?.queue("emails");
/// assert_eq!(mails.push("welcome")?, Pushed::New);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pushed {
    /// No task with this id was queued, and now this one is. If there was a dead task with this id, it is gone.
    New,
    /// A task with this id was queued. It has the time of this push now, and with [`IfQueued::Replace`] also its body.
    Changed,
    /// A task with this id was queued, and stays as it was. A push of a new task returns this too if the client had to
    /// send it twice, because the first reply was lost.
    Kept,
    /// A task with this id is claimed, or its claim has run out. After that claim, the task begins anew, with the time
    /// and the body of this push ([`IfQueued::Replace`]).
    Again,
    /// A task with this id is claimed, or its claim has run out. After that claim, the task runs once more, with the
    /// body that it has. **The body of this push is dropped** ([`IfQueued::Keep`] and [`IfQueued::Earlier`]).
    RunsAgain,
}

impl Task {
    /// Makes a task that is due at once, with a random id. A clone has the same id. So if a clone is pushed while the
    /// task is queued, such as after an error, the queue does not have the task twice.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Redlock, Task};
    /// let mails = Redlock::open(&url)?.queue("emails");
    /// let task = Task::new("welcome");
    /// mails.push(task.clone())?;
    /// mails.push(task)?;
    /// assert_eq!(mails.len()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn new(body: impl Into<Vec<u8>>) -> Task {
        Task { id: random_part(), body: body.into(), due: Due::In(Duration::ZERO), if_queued: IfQueued::Keep }
    }

    /// Sets the id, 1 to 512 bytes; default: a random one. A queue has at most one task with an id at a time. If the
    /// length is wrong, the push returns [`Config`](Error::Config).
    ///
    /// ```
    /// let task = redlock_sync::Task::new("remind").id("invoice:42");
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Task {
        self.id = Ok(id.into());
        self
    }

    /// Makes the task due this long after the push, by the server's clock, to the microsecond; default zero. If the
    /// delay is longer than 100 years, the push returns [`Config`](Error::Config).
    ///
    /// ```
    /// use std::time::Duration;
    /// let task = redlock_sync::Task::new("remind").after(Duration::from_secs(60));
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Task {
        self.due = Due::In(delay);
        self
    }

    /// Makes the task due at this time, by the server's clock. If the time is later than 14 March 2255, the push
    /// returns [`Config`](Error::Config). The task with the earliest time is claimed first, so a time in the past puts
    /// a task before those that wait. A time before 1970 counts as the beginning of 1970.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// let new_year = UNIX_EPOCH + Duration::from_secs(1_798_761_600);
    /// let task = redlock_sync::Task::new("happy new year").at(new_year);
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn at(mut self, time: SystemTime) -> Task {
        self.due = Due::At(time.duration_since(UNIX_EPOCH).unwrap_or_default());
        self
    }

    /// Sets what the push does if a task with the same id is queued already; default [`IfQueued::Keep`].
    ///
    /// ```
    /// use redlock_sync::{IfQueued, Task};
    /// let task = Task::new("remind").id("invoice:42").if_queued(IfQueued::Earlier);
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn if_queued(mut self, then: IfQueued) -> Task {
        self.if_queued = then;
        self
    }

    pub(super) fn check(&self, max_body: usize) -> Result<(), Error> {
        let id = self.id.as_ref().map_err(Clone::clone)?;
        if id.is_empty() || id.len() > MAX_ID {
            return Err(Error::config(format!("the id of a task must have 1 to {MAX_ID} bytes, but has {}", id.len())));
        }
        if self.body.len() > max_body {
            let length = self.body.len();
            return Err(Error::config(format!(
                "the body of task `{}` has {length} bytes, more than max_body = {max_body}",
                escaped(id)
            )));
        }
        check_due(self.due)
    }

    /// The task as it is sent, due `offset` microseconds later than it says: so the tasks of one push are due in their
    /// order.
    pub(super) fn to_new_task(&self, offset: u64) -> Result<NewTask<'_>, Error> {
        let id = self.id.as_deref().map_err(Clone::clone)?;
        let due = match self.due {
            Due::In(pause) => Due::In(pause.saturating_add(Duration::from_micros(offset))),
            at @ Due::At(_) => at,
        };
        Ok(NewTask { id, due, body: &self.body })
    }
}

/// Returns an error for a time that a server cannot keep exactly.
pub(super) fn check_due(due: Due) -> Result<(), Error> {
    match due {
        Due::In(pause) if pause > LONGEST_DELAY => {
            Err(Error::config(format!("a delay of {pause:?} is longer than {LONGEST_DELAY:?}")))
        }
        Due::At(time) if time > LATEST => {
            Err(Error::config(format!("the time {time:?} after 1970 is later than a server can store exactly")))
        }
        _ => Ok(()),
    }
}

/// Limits a pause to the longest one that a server keeps. Used for a pause of a policy or a verdict, for which no
/// caller could get an error.
pub(super) fn limited(pause: Duration) -> Duration {
    pause.min(LONGEST_DELAY)
}

impl IfQueued {
    /// The name of the policy in the script.
    pub(super) fn name(self) -> &'static str {
        match self {
            IfQueued::Keep => "keep",
            IfQueued::Replace => "replace",
            IfQueued::Earlier => "earlier",
        }
    }
}

impl Pushed {
    /// Parses the number that the script returns for a task.
    pub(super) fn parse(number: i64) -> Option<Pushed> {
        match number {
            0 => Some(Pushed::Kept),
            1 => Some(Pushed::New),
            2 => Some(Pushed::Changed),
            3 => Some(Pushed::Again),
            4 => Some(Pushed::RunsAgain),
            _ => None,
        }
    }
}

impl From<&str> for Task {
    fn from(body: &str) -> Task {
        Task::new(body)
    }
}

impl From<String> for Task {
    fn from(body: String) -> Task {
        Task::new(body)
    }
}

impl From<&[u8]> for Task {
    fn from(body: &[u8]) -> Task {
        Task::new(body)
    }
}

impl From<Vec<u8>> for Task {
    fn from(body: Vec<u8>) -> Task {
        Task::new(body)
    }
}

/// A task as it was when a call such as [`Queue::peek`](crate::Queue::peek) read it.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Redlock, Task};
/// let mails = Redlock::open(&url)?.queue("emails");
/// mails.push(Task::new("welcome").id("ann"))?;
/// let first = &mails.peek(1)?[0];
/// assert_eq!((first.id(), first.body(), first.attempts()), ("ann", &b"welcome"[..], 0));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInfo(pub(super) SeenTask);

impl TaskInfo {
    /// Returns the id of the task.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push(redlock_sync::Task::new("welcome").id("ann"))?;
    /// assert_eq!(mails.peek(1)?[0].id(), "ann");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// Returns the body of the task.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// assert_eq!(mails.peek(1)?[0].body(), b"welcome");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.0.body()
    }

    /// Returns the time from the reading of the task until it is due, or zero if it was due. If the task is claimed,
    /// this is the time until its claim ends, unless it is renewed. If the task is dead or was popped, this is zero.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::Task;
    /// use std::time::Duration;
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push(Task::new("remind").after(Duration::from_secs(60)))?;
    /// assert!(mails.peek(1)?[0].due_in() > Duration::from_secs(50));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn due_in(&self) -> Duration {
        let SeenTask { due_at, seen_at, .. } = self.0;
        if seen_at == 0 { Duration::ZERO } else { Duration::from_micros(due_at.saturating_sub(seen_at)) }
    }

    /// Returns when the task is due, by the server's clock; 14 March 2255 at most. If the task is claimed, this is the
    /// end of its claim. If the task is dead, this is when it died.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # use std::time::{Duration, UNIX_EPOCH};
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// assert!(mails.peek(1)?[0].due_at() > UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn due_at(&self) -> SystemTime {
        // Some systems have no times after the year 30828. The addition would panic there.
        UNIX_EPOCH + Duration::from_micros(self.0.due_at).min(LATEST)
    }

    /// Returns how often the task has been claimed since it was new. A claim that the client undid before it returned a
    /// job does not count.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// let job = mails.claim()?;
    /// assert_eq!(mails.peek(1)?[0].attempts(), 1);
    /// # drop(job);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Returns whether the task is claimed, and its claim has not run out.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// let job = mails.claim()?;
    /// assert!(mails.peek(1)?[0].is_claimed());
    /// # drop(job);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.0.is_claimed && !self.due_in().is_zero()
    }

    /// Returns why the last attempt failed. The text is empty if no attempt failed.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push("welcome")?;
    /// mails.claim()?.fail("no such address")?;
    /// assert_eq!(mails.dead(1)?[0].why(), "no such address");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn why(&self) -> &str {
        &self.0.why
    }
}

/// In a body that is not valid UTF-8, each invalid part is replaced by the character U+FFFD.
#[cfg(feature = "serde")]
impl serde::Serialize for TaskInfo {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use crate::serial::ms;
        use serde::ser::SerializeStruct;
        let mut entry = to.serialize_struct("TaskInfo", 8)?;
        entry.serialize_field("id", self.id())?;
        entry.serialize_field("body", &String::from_utf8_lossy(self.body()))?;
        entry.serialize_field("is_text", &std::str::from_utf8(self.body()).is_ok())?;
        entry.serialize_field("claimed", &self.is_claimed())?;
        entry.serialize_field("due_in_ms", &ms(self.due_in()))?;
        entry.serialize_field("at_ms", &ms(self.due_at().duration_since(UNIX_EPOCH).unwrap_or_default()))?;
        entry.serialize_field("attempts", &self.attempts())?;
        entry.serialize_field("why", self.why())?;
        entry.end()
    }
}
