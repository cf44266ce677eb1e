//! The replies of the scripts of a queue of tasks.

use std::time::Duration;

use super::reply::{Reply, Value};

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

/// The number of digits before an id in a place, and before a body in a text: the time of the first push in us
/// (`q_task.lua`).
const DIGITS: usize = 16;

/// A claimed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) fence: u64,
    pub(crate) place: String,
    pub(crate) attempt: u32,
    /// The body behind the digits.
    text: Vec<u8>,
    /// How long it had been due.
    pub(crate) waited: Duration,
}

impl Claimed {
    pub(crate) fn id(&self) -> &str {
        id_of(&self.place)
    }

    pub(crate) fn body(&self) -> &[u8] {
        body_of(&self.text)
    }
}

/// The id behind the digits of a place. What another program has put there is shown whole.
fn id_of(place: &str) -> &str {
    place.get(DIGITS..).unwrap_or(place)
}

fn body_of(text: &[u8]) -> &[u8] {
    text.get(DIGITS..).unwrap_or_default()
}

/// What a call has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cleared {
    pub(crate) removed: u64,
    /// The number of tasks that it found claimed.
    pub(crate) kept: u64,
    /// There are no other tasks.
    pub(crate) is_all: bool,
}

/// One task as it was seen. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SeenTask {
    pub(crate) place: String,
    /// The body behind the digits.
    text: Vec<u8>,
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
            [Value::Int(1), fence, place, Value::Int(attempt), Value::Text(text), Value::Int(micros)] => {
                let (fence, place) = (fence.text()?.parse().ok()?, place.text()?);
                let attempt = u32::try_from(*attempt).unwrap_or(u32::MAX);
                let waited = Duration::from_micros(u64::try_from(*micros).unwrap_or(0));
                Some(ClaimReply::Task(Claimed { fence, place, attempt, text: text.clone(), waited }))
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

impl Reply for Cleared {
    fn read(value: &Value) -> Option<Cleared> {
        let [removed, kept, is_all] = value.items()? else { return None };
        Some(Cleared { removed: whole(removed)?, kept: whole(kept)?, is_all: whole(is_all)? == 1 })
    }
}

/// A number of tasks, or 1 for yes.
impl Reply for u64 {
    fn read(value: &Value) -> Option<u64> {
        whole(value)
    }
}

impl SeenTask {
    pub(crate) fn id(&self) -> &str {
        id_of(&self.place)
    }

    pub(crate) fn body(&self) -> &[u8] {
        body_of(&self.text)
    }

    fn read(value: &Value, seen_at: u64) -> Option<SeenTask> {
        let [place, at, state, Value::Text(text)] = value.items()? else { return None };
        let (place, text, due_at) = (place.text()?, text.clone(), micros(&at.text()?)?);
        let new = SeenTask { place, text, due_at, seen_at, version: 1, ..SeenTask::default() };
        Some(new.with_state(&state.text()?))
    }

    /// Parses the state of a task, as `q_task.lua` writes it. A state that cannot be parsed counts as that of a new
    /// task.
    fn with_state(self, state: &str) -> SeenTask {
        let mut words = state.splitn(7, ' ').skip(1);
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
        let (place, stored) = ("1764340000000000a", "1764340000000000b");
        let claimed = Claimed { fence: 7, place: place.into(), attempt: 2, text: stored.into(), waited };
        assert_eq!((claimed.id(), claimed.body()), ("a", &b"b"[..]));
        let reply = list(&[Value::Int(1), text("7"), text(place), Value::Int(2), text(stored), Value::Int(9)]);
        assert_eq!(ClaimReply::read(&reply), Some(ClaimReply::Task(claimed)));
        let nothing = |ms| ClaimReply::read(&list(&[Value::Int(0), Value::Int(ms), Value::Int(0)]));
        assert_eq!(nothing(-1), Some(ClaimReply::Nothing(None)));
        assert_eq!(nothing(5), Some(ClaimReply::Nothing(Some(Duration::from_millis(5)))));
        let each = list(&[Value::Int(1), Value::Int(3), Value::Int(0)]);
        assert_eq!(PushReply::read(&each), Some(PushReply::Each(vec![3, 0])));
        assert_eq!(PushReply::read(&list(&[Value::Int(0), Value::Int(9)])), Some(PushReply::Full(9)));
        let task = list(&[text(place), text("12"), text("1764340000000000 0 1 0 0 - "), text(stored)]);
        let one = |seen_at| {
            let (place, text, why) = (place.to_owned(), stored.into(), String::new());
            Some(vec![SeenTask { place, text, due_at: 12, seen_at, attempts: 0, version: 1, is_claimed: false, why }])
        };
        assert_eq!(Vec::<SeenTask>::read(&list(&[text("99"), task.clone()])), one(99));
        assert_eq!(Vec::<SeenTask>::read(&list(&[task])), one(0));
        let cleared = Cleared { removed: 5, kept: 2, is_all: true };
        assert_eq!(Cleared::read(&list(&[Value::Int(5), Value::Int(2), Value::Int(1)])), Some(cleared));
        assert_eq!((u64::read(&Value::Int(3)), u64::read(&Value::Int(-1))), (Some(3), None));
        for odd in [Value::Nil, Value::Int(7), list(&[]), list(&[Value::Int(1), Value::Nil])] {
            assert_eq!(ClaimReply::read(&odd), None, "{odd:?}");
            assert_eq!(PushReply::read(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn states_are_read_and_others_count_as_new() {
        let seen = |state: &str| SeenTask::read(&list(&[text("a"), text("12"), text(state), text("b")]), 99).unwrap();
        let task = seen("9 3 2 0 17 0af:host two words");
        assert_eq!((task.attempts, task.version, task.is_claimed, task.why.as_str()), (3, 2, true, "two words"));
        let new = seen("9 0 1 0 0 - ");
        assert_eq!((new.attempts, new.version, new.is_claimed, new.why.as_str()), (0, 1, false, ""));
        for odd in ["", "x", "9 1 2 3", "9 1 2 3 4 t", "9 -1 2 3 4 t w"] {
            assert_eq!(seen(odd), new, "{odd}");
        }
    }
}
