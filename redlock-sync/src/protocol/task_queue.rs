//! A queue of tasks on one node: its calls, and the claim of one task, which is a lease.
//!
//! One sorted set holds when each task is due. A claim moves its task to the end of the claim. So a task whose claimant
//! died is due again by itself, and no second set can disagree with the first.

use std::panic::RefUnwindSafe;
use std::time::Duration;

use parking_lot::Mutex;

use super::reply::{Extended, Released, Reply, Value};
use super::script::Arg::{Bytes, Number, Text};
use super::script::{
    Call, Q_CLAIM, Q_COUNT, Q_EXTEND, Q_FINISH, Q_LEAVE, Q_PEEK, Q_POP, Q_PURGE, Q_PUSH, Q_REMOVE, Q_REVIVE,
};
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
        let TaskQueue { due, body, meta, dead, claims, waits, .. } = self;
        Call::new(&Q_PUSH, &[due.as_str(), body, meta, dead, waits, claims], &args).into()
    }

    /// A task dies after this many attempts, and the server keeps `keep_dead` dead ones. `wait` is the wait, and how
    /// long a wait stays in the queue without another claim. Zero: this wait leaves the queue if there is no task.
    pub(crate) fn claim(
        &self,
        id: &LockId,
        lease: Duration,
        attempts: u64,
        keep_dead: u64,
        wait: Option<(&str, Duration)>,
    ) -> TypedCall<ClaimReply> {
        let TaskQueue { due, body, meta, dead, claims, waits, fence } = self;
        let (wait, stays) = wait.unwrap_or_default();
        let args = [
            Text(id.as_str()),
            Number(millis(lease)),
            Number(attempts),
            Number(keep_dead),
            Text(wait),
            Number(millis(stays)),
            Number(millis(FENCE_LIFETIME)),
        ];
        let keys = [due.as_str(), body, meta, dead, claims, waits, fence];
        Call::of_token(&Q_CLAIM, Some(id), &keys, &args).into()
    }

    pub(crate) fn leave(&self, wait: &str) -> TypedCall<Released> {
        Call::new(&Q_LEAVE, &[&self.waits], &[Text(wait)]).into()
    }

    pub(crate) fn pop(&self, most: u64, keep_dead: u64) -> TypedCall<Vec<SeenTask>> {
        let TaskQueue { due, body, meta, dead, claims, .. } = self;
        Call::new(&Q_POP, &[due.as_str(), body, meta, dead, claims], &[Number(most), Number(keep_dead)]).into()
    }

    pub(crate) fn peek(&self, most: u64, of: TaskFilter) -> TypedCall<Vec<SeenTask>> {
        let TaskQueue { due, body, meta, dead, .. } = self;
        let set = if of == TaskFilter::Dead { dead } else { due.name() };
        let which = if of == TaskFilter::Due { "due" } else { "all" };
        Call::new(&Q_PEEK, &[set, body, meta], &[Number(most), Text(which)]).into()
    }

    /// `seen` is when the task was due, in us, and its version. If the task does not exist, that is a definite no.
    pub(crate) fn remove(&self, id: &str, seen: Option<(u64, u64)>) -> TypedCall<()> {
        let TaskQueue { due, body, meta, dead, claims, .. } = self;
        let (at, version) = seen.map_or((String::new(), 0), |(at, version)| (at.to_string(), version));
        let keys = [due.as_str(), body, meta, dead, claims];
        Call::new(&Q_REMOVE, &keys, &[Text(id), Text(&at), Number(version)]).into()
    }

    /// Revives the task with this id. With an empty id, the tasks that have been dead for longest, at most `most`.
    pub(crate) fn revive(&self, id: &str, most: u64) -> TypedCall<u64> {
        let TaskQueue { due, meta, dead, waits, .. } = self;
        Call::new(&Q_REVIVE, &[due.as_str(), meta, dead, waits], &[Text(id), Number(most)]).into()
    }

    pub(crate) fn purge(&self, most: u64) -> TypedCall<u64> {
        let TaskQueue { body, meta, dead, .. } = self;
        Call::new(&Q_PURGE, &[dead, body, meta], &[Number(most)]).into()
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
    /// Empty for a claim of unknown outcome, which can only be ended.
    task: String,
    keep_dead: u64,
    /// The ending, and true once it is final: the user has chosen it, or it was sent. What is repeated later is
    /// the same.
    ending: Mutex<(Ending, bool)>,
}

/// No code of users runs under its lock, so a panic in that code leaves nothing half done.
impl RefUnwindSafe for Claim {}

impl Claim {
    pub(crate) fn new(queue: TaskQueue, task: String, keep_dead: u64) -> Claim {
        // Used if the claim came too late, or if its client is closed before the job was returned.
        Claim { queue, task, keep_dead, ending: Mutex::new((Ending::Undo, false)) }
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
        let args = [Text(id.as_str()), Number(millis(lease)), Text(&self.task)];
        Call::of_token(&Q_EXTEND, Some(id), &[self.queue.due.as_str(), &self.queue.meta], &args).into()
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
        let TaskQueue { due, body, meta, dead, claims, waits, .. } = &self.queue;
        let keys = [due.as_str(), body, meta, claims, dead, waits];
        let words = [text(args.id), Text(how), Number(micros), Text(why), Number(self.keep_dead), Text(&self.task)];
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

// --- replies ------------------------------------------------------------------------------------------------------

/// The outcome of a push for each task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PushReply {
    Each(Vec<i64>),
    /// The queue is full: it has this many tasks.
    Full(u64),
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimReply {
    Task(Claimed),
    /// How long until the next task is due, if there is one.
    Nothing(Option<Duration>),
}

/// A claimed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) fence: u64,
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) body: Vec<u8>,
    /// How long it had been due.
    pub(crate) waited: Duration,
}

/// One task as it was seen. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SeenTask {
    pub(crate) id: String,
    pub(crate) body: Vec<u8>,
    /// When it is due.
    pub(crate) due_at: u64,
    /// When it was seen. Zero for a task that was popped.
    pub(crate) seen_at: u64,
    pub(crate) attempts: u32,
    pub(crate) version: u64,
    pub(crate) is_claimed: bool,
    /// Why the last attempt failed.
    pub(crate) why: String,
}

impl Reply for PushReply {
    fn read(value: &Value) -> Option<PushReply> {
        match value.items()? {
            [Value::Int(0), queued] => Some(PushReply::Full(whole(queued)?)),
            [Value::Int(1), each @ ..] => each.iter().map(int).collect::<Option<_>>().map(PushReply::Each),
            _ => None,
        }
    }
}

impl Reply for ClaimReply {
    fn read(value: &Value) -> Option<ClaimReply> {
        match value.items()? {
            [Value::Int(1), fence, id, Value::Int(attempt), Value::Text(body), Value::Int(micros)] => {
                let (fence, id) = (fence.text()?.parse().ok()?, id.text()?);
                let attempt = u32::try_from(*attempt).unwrap_or(u32::MAX);
                let waited = Duration::from_micros(u64::try_from(*micros).unwrap_or(0));
                Some(ClaimReply::Task(Claimed { fence, id, attempt, body: body.clone(), waited }))
            }
            [Value::Int(0), Value::Int(ms), Value::Int(_)] => {
                Some(ClaimReply::Nothing(u64::try_from(*ms).ok().map(Duration::from_millis)))
            }
            _ => None,
        }
    }
}

impl Reply for Vec<SeenTask> {
    fn read(value: &Value) -> Option<Vec<SeenTask>> {
        let items = value.items()?;
        let (now, tasks) = match items.split_first() {
            Some((now @ Value::Text(_), tasks)) => (now.text()?.parse().ok()?, tasks),
            _ => (0, items),
        };
        tasks.iter().map(|task| SeenTask::read(task, now)).collect()
    }
}

/// A number of tasks.
impl Reply for u64 {
    fn read(value: &Value) -> Option<u64> {
        whole(value)
    }
}

impl SeenTask {
    fn read(value: &Value, seen_at: u64) -> Option<SeenTask> {
        let [id, at, state, Value::Text(body)] = value.items()? else { return None };
        let (id, body, due_at) = (id.text()?, body.clone(), micros(&at.text()?)?);
        let new = SeenTask { id, body, due_at, seen_at, version: 1, ..SeenTask::default() };
        Some(new.with_state(&state.text()?))
    }

    /// Parses the state of a task, as `q_task.lua` writes it. A state that cannot be parsed counts as that of a new
    /// task.
    fn with_state(self, state: &str) -> SeenTask {
        let mut words = state.splitn(6, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let numbers = (number(), number(), number(), number());
        let (Some(attempts), Some(version), Some(_), Some(_)) = numbers else { return self };
        let (Some(token), Some(why)) = (words.next(), words.next()) else { return self };
        let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
        SeenTask { attempts, version, is_claimed: token != "-", why: why.to_owned(), ..self }
    }
}

/// Parses a score. A server writes a whole number, unless another program has set the score.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
fn micros(score: &str) -> Option<u64> {
    score.parse().ok().or_else(|| score.parse::<f64>().ok().map(|score| score as u64))
}

fn int(value: &Value) -> Option<i64> {
    if let Value::Int(n) = value { Some(*n) } else { None }
}

fn whole(value: &Value) -> Option<u64> {
    u64::try_from(int(value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[Value]) -> Value {
        Value::List(items.to_vec())
    }

    fn text(s: &str) -> Value {
        Value::Text(s.into())
    }

    #[test]
    fn replies_are_read() {
        let waited = Duration::from_micros(9);
        let claimed = Claimed { fence: 7, id: "a".into(), attempt: 2, body: b"b".to_vec(), waited };
        let reply = list(&[Value::Int(1), text("7"), text("a"), Value::Int(2), text("b"), Value::Int(9)]);
        assert_eq!(ClaimReply::read(&reply), Some(ClaimReply::Task(claimed)));
        let nothing = |ms| ClaimReply::read(&list(&[Value::Int(0), Value::Int(ms), Value::Int(0)]));
        assert_eq!(nothing(-1), Some(ClaimReply::Nothing(None)));
        assert_eq!(nothing(5), Some(ClaimReply::Nothing(Some(Duration::from_millis(5)))));
        let each = list(&[Value::Int(1), Value::Int(3), Value::Int(0)]);
        assert_eq!(PushReply::read(&each), Some(PushReply::Each(vec![3, 0])));
        assert_eq!(PushReply::read(&list(&[Value::Int(0), Value::Int(9)])), Some(PushReply::Full(9)));
        let task = list(&[text("a"), text("12"), text("0 1 0 0 - "), text("b")]);
        let one = |seen_at| {
            let (id, body, why) = ("a".to_owned(), b"b".to_vec(), String::new());
            Some(vec![SeenTask { id, body, due_at: 12, seen_at, attempts: 0, version: 1, is_claimed: false, why }])
        };
        assert_eq!(Vec::<SeenTask>::read(&list(&[text("99"), task.clone()])), one(99));
        assert_eq!(Vec::<SeenTask>::read(&list(&[task])), one(0));
        assert_eq!((u64::read(&Value::Int(3)), u64::read(&Value::Int(-1))), (Some(3), None));
        for odd in [Value::Nil, Value::Int(7), list(&[]), list(&[Value::Int(1), Value::Nil])] {
            assert_eq!(ClaimReply::read(&odd), None, "{odd:?}");
            assert_eq!(PushReply::read(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn states_are_read_and_others_count_as_new() {
        let seen = |state: &str| SeenTask::read(&list(&[text("a"), text("12"), text(state), text("b")]), 99).unwrap();
        let task = seen("3 2 0 17 0af:host two words");
        assert_eq!((task.attempts, task.version, task.is_claimed, task.why.as_str()), (3, 2, true, "two words"));
        let new = seen("0 1 0 0 - ");
        assert_eq!((new.attempts, new.version, new.is_claimed, new.why.as_str()), (0, 1, false, ""));
        for odd in ["", "x", "1 2 3", "1 2 3 4 t", "-1 2 3 4 t w"] {
            assert_eq!(seen(odd), new, "{odd}");
        }
    }

    #[test]
    fn the_first_end_of_a_claim_that_was_said_or_sent_stays() {
        let claim = || Claim::new(TaskQueue::new("", "q").unwrap(), "a".into(), 5);
        let sent = |claim: &Claim| {
            let (id, next) = (LockId::from_server("t"), super::super::Next::Anybody);
            claim.release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next }).call.args()
        };
        let (claim, unsaid) = (claim(), claim());
        assert!(claim.end(Ending::Retry(Duration::from_millis(3), "boom".into())));
        assert!(!claim.end(Ending::Done));
        assert_eq!(sent(&claim), ["t", "retry", "3000", "boom", "5", "a"]);
        assert_eq!(sent(&unsaid), ["t", "undo", "0", "", "5", "a"]);
        unsaid.given_up_by(Ending::Again(Duration::ZERO));
        assert!(!unsaid.end(Ending::Done));
        assert_eq!(sent(&unsaid), ["t", "undo", "0", "", "5", "a"]);
    }
}
