//! A queue of tasks on one node: its calls, and the claim of one task, which is a lease.
//!
//! One sorted set holds when each task is due. A claim moves its task to the end of the claim. So a task whose claimant
//! died is due again by itself, and no second set can disagree with the first.

use std::panic::RefUnwindSafe;
use std::time::Duration;

use parking_lot::Mutex;

use super::reply::{Extended, Released};
use super::script::Arg::{self, Bytes, Number, Text};
use super::script::{
    Call, Q_CLAIM, Q_CLEAR, Q_COUNT, Q_EXTEND, Q_FINISH, Q_IS_PAUSED, Q_LEAVE, Q_PAUSE, Q_PEEK, Q_POP, Q_PURGE, Q_PUSH,
    Q_REMOVE, Q_REVIVE,
};
use super::task_replies::{ClaimReply, Cleared, PushReply, SeenTask};
use super::{LeaseCalls, Protocol, ReleaseArgs, TypedCall, millis, text};
use crate::key::TaskQueue;
use crate::options::{FENCE_LIFETIME, Kind, Mode};
use crate::token::LockId;

/// The kind of a queue, to the threads of this process: one of them at a time waits for tasks.
pub(crate) const QUEUE: Kind = Kind { name: "claim of a task", mode: Mode::Exclusive };

/// When a task is due, by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    In(Duration),
    /// Since 1970.
    At(Duration),
}

/// A task that a push adds to the queue.
#[derive(Debug)]
pub(crate) struct NewTask<'a> {
    pub(crate) id: &'a str,
    pub(crate) due: Due,
    pub(crate) body: &'a [u8],
}

/// How many dead tasks the server keeps, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadLimit {
    pub(crate) most: u64,
    /// `None`: without end.
    pub(crate) age: Option<Duration>,
}

impl DeadLimit {
    fn args(&self) -> [Arg<'static>; 2] {
        [Number(self.most), self.age.map_or(Text(""), |age| Number(millis(age)))]
    }
}

/// How a claim ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    /// The task is due again after this pause; the last error is stored.
    Retry(Duration, String),
    /// The task is due again after this pause, as if it were new.
    Again(Duration),
    /// The task is dead; the last error is stored.
    Dead(String),
    /// As if the task had not been claimed.
    Undo,
}

impl Ending {
    /// Its name, for the script and for observers.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Retry(..) => "retry",
            Ending::Again(_) => "again",
            Ending::Dead(_) => "dead",
            Ending::Undo => "undo",
        }
    }
}

/// The calls of one queue.
impl TaskQueue {
    pub(crate) fn push(&self, policy: &str, most: Option<u64>, all: &[NewTask<'_>]) -> TypedCall<PushReply> {
        let times: Vec<String> = all
            .iter()
            .map(|task| match task.due {
                Due::In(pause) => format!("+{}", pause.as_micros()),
                Due::At(time) => time.as_micros().to_string(),
            })
            .collect();
        let mut args = vec![Text(policy), most.map_or(Text(""), Number)];
        for (task, time) in all.iter().zip(&times) {
            // A body never comes last: it could equal the argument that asks for a check of permissions.
            args.extend([Text(task.id), Bytes(task.body), Text(time)]);
        }
        let TaskQueue { due, tasks, dead, waits, .. } = self;
        Call::new(&Q_PUSH, &[due.as_str(), tasks, dead, waits], &args).into()
    }

    /// A task dies after this many attempts. `wait` is the wait, and how long a wait stays in the queue without another
    /// claim. Zero: this wait leaves the queue if there is no task.
    pub(crate) fn claim(
        &self,
        id: &LockId,
        lease: Duration,
        attempts: u64,
        limit: DeadLimit,
        wait: Option<(&str, Duration)>,
    ) -> TypedCall<ClaimReply> {
        let TaskQueue { due, tasks, claims, dead, waits, fence } = self;
        let (wait, stays) = wait.unwrap_or_default();
        let [most_dead, longest_dead] = limit.args();
        let args = [
            Text(id.as_str()),
            Number(millis(lease)),
            Number(attempts),
            most_dead,
            longest_dead,
            Text(wait),
            Number(millis(stays)),
            Number(millis(FENCE_LIFETIME)),
        ];
        let keys = [due.as_str(), tasks, claims, dead, waits, fence];
        Call::of_token(&Q_CLAIM, Some(id), &keys, &args).into()
    }

    pub(crate) fn leave(&self, wait: &str) -> TypedCall<Released> {
        Call::new(&Q_LEAVE, &[&self.waits], &[Text(wait)]).into()
    }

    pub(crate) fn pop(&self, most: u64, limit: DeadLimit) -> TypedCall<Vec<SeenTask>> {
        let TaskQueue { due, tasks, claims, dead, .. } = self;
        let [most_dead, longest_dead] = limit.args();
        Call::new(&Q_POP, &[due.as_str(), tasks, claims, dead], &[Number(most), most_dead, longest_dead]).into()
    }

    pub(crate) fn peek(&self, most: u64, of: TaskFilter) -> TypedCall<Vec<SeenTask>> {
        let TaskQueue { due, tasks, dead, .. } = self;
        let set = if of == TaskFilter::Dead { dead } else { due.name() };
        let which = if of == TaskFilter::Due { "due" } else { "all" };
        Call::new(&Q_PEEK, &[set, tasks], &[Number(most), Text(which)]).into()
    }

    /// Removes the task with this id. If the task does not exist, that is a definite no.
    pub(crate) fn remove(&self, id: &str) -> TypedCall<()> {
        self.remove_seen(id, "", 0, 0)
    }

    /// Removes a task, unless it has changed since it was seen.
    pub(crate) fn remove_if(&self, seen: &SeenTask) -> TypedCall<()> {
        self.remove_seen(seen.id(), &seen.place, seen.due_at, seen.version)
    }

    fn remove_seen(&self, id: &str, place: &str, due_at: u64, version: u64) -> TypedCall<()> {
        let TaskQueue { due, tasks, claims, dead, .. } = self;
        let args = [Text(id), Text(place), Number(due_at), Number(version)];
        Call::new(&Q_REMOVE, &[due.as_str(), tasks, claims, dead], &args).into()
    }

    /// Revives the task with this id. With an empty id, the tasks that have been dead for longest, at most `most`.
    pub(crate) fn revive(&self, id: &str, most: u64) -> TypedCall<u64> {
        let TaskQueue { due, tasks, dead, waits, .. } = self;
        Call::new(&Q_REVIVE, &[due.as_str(), tasks, dead, waits], &[Text(id), Number(most)]).into()
    }

    pub(crate) fn purge(&self, most: u64) -> TypedCall<u64> {
        Call::new(&Q_PURGE, &[&*self.dead, &self.tasks], &[Number(most)]).into()
    }

    /// Removes up to `most` tasks that no claimant has, behind the first `skip` that are claimed.
    pub(crate) fn clear(&self, most: u64, skip: u64) -> TypedCall<Cleared> {
        let TaskQueue { due, tasks, claims, .. } = self;
        Call::new(&Q_CLEAR, &[due.as_str(), tasks, claims], &[Number(most), Number(skip)]).into()
    }

    pub(crate) fn pause(&self, pauses: bool) -> TypedCall<u64> {
        let what = if pauses { "pause" } else { "resume" };
        Call::new(&Q_PAUSE, &[&*self.tasks, &self.waits], &[Text(what)]).into()
    }

    pub(crate) fn is_paused(&self) -> TypedCall<u64> {
        Call::new(&Q_IS_PAUSED, &[&*self.tasks], &[]).into()
    }

    pub(crate) fn count(&self) -> TypedCall<u64> {
        Call::new(&Q_COUNT, &[self.due.as_str()], &[]).into()
    }

    pub(crate) fn count_dead(&self) -> TypedCall<u64> {
        Call::new(&Q_COUNT, &[&self.dead], &[]).into()
    }
}

/// Which tasks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskFilter {
    Due,
    All,
    Dead,
}

// --- a claim ------------------------------------------------------------------------------------------------------

/// The claim of one task. It is extended and ended like a lock, but cannot be taken again or handed on.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) queue: TaskQueue,
    /// The place of the task. Empty for a claim of unknown outcome, which can only be ended.
    place: String,
    limit: DeadLimit,
    /// The ending, and true once it is final: the user has chosen it, or it was sent. What is repeated later is
    /// the same.
    ending: Mutex<(Ending, bool)>,
}

/// No code of users runs under its lock, so a panic in that code leaves nothing half done.
impl RefUnwindSafe for Claim {}

impl Claim {
    pub(crate) fn new(queue: TaskQueue, place: String, limit: DeadLimit) -> Claim {
        // Used if the claim came too late, or if its client is closed before the job was returned.
        Claim { queue, place, limit, ending: Mutex::new((Ending::Undo, false)) }
    }

    /// Sets the ending for the case that the client gives the claim up before the user ends it.
    pub(crate) fn given_up_by(&self, ending: Ending) {
        let (said, is_final) = &mut *self.ending.lock();
        if !*is_final {
            *said = ending;
        }
    }

    /// Sets the ending. False if an ending was chosen or sent before; that one stays.
    pub(crate) fn end(&self, ending: Ending) -> bool {
        let (said, is_final) = &mut *self.ending.lock();
        if *is_final {
            return false;
        }
        (*said, *is_final) = (ending, true);
        true
    }
}

impl LeaseCalls for Claim {
    fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        let args = [Text(id.as_str()), Number(millis(lease)), Text(&self.place)];
        Call::of_token(&Q_EXTEND, Some(id), &[self.queue.due.as_str(), &self.queue.tasks], &args).into()
    }

    fn release(&self, args: &ReleaseArgs<'_>) -> TypedCall<Released> {
        let ending = {
            let (ending, is_final) = &mut *self.ending.lock();
            *is_final = true;
            ending.clone()
        };
        let (pause, why) = match &ending {
            Ending::Done | Ending::Undo => (Duration::ZERO, ""),
            Ending::Retry(pause, why) => (*pause, why.as_str()),
            Ending::Again(pause) => (*pause, ""),
            Ending::Dead(why) => (Duration::ZERO, why.as_str()),
        };
        let (how, micros) = (ending.name(), u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        let TaskQueue { due, tasks, claims, dead, waits, .. } = &self.queue;
        let keys = [due.as_str(), tasks, claims, dead, waits];
        let [most, age] = self.limit.args();
        let words = [text(args.id), Text(how), Number(micros), Text(why), most, age, Text(&self.place)];
        Call::of_token(&Q_FINISH, args.id, &keys, &words).into()
    }

    fn kind(&self) -> Kind {
        QUEUE
    }

    fn lock(&self) -> Option<&Protocol> {
        None
    }

    fn may_end_late(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_of_a_claim_that_was_said_or_sent_stays() {
        let limit = DeadLimit { most: 5, age: None };
        let claim = || Claim::new(TaskQueue::new("", "q").unwrap(), "a".into(), limit);
        let sent = |claim: &Claim| {
            let (id, next) = (LockId::from_server("t"), super::super::Next::Anybody);
            claim.release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next }).call.args()
        };
        let (claim, unsaid) = (claim(), claim());
        assert!(claim.end(Ending::Retry(Duration::from_millis(3), "boom".into())));
        assert!(!claim.end(Ending::Done));
        assert_eq!(sent(&claim), ["t", "retry", "3000", "boom", "5", "", "a"]);
        assert_eq!(sent(&unsaid), ["t", "undo", "0", "", "5", "", "a"]);
        unsaid.given_up_by(Ending::Again(Duration::ZERO));
        assert!(!unsaid.end(Ending::Done));
        assert_eq!(sent(&unsaid), ["t", "undo", "0", "", "5", "", "a"]);
    }
}
