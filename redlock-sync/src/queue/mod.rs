//! Queues of delayed tasks, on one node.
//!
//! 1. `task.rs`: tasks to push, and entries that a queue shows. `job.rs`: a claimed task. `worker.rs`: threads that
//!    handle tasks.
//! 2. `json.rs`: bodies as JSON.
//! 3. `calls.rs`: pushing and claiming. `inspection.rs`: showing, removing and reviving tasks. [`Queue`] here:
//!    settings.
//!
//! The calls are in `protocol/task_queue.rs`, claiming and waiting in `acquire/claim.rs`. A claim is a lease like that
//! of a lock.

mod calls;
mod inspection;
pub(crate) mod job;
#[cfg(feature = "json")]
mod json;
pub(crate) mod task;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
pub(crate) mod worker;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::{Cancel, Cancelling};
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::TaskQueue;
use crate::options::{LockOptions, Retry};
use crate::protocol::task_queue::DeadLimit;

/// A queue of tasks on one server. Each task is due at once or later. [`Redlock::queue`](crate::Redlock::queue) makes
/// it.
///
/// Picture a board with a card for each task. A worker leaves the card on the board, and puts its name on the card for
/// the length of a lease. It renews the lease while it works. If the worker dies, the card is free again after the
/// lease.
///
/// Each task is run at least once, by one claimant at a time. A claimant is a thread that has claimed the task. If
/// another claimant has claimed the task since, the server refuses the ack of the former one. The page on
/// [queues](https://github.com/redlock-sync/redlock-sync/blob/main/docs/queue.md) has the promises and their limits. A
/// handle is cheap: it can be cloned and shared.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Redlock, Task};
/// use std::time::Duration;
///
/// let mails = Redlock::open(&url)?.queue("emails");
/// mails.push("welcome ann@a.example")?;
/// mails.push(Task::new("remind bob@b.example").after(Duration::from_secs(3600)))?;
///
/// let job = mails.claim()?; // waits for a task
/// println!("send {:?}", job.body());
/// job.ack()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Clone)]
pub struct Queue {
    client: Arc<ClientInner>,
    tasks: Result<Arc<TaskQueue>, Error>,
    options: Arc<LockOptions>,
    max_len: Option<u64>,
    max_body: usize,
    dead_limit: DeadLimit,
}

/// Returns `Config` on a client of several nodes.
pub(crate) fn on_one_node(nodes: usize) -> Result<(), Error> {
    if nodes > 1 {
        return Err(Error::config(format!(
            "a queue needs a client of one server, but this client has {nodes} nodes: several servers \
             cannot keep one order of tasks"
        )));
    }
    Ok(())
}

/// # Settings
///
/// Each is a method that returns the handle with this setting.
impl Queue {
    pub(crate) fn new(client: Arc<ClientInner>, tasks: Result<TaskQueue, Error>, options: &LockOptions) -> Queue {
        let retry = Retry::growing(Duration::from_secs(5), Duration::from_secs(3600)).max_attempts(20);
        Queue {
            client,
            tasks: tasks.map(Arc::new),
            options: Arc::new(LockOptions { retry, ..options.clone() }),
            max_len: None,
            max_body: 512 * 1024,
            dead_limit: DeadLimit { most: 10_000, age: None },
        }
    }

    fn options_mut(&mut self) -> &mut LockOptions {
        Arc::make_mut(&mut self.options)
    }

    /// Sets how long a claim lasts without a renewal, 10 ms to 24 h; default: the client's (30 s). A thread renews the
    /// claim each time a third of it has passed. With a longer lease, there are fewer renewals, and a claim outlives
    /// longer outages of the server. With a shorter lease, the task of a dead process is claimed again sooner.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").lease(Duration::from_secs(10));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Queue {
        self.options_mut().lease = lease;
        self
    }

    /// Sets whether claims are renewed; default true. With `true`, a task stays claimed as long as its handler works or
    /// hangs. With `false`, the task is due again one lease after it was claimed, even while its handler works. Either
    /// way, a thread beside each claim notices a loss.
    ///
    /// ```
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").renew(false);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn renew(mut self, renew: bool) -> Queue {
        self.options_mut().renew = renew;
        self
    }

    /// Sets the longest time for which a claim is held, renewals included; default: no limit. Without a limit, the task
    /// of a handler that hangs stays claimed until the process ends. With a limit, the task of a slow handler can run
    /// twice. With a longer time, slow handlers can finish. With a shorter time, the task of a handler that hangs is
    /// claimed again sooner.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mails =
    /// redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").max_hold(Duration::from_secs(600));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn max_hold(mut self, hold: Duration) -> Queue {
        self.options_mut().max_hold = Some(hold);
        self
    }

    /// Sets a [`Cancel`], by which another thread stops claims of this handle that wait; default none. These calls, and
    /// all later claims by this handle, return [`Cancelled`](crate::Error::Cancelled). A worker of this handle ends.
    /// [`Cancel`] says what it costs.
    ///
    /// ```
    /// let cancel = redlock_sync::Cancel::new();
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").cancel(&cancel);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Queue {
        self.options_mut().cancel = Cancelling::by(cancel);
        self
    }

    /// Sets the pauses after attempts that failed, and how many attempts a task has; default 5 s growing to an hour, 20
    /// attempts. With longer pauses, a service that is down gets fewer calls. With shorter pauses, the work is done
    /// sooner once the service is back. With more attempts, tasks outlast longer outages. With fewer, a task that can
    /// never succeed is dead sooner. Without a limit of attempts, no task dies by itself.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use redlock_sync::Retry;
    /// let retry = Retry::growing(Duration::from_secs(1), Duration::from_secs(60)).max_attempts(5);
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").retry(retry);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Queue {
        self.options_mut().retry = retry;
        self
    }

    /// Sets how many tasks the queue may have, claimed ones included; default: no limit. A push by this handle that
    /// exceeds the limit returns [`Full`](Error::Full). If a `push_all` returns `Full`, the tasks of its earlier
    /// requests are queued. A limit bounds the server's memory if claimants stay away. Without a limit, the server
    /// refuses a push only if it has no memory left. With a larger limit, claimants can stay away for longer. Zero
    /// admits no task.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let mails = redlock_sync::Redlock::open(&url)?.queue("emails").max_len(1);
    /// mails.push("first")?;
    /// assert!(matches!(mails.push("second"), Err(redlock_sync::Error::Full { .. })));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn max_len(mut self, tasks: u64) -> Queue {
        self.max_len = Some(tasks);
        self
    }
}

/// # Settings that are rarely needed
impl Queue {
    /// Sets the label under which observers and metrics show the queue; default: its name, without the client's
    /// `key_prefix`. Metrics have a series for each label. So if there are many queues of a kind, choose one label for
    /// all of them, such as `mails` for `mails:{7}`.
    ///
    /// ```
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("mails:{7}").label("mails");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Queue {
        self.options_mut().label = label.into();
        self
    }

    /// Sets the longest body in bytes; default 512 KiB. With a larger limit, more fits into a task. With a smaller
    /// limit, less of the server's memory and of the network is used. A body travels with its push and with each claim.
    /// Store large data elsewhere, and put its address into the body. A push of a longer body returns
    /// [`Config`](Error::Config).
    ///
    /// ```
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").max_body(1024);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Queue {
        self.max_body = bytes;
        self
    }

    /// Sets how many dead tasks the server keeps; default 10 000. If one more task dies, the server drops the task that
    /// has been dead for longest. With a larger number, [`dead`](Queue::dead) and [`revive_all`](Queue::revive_all)
    /// reach further back. With a smaller number, less memory is used: dead tasks keep their bodies. Zero keeps none.
    ///
    /// ```
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").keep_dead(100);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn keep_dead(mut self, tasks: u64) -> Queue {
        self.dead_limit.most = tasks;
        self
    }

    /// Sets for how long the server keeps a dead task; default: no limit. The server drops older ones when a task dies,
    /// and when a claim of this handle finds no due task, ten at a time. So they stay while no client claims. With a
    /// longer time, [`dead`](Queue::dead) and [`revive_all`](Queue::revive_all) reach further back. With a shorter
    /// time, less memory is used.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let month = Duration::from_secs(30 * 86_400);
    /// let mails = redlock_sync::Redlock::open("redis://127.0.0.1/")?.queue("emails").keep_dead_for(month);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn keep_dead_for(mut self, age: Duration) -> Queue {
        self.dead_limit.age = Some(age);
        self
    }
}
