//! Claiming a task of a queue, and waiting for one.
//!
//! One thread of a process waits for all that want a task of a queue; the others stand in line behind it. It is told by
//! a hint over the client's push connection, which a script publishes to one waiting client when a task comes to be
//! due, or the next to be. A hint can be lost with its receiver, so the thread also looks when the next task is due,
//! and every [`LONGEST`] at the latest. Each look enters the wait in the step that finds no task: a push before it is
//! seen by the look, a push after it finds the wait. Without a subscription the thread looks by itself, at pauses that
//! grow to [`LAST_POLL`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{MaxWait, WaitLimit};
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::listener::{Awaits, Woken};
use crate::handover::queue::QueueOutcome;
use crate::handover::queued::Queued;
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin, PendingRelease};
use crate::node::Priority;
use crate::options::{LockOptions, jittered};
use crate::protocol::queue::{Claim, ClaimArgs, ClaimReply, Claimed, Limits, QUEUE, Tasks};
use crate::protocol::reply::{Acquired, FailureKind, Vote};
use crate::protocol::{Next, Protocol, ReleaseArgs, Request};
use crate::quorum::Ballot;
use crate::token::LockId;

/// Longest time between two looks of a client that is told of tasks: half of it is drawn at random.
const LONGEST: Duration = Duration::from_secs(5);
/// Pauses between the looks of a client that is told nothing, or whose server is away.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(500);
/// For how long a wait outlives its last look: longer than [`LONGEST`], and short, as the next push tries each wait of
/// a client that is gone.
const WAITS_LIVE: Duration = Duration::from_secs(60);
/// How soon a thread that waits for its worker sees that the worker is stopped.
const STOP_SEEN: Duration = Duration::from_millis(50);

/// Which tasks are wanted, and on which terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) client: &'a Arc<ClientInner>,
    pub(crate) tasks: &'a Tasks,
    pub(crate) options: &'a Arc<LockOptions>,
    pub(crate) limits: Limits,
    /// Ends the wait when it becomes true.
    pub(crate) stop: Option<&'a AtomicBool>,
}

impl Wanted<'_> {
    fn not_cancelled(&self) -> Result<(), Error> {
        self.options.cancel.check("claim", self.tasks.keys.due.as_str())
    }
}

/// A task that is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    pub(crate) claim: Arc<Claim>,
    pub(crate) task: Claimed,
}

/// What one look found.
enum Look {
    Task(Held),
    /// How long until the next task is due, if there is one.
    Nothing(Option<Duration>),
}

/// Why a look has no answer.
struct Missed {
    error: Error,
    /// The server is a replica: its address may lead to the master soon.
    is_of_replica: bool,
}

impl From<Error> for Missed {
    fn from(error: Error) -> Missed {
        Missed { error, is_of_replica: false }
    }
}

/// Claims a task, waiting for one as long as the limit allows; `None` when there was none, or when it was stopped.
pub(crate) fn claim(wanted: &Wanted<'_>, limit: MaxWait) -> Result<Option<Held>, Error> {
    let client = wanted.client;
    let _competing = client.competes();
    client.ready()?;
    wanted.not_cancelled()?;
    let limit = WaitLimit::new(client, limit);
    let mut waiting = Waiting { wanted, limit, made: 0, queued: None, entered: None };
    // Beside the looks of other threads: most of the time there is a task.
    if let Some(outcome) = waiting.look(&Role::Aside) {
        return outcome;
    }
    loop {
        let slice = waiting.slice();
        match client.queues.enqueue(wanted.tasks.keys.due.name(), slice, QUEUE, wanted.options) {
            QueueOutcome::Head(head) => {
                let outcome = waiting.run();
                drop(head);
                return outcome;
            }
            // No claim is handed on.
            QueueOutcome::Handed(lease) => drop(lease),
            QueueOutcome::Late if waiting.is_stopped() => return Ok(None),
            QueueOutcome::Late if wanted.options.cancel.is_cancelled() => return wanted.not_cancelled().map(|()| None),
            QueueOutcome::Late if waiting.limit.is_over() => return waiting.look(&Role::Aside).unwrap_or(Ok(None)),
            QueueOutcome::Late => {}
            QueueOutcome::Closed => return Err(Error::Closed),
        }
    }
}

/// Which thread looks.
enum Role {
    /// One that is not, or not yet, the one that waits.
    Aside,
    /// The one of this process that waits, with the wait to enter, if its client listens.
    Waits(Option<Arc<str>>),
}

/// A thread that waits for a task.
struct Waiting<'a> {
    wanted: &'a Wanted<'a>,
    limit: WaitLimit<'a>,
    /// Looks since the last one that found the server well, and this client told of tasks.
    made: u32,
    queued: Option<Queued>,
    /// The wait that the last look entered.
    entered: Option<Arc<str>>,
}

impl Waiting<'_> {
    /// The one thread of this process that waits for the queue.
    fn run(&mut self) -> Result<Option<Held>, Error> {
        loop {
            if self.is_stopped() {
                self.leave();
                return Ok(None);
            }
            if let Err(error) = self.wanted.client.ready().and_then(|()| self.wanted.not_cancelled()) {
                self.leave();
                return Err(error);
            }
            // A client that listens already, as after its last task, is told of a push from this look on.
            if self.queued.is_none() && self.wanted.client.listener.listens() {
                self.queued = Some(Queued::begin(&self.wanted.client.listener));
            }
            let id = match &mut self.queued {
                Some(queued) => queued.next_id(Duration::ZERO)?,
                None => None,
            };
            // One that begins so is told nothing.
            let id = id.filter(|id| !id.starts_with('-'));
            if let Some(outcome) = self.look(&Role::Waits(id)) {
                return outcome;
            }
        }
    }

    /// One look, and if it found nothing and there is time left, the sleep of the thread that waits. `None` to go on.
    fn look(&mut self, role: &Role) -> Option<Result<Option<Held>, Error>> {
        let tried_at = self.wanted.client.quorum.now();
        let is_last = tried_at >= self.limit.until;
        let id = if let Role::Waits(Some(id)) = role { Some(Arc::clone(id)) } else { None };
        let stays = if is_last { Duration::ZERO } else { WAITS_LIVE };
        let found = look(self.wanted, id.as_deref().map(|id| (id, stays)));
        let next = match found {
            Ok(Look::Task(held)) => {
                self.limit.answered();
                return Some(Ok(Some(held)));
            }
            Ok(Look::Nothing(next)) => {
                self.limit.answered();
                Ok(next)
            }
            Err(missed) => Err(missed),
        };
        match next {
            Err(missed) if is_last || self.ends_with(&missed, tried_at) => Some(Err(missed.error)),
            Ok(_) if is_last => Some(Ok(None)),
            _ if matches!(role, Role::Aside) => None,
            next => {
                self.entered = id.filter(|_| next.is_ok());
                self.sleep(next.as_ref().ok().copied().flatten(), next.is_err());
                None
            }
        }
    }

    /// True for an error that no further look can help.
    fn ends_with(&mut self, missed: &Missed, tried_at: Tick) -> bool {
        // A worker outlasts a failover.
        let may_pass = missed.is_of_replica && self.wanted.stop.is_some();
        !(missed.error.is_unavailable() || may_pass) || self.limit.unanswered(&missed.error, tried_at)
    }

    /// Until a hint, the time at which the next task is due, or the time to look again.
    fn sleep(&mut self, next: Option<Duration>, is_away: bool) {
        let client = self.wanted.client;
        let now = client.quorum.now();
        let queued = self.queued.get_or_insert_with(|| Queued::begin(&client.listener));
        let nap = if self.entered.is_some() {
            self.made = 0;
            // A claim with a shorter lease than that is due again before a longer sleep would end.
            LONGEST.min(self.wanted.options.lease)
        } else {
            self.made = self.made.saturating_add(1);
            FIRST_POLL.saturating_mul(1 << (self.made - 1).min(16)).min(LAST_POLL)
        };
        let nap = next.map_or(jittered(nap), |next| next.min(jittered(nap)));
        queued.listener.await_also(if is_away { Awaits::Servers } else { Awaits::Task });
        let end = now.after(nap).min(self.limit.until);
        loop {
            let slice = end.min(self.slice());
            let Some(queued) = &self.queued else { return };
            let woken = queued.listener.sleep(slice, &self.wanted.options.cancel);
            let is_over = slice == end || client.quorum.now() < slice || self.is_stopped();
            if woken != Woken::Timer || is_over {
                return;
            }
        }
    }

    /// Tells the next client to look, as a task may have been announced to this one alone. If that does not get
    /// through, it looks by itself.
    fn leave(&self) {
        let Some(wait) = &self.entered else { return };
        let quorum = &self.wanted.client.quorum;
        let call = self.wanted.tasks.leave(wait);
        drop(quorum.round(&call, Priority::High, quorum.round_deadline(), &|_| true));
    }

    fn is_stopped(&self) -> bool {
        self.wanted.stop.is_some_and(|stop| stop.load(Ordering::SeqCst))
    }

    /// Until when a sleep may last before it is looked whether the worker is stopped.
    fn slice(&self) -> Tick {
        match self.wanted.stop {
            Some(_) => self.wanted.client.quorum.now().after(STOP_SEEN).min(self.limit.until),
            None => self.limit.until,
        }
    }
}

/// One round with a token of its own. What it may have claimed is taken back before it returns an error.
fn look(wanted: &Wanted<'_>, wait: Option<(&str, Duration)>) -> Result<Look, Missed> {
    let Wanted { client, tasks, options, limits, .. } = *wanted;
    let quorum = &client.quorum;
    let (by, lease) = (quorum.round_deadline(), Core::first_lease(options));
    let id = token(client, options)?;
    let call = tasks.claim(&ClaimArgs { id: &id, lease, limits, wait });
    let Ballot { votes, started, duplicate } = quorum.round(&call, Priority::Normal, by, &|_| true);
    let vote = votes.into_iter().next().unwrap_or(Vote::Absent);
    if let Vote::Yes(ClaimReply::Nothing(next)) = vote {
        return Ok(Look::Nothing(next));
    }
    let won = Ballot::<()> { votes: vec![], started, duplicate };
    let is_in_time = won.validity(lease, quorum.now()) >= quorum.limits.min_validity;
    match vote {
        Vote::Yes(ClaimReply::Task(task)) if is_in_time => {
            let claim = Arc::new(Claim::new(tasks.keys.clone(), task.id.clone(), limits.keep_dead));
            let votes = vec![Vote::Yes(Acquired { fence: Some(task.fence), ..Acquired::default() })];
            let protocol = Arc::new(Protocol::Task(Arc::clone(&claim)));
            let request = Request { key: tasks.keys.due.clone(), protocol, options: Arc::clone(options) };
            let core = Core::won(client.start(&request, id, Origin::default()), &Ballot { votes, started, duplicate });
            let lease = client.lease(&Arc::new(core))?;
            Ok(Look::Task(Held { lease, claim, task }))
        }
        vote => {
            let is_late = vote.is_yes();
            let is_of_replica = matches!(&vote, Vote::Failed(failure) if failure.kind == FailureKind::Replica);
            let ballot = Ballot { votes: vec![vote], started, duplicate };
            take_back(wanted, &ballot, &id, lease, by);
            let failed = quorum.failed("claim", tasks.keys.due.as_str(), &ballot);
            let error = match failed {
                Error::Unavailable { op, key, of, .. } if is_late => {
                    let took = quorum.now().since(started);
                    let nodes = vec![quorum.node_error(0, format!("the claim took {took:?}, too long for its lease"))];
                    Error::Unavailable { op, key, of, nodes }
                }
                failed => failed,
            };
            Err(Missed { error, is_of_replica })
        }
    }
}

/// The token of a claim: no white space, since that parts what the server keeps of a task.
fn token(client: &ClientInner, options: &LockOptions) -> Result<LockId, Error> {
    let (id, _) = client.tokens.fresh(options.holder_name.as_deref())?;
    let has_space = id.as_str().contains(char::is_whitespace);
    Ok(if has_space { LockId::from_server(id.as_str().split(':').next().unwrap_or_default()) } else { id })
}

/// What the claim may have taken goes back, as if it had not been claimed.
fn take_back(wanted: &Wanted<'_>, ballot: &Ballot<ClaimReply>, id: &LockId, lease: Duration, by: Tick) {
    let (client, quorum) = (wanted.client, &wanted.client.quorum);
    let claim = Claim::new(wanted.tasks.keys.clone(), String::new(), wanted.limits.keep_dead);
    let claim = Arc::new(Protocol::Task(Arc::new(claim)));
    let release = ReleaseArgs { id: Some(id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
    if quorum.roll_back(ballot, &claim.release(&release), by) {
        let ends = quorum.now().after(lease);
        client.backlog.add(PendingRelease::of_token(claim, id.clone(), ends, vec![true]));
    }
}
