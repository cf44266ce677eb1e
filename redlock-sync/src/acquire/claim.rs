//! Claiming a task of a queue, and waiting for one.
//!
//! One thread of a process waits at the server for the tasks of a queue. Other threads that want a task wait behind it
//! in the queue of threads. When a task becomes due, or the time of the next task changes, a script notifies one
//! waiting client over its notification connection.
//!
//! A notification can be lost with its receiver, so the thread also asks when the next task is due, and every
//! [`LONGEST_SLEEP`] at the latest. The script that finds no task records the wait in the same step. A task that is
//! added before is claimed, and one that is added after finds the wait. Without a subscription the thread polls, with
//! pauses that grow to [`LAST_POLL`].

use std::sync::Arc;
use std::time::Duration;

use super::{MaxWait, WaitLimit};
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::listener::{Awaits, ListenerWait};
use crate::handover::thread_queue::QueueOutcome;
use crate::inner::ClientInner;
use crate::key::TaskQueue;
use crate::lease::{Lease, LeaseInner, PendingRelease};
use crate::options::{LockOptions, MIN_VALIDITY, jittered};
use crate::protocol::reply::{Acquired, PerNode, Vote};
use crate::protocol::task_queue::{Claim, DeadLimit, QUEUE};
use crate::protocol::task_replies::{ClaimReply, Claimed};
use crate::protocol::{LeaseCalls, Next, ReleaseArgs, TypedCall};
use crate::quorum::Ballot;
use crate::token::LockId;

/// The longest sleep of a thread whose client is notified of tasks. Half of it is random.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The first and the longest pause of a thread that polls.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(500);
/// How long the server keeps a wait after its last request: longer than [`LONGEST_SLEEP`]. It is short, since the next
/// notification is tried on each wait of a client that is gone.
const WAIT_LIFETIME: Duration = Duration::from_secs(60);

/// A request for a task of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimRequest<'a> {
    pub(crate) client: &'a Arc<ClientInner>,
    pub(crate) tasks: &'a TaskQueue,
    pub(crate) options: &'a Arc<LockOptions>,
    /// A task dies after this many attempts.
    pub(crate) attempts: u64,
    pub(crate) limit: DeadLimit,
}

impl ClaimRequest<'_> {
    fn not_cancelled(&self) -> Result<(), Error> {
        self.options.cancel.check("claim", self.tasks.due.as_str())
    }
}

/// A task that this process has claimed.
#[derive(Debug)]
pub(crate) struct HeldTask {
    pub(crate) lease: Lease,
    pub(crate) claim: Arc<Claim>,
    pub(crate) task: Claimed,
}

/// Why an attempt claimed no task.
enum NotClaimed {
    /// No task is due. The next one is due after this time, if there is one.
    Nothing(Option<Duration>),
    /// There was no usable answer.
    Failed(Error),
}

impl From<Error> for NotClaimed {
    fn from(error: Error) -> NotClaimed {
        NotClaimed::Failed(error)
    }
}

/// Claims a task, and waits for one as long as `limit` allows. `None` if there was no task.
pub(crate) fn claim(request: &ClaimRequest<'_>, limit: MaxWait) -> Result<Option<HeldTask>, Error> {
    let client = request.client;
    let _call = client.begin_call();
    client.check_open()?;
    request.not_cancelled()?;
    let limit = WaitLimit::new(client, request.tasks.due.as_str(), limit, request.options.unavailable_after);
    let mut claims = ClaimLoop { request, limit, made: 0, queued: None, entered: None };
    // The first attempt does not wait for other threads: usually a task is due.
    if let Some(outcome) = claims.attempt(false, None) {
        return outcome;
    }
    loop {
        let until = claims.limit.until;
        match client.queues.enqueue(request.tasks.due.name(), until, QUEUE, request.options) {
            QueueOutcome::Head(head) => {
                let outcome = claims.run();
                drop(head);
                return outcome;
            }
            // A claim is never handed to another thread.
            QueueOutcome::Handed(lease) => drop(lease),
            QueueOutcome::Late => {
                request.not_cancelled()?;
                return claims.attempt(false, None).unwrap_or(Ok(None));
            }
            QueueOutcome::Closed => return Err(Error::Closed),
        }
    }
}

/// A thread that wants a task.
struct ClaimLoop<'a> {
    request: &'a ClaimRequest<'a>,
    limit: WaitLimit<'a>,
    /// Attempts since the last one after which the client was sure to be notified of tasks.
    made: u32,
    queued: Option<ListenerWait>,
    /// The wait that the last attempt recorded at the server.
    entered: Option<Arc<str>>,
}

impl ClaimLoop<'_> {
    /// The loop of the one thread of this process that waits for the queue.
    fn run(&mut self) -> Result<Option<HeldTask>, Error> {
        loop {
            if let Err(error) = self.request.client.check_open().and_then(|()| self.request.not_cancelled()) {
                self.end_wait();
                return Err(error);
            }
            // If the client still listens, as after an earlier task, the first attempt enters a wait at once. Otherwise
            // the client has to subscribe first.
            if self.queued.is_none() && self.request.client.listener.listens() {
                self.queued = Some(self.request.client.listener.begin());
            }
            let id = self.queued.as_ref().and_then(ListenerWait::notified_id);
            if let Some(outcome) = self.attempt(true, id) {
                // An attempt that fails does not remove the wait that an earlier attempt entered.
                if outcome.is_err() {
                    self.end_wait();
                }
                return outcome;
            }
        }
    }

    /// Makes one attempt. If there is no task and time is left, it sleeps if `waits` is true. This thread is then the
    /// one that waits for its process. `id` is the id of the wait to record at the server.
    ///
    /// `None` if the caller is to go on.
    fn attempt(&mut self, waits: bool, id: Option<Arc<str>>) -> Option<Result<Option<HeldTask>, Error>> {
        let tried_at = self.request.client.quorum.now();
        let is_last = tried_at >= self.limit.until;
        let stays = if is_last { Duration::ZERO } else { WAIT_LIFETIME };
        let by = self.request.client.quorum.round_deadline();
        let found = loop {
            match attempt(self.request, id.as_deref().map(|id| (id, stays))) {
                // Ten tasks died, as many as one call lets die, and the next one is due.
                Err(NotClaimed::Nothing(Some(Duration::ZERO))) if self.request.client.quorum.now() < by => {}
                found => break found,
            }
        };
        let (next, is_away) = match found {
            Ok(held) => {
                self.limit.answered();
                return Some(Ok(Some(held)));
            }
            Err(NotClaimed::Nothing(next)) => {
                self.limit.answered();
                if is_last {
                    return Some(Ok(None));
                }
                (next, false)
            }
            Err(NotClaimed::Failed(error)) => {
                if is_last || !error.is_unavailable() || self.limit.unanswered(&error, tried_at) {
                    return Some(Err(error));
                }
                (None, true)
            }
        };
        if waits {
            self.entered = id.filter(|_| !is_away);
            self.sleep(next, is_away);
        }
        None
    }

    /// Sleeps until a notification, the time at which the next task is due, or the end of the pause.
    fn sleep(&mut self, next: Option<Duration>, is_away: bool) {
        let client = self.request.client;
        let now = client.quorum.now();
        let queued = self.queued.get_or_insert_with(|| client.listener.begin());
        let time = if self.entered.is_some() {
            self.made = 0;
            // If a claim ends with its lease, its task is due again. With a lease shorter than the longest sleep, the
            // thread asks once per lease.
            LONGEST_SLEEP.min(self.request.options.lease)
        } else {
            self.made = self.made.saturating_add(1);
            FIRST_POLL.saturating_mul(1 << (self.made - 1).min(16)).min(LAST_POLL)
        };
        let time = next.map_or(jittered(time), |next| next.min(jittered(time)));
        queued.await_also(if is_away { Awaits::Servers } else { Awaits::Task });
        queued.sleep(now.after(time).min(self.limit.until), &self.request.options.cancel);
    }

    /// Ends the wait at the server, which then notifies the next client: a task may have been announced to this one
    /// alone. If the call is lost, the next client asks when its own sleep ends.
    fn end_wait(&self) {
        let Some(wait) = &self.entered else { return };
        let quorum = &self.request.client.quorum;
        let call = self.request.tasks.leave(wait);
        // After the end of a wait, the attempt under way and this call together get one node timeout.
        let by = quorum.round_deadline().min(self.limit.until.after(quorum.settings.node_timeout));
        drop(quorum.round(&call, by));
    }
}

/// Makes one round with a new token. A claim that it may have made is rolled back before an error is returned.
fn attempt(request: &ClaimRequest<'_>, wait: Option<(&str, Duration)>) -> Result<HeldTask, NotClaimed> {
    let attempt = Attempt::new(request, wait)?;
    let quorum = &request.client.quorum;
    let ballot = quorum.round(&attempt.call, quorum.round_deadline());
    attempt.judged(ballot)
}

/// Ends a claim, and claims the next task behind that, in one packet. If that task was not claimed, for whatever
/// reason, the second value is `None`. The caller has to begin its work at once.
///
/// If the connection breaks, both calls are sent once more, in the same order and with the same tokens. So the end is
/// not lost, and the claim names the same task.
pub(crate) fn end_and_claim(lease: &Lease, request: &ClaimRequest<'_>) -> (Result<(), Error>, Option<HeldTask>) {
    let _call = request.client.begin_call();
    let is_open = request.client.check_open().and_then(|()| request.not_cancelled());
    // Without a token, no task is claimed. A later claim reports why.
    let Ok(attempt) = is_open.and_then(|()| Attempt::new(request, None)) else { return (lease.release(), None) };
    let (ended, ballot) = lease.release_and(&attempt.call);
    (ended, ballot.and_then(|ballot| attempt.judged(ballot).ok()))
}

/// One request for a task, by a token of its own.
struct Attempt<'a> {
    request: &'a ClaimRequest<'a>,
    id: LockId,
    lease: Duration,
    call: TypedCall<ClaimReply>,
}

impl<'a> Attempt<'a> {
    fn new(request: &'a ClaimRequest<'a>, wait: Option<(&str, Duration)>) -> Result<Attempt<'a>, Error> {
        let ClaimRequest { client, tasks, options, attempts, limit } = *request;
        let lease = LeaseInner::first_lease(options);
        let id = token(client, options)?;
        let call = tasks.claim(&id, lease, attempts, limit, wait);
        Ok(Attempt { request, id, lease, call })
    }

    /// Begins the lease of the task that was claimed. A claim that came too late, or may have been made, is rolled
    /// back.
    fn judged(self, ballot: Ballot<ClaimReply>) -> Result<HeldTask, NotClaimed> {
        let Attempt { request, id, lease, .. } = self;
        let ClaimRequest { client, tasks, options, limit, .. } = *request;
        let quorum = &client.quorum;
        let is_in_time = ballot.validity(lease, quorum.now()) >= MIN_VALIDITY;
        let Ballot { votes, started, duplicate } = ballot;
        match votes.into_iter().next().unwrap_or(Vote::Absent) {
            Vote::Yes(ClaimReply::Nothing(next)) => Err(NotClaimed::Nothing(next)),
            Vote::Yes(ClaimReply::Task(task)) if is_in_time => {
                let claim = Arc::new(Claim::new(tasks.clone(), task.place.clone(), limit));
                let votes = PerNode::from([Vote::Yes(Acquired { fence: Some(task.fence), ..Acquired::default() })]);
                let start = client.start_with(claim.clone(), &tasks.due, options, id);
                let inner = LeaseInner::won(start, &Ballot { votes, started, duplicate });
                let lease = client.lease(&Arc::new(inner))?;
                Ok(HeldTask { lease, claim, task })
            }
            vote => {
                let is_late = vote.is_yes();
                let ballot = Ballot { votes: PerNode::from([vote]), started, duplicate };
                // The attempt and its roll-back together get one node timeout.
                roll_back(request, &ballot, &id, lease, started.after(quorum.settings.node_timeout));
                let key = tasks.due.as_str();
                let error = if is_late {
                    let took = quorum.now().since(started);
                    let why = format!("the claim took {took:?}, too long for its lease");
                    quorum.unavailable("claim", key.to_owned(), why)
                } else {
                    quorum.failed("claim", key, &ballot)
                };
                Err(NotClaimed::Failed(error))
            }
        }
    }
}

/// The token of a claim. It has no white space, since the server separates the fields of a task by it.
fn token(client: &ClientInner, options: &LockOptions) -> Result<LockId, Error> {
    let id = client.tokens.fresh(options.holder_name.as_deref())?;
    let has_space = id.as_str().contains(char::is_whitespace);
    Ok(if has_space { LockId::from_server(id.as_str().split(':').next().unwrap_or_default()) } else { id })
}

/// Releases the task that the claim may have taken, as if it had not been claimed.
fn roll_back(request: &ClaimRequest<'_>, ballot: &Ballot<ClaimReply>, id: &LockId, lease: Duration, by: Tick) {
    let (client, quorum) = (request.client, &request.client.quorum);
    let claim = Arc::new(Claim::new(request.tasks.clone(), String::new(), request.limit));
    let release = ReleaseArgs { id: Some(id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
    if quorum.roll_back(ballot, &claim.release(&release), by) {
        let ends = quorum.now().after(lease);
        let key = request.tasks.due.name();
        client.pending.add(PendingRelease::of_token(claim, key, id.clone(), ends, vec![true]));
    }
}
