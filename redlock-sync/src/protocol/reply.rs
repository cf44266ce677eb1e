//! The answer of one node to a call, or why there is none. Pure.
//!
//! Each operation has a type of reply. The scripts of all kinds of lock answer in the same form, which this file
//! states.

use std::time::Duration;

use smallvec::SmallVec;

use crate::names::printable;
use crate::options::MAX_LIFETIME;

/// A list that mostly has one element, since most clients have one node. That element needs no allocation.
pub(crate) type PerNode<T> = SmallVec<[T; 1]>;

/// The reply of a server to a script, without the types of any crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    /// The status `OK`.
    Okay,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn text(&self) -> Option<String> {
        if let Value::Text(bytes) = self { Some(String::from_utf8_lossy(bytes).into_owned()) } else { None }
    }

    pub(crate) fn items(&self) -> Option<&[Value]> {
        if let Value::List(items) = self { Some(items) } else { None }
    }
}

/// Whether the server may have executed a failed call, or may still do so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Executed {
    No,
    Maybe,
}

/// The kind of a failure. It decides whether trying again can help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    /// The connection was refused or reset, or the name cannot be resolved.
    Unreachable,
    /// No answer, or no connection, in time.
    TimedOut,
    /// Not sent in time: the client had more calls than its connections could carry, or no credentials for another
    /// connection. It says nothing about the node.
    Overloaded,
    /// The node is left out for a short while, because it just failed.
    LeftOut,
    /// The node restarted so recently that it may have forgotten locks. It has no vote.
    Quarantined,
    /// Passes by itself: LOADING, BUSY (a script runs), MASTERDOWN, TRYAGAIN, CLUSTERDOWN.
    Transient,
    /// The key holds another type.
    WrongType,
    /// Fails until the configuration is changed: MOVED, CROSSSLOT, an unknown command, a wrong setting.
    Misuse,
    /// The server does not serve this client: NOAUTH, WRONGPASS, NOPERM, DENIED, or it is not such a server at all. A
    /// mistake at the first contact. Later it can pass, such as while a password is changed.
    Denied,
    /// Like `Denied`: the server is a replica, or says READONLY. Some time after a failover, its address may lead to
    /// the master.
    Replica,
    /// Like `Denied`: TLS fails because of a setting or a certificate.
    Tls,
    /// Any other error of the server: OOM, MISCONF, NOREPLICAS, …
    Refused,
}

impl FailureKind {
    pub(crate) fn is_misuse(self) -> bool {
        matches!(self, FailureKind::Misuse | FailureKind::Denied | FailureKind::Replica | FailureKind::Tls)
    }
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) executed: Executed,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, executed: Executed, message: impl Into<String>) -> Failure {
        Failure { kind, executed, message: printable(&message.into()) }
    }

    /// True if the server itself said no.
    pub(crate) fn is_answer(&self) -> bool {
        self.kind.is_misuse()
            || matches!(self.kind, FailureKind::Transient | FailureKind::WrongType | FailureKind::Refused)
    }

    /// A failure before anything was written.
    pub(crate) fn unsent(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure::new(kind, Executed::No, message)
    }
}

/// The answer of one node, for any kind of lock: yes with the reply of the operation, or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Vote<R> {
    Yes(R),
    /// A definite no: another token has the key for this long (`None`: without end). With an empty token the lock is
    /// free, but this attempt can take it only after that time.
    Taken {
        token: String,
        ttl: Option<Duration>,
        place: QueuePlace,
    },
    /// A definite no: the key does not exist.
    Absent,
    /// The node has our token, but lent it other slots than the majority did. This yes does not count.
    Void,
    /// No answer that counts.
    Failed(Failure),
}

/// The place of the attempt's wait in the queue, after a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuePlace {
    /// The wait is not in the queue.
    Nowhere,
    /// The wait has just entered the queue.
    New,
    /// The wait was there before.
    Kept,
}

/// The reply of an operation with a yes.
pub(crate) trait Reply: Sized {
    /// Parses a reply that is a yes. `None` for anything else.
    fn read(value: &Value) -> Option<Self>;
}

/// Reply: `1`; or `{1, fence}` if a fence was asked for; or `{1, fence (0: none), slots}` for a lock with slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Acquired {
    pub(crate) fence: Option<u64>,
    /// In ascending order; empty for a lock without slots.
    pub(crate) slots: Vec<u32>,
}

/// Reply: `1`, or `{1, number of waits}` if the number was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) waits: Option<u64>,
}

/// Reply: `1` to `6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Freed,
    /// The lock was granted to a wait, which was notified.
    Granted,
    /// With several nodes: the lock stays taken for the wait that another node notifies.
    Reserved,
    /// Freed. No wait was notified: the user may not publish (`4`), or a cluster moves the slot and the call named only
    /// the lock's key (`5`).
    Untold,
    /// Freed in a pause that is left to foreign clients.
    InPause,
}

/// Reply: `{1, fence}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fenced(pub(crate) u64);

/// The tokens of the holders, each with its remaining time. Reply: `{1, token, ms}`, with more pairs of token and ms
/// for a lock with several holders; `{0}` if there are none.
pub(crate) type Holders = Vec<(String, Option<Duration>)>;

/// The state of a latch. Reply: `{1, is open, number of arrivals, ms}`; the arrivals follow if they were asked for and
/// it is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LatchStatus {
    pub(crate) is_open: bool,
    pub(crate) count: usize,
    /// How long the node keeps the latch; `None` if there is no arrival.
    pub(crate) kept: Option<Duration>,
    pub(crate) arrivals: Vec<String>,
}

/// Facts about a server, in lines `name:value`. Reply: `{1, text}`.
impl Reply for String {
    fn read(value: &Value) -> Option<String> {
        let [Value::Int(1), facts] = value.items()? else { return None };
        facts.text()
    }
}

impl Reply for Acquired {
    fn read(value: &Value) -> Option<Acquired> {
        if let Some([Value::Int(1), fence, slots]) = value.items() {
            let fence = Some(fence.text()?.parse().ok()?).filter(|fence| *fence > 0);
            let mut slots: Vec<u32> = slots.text()?.split(' ').map(|slot| slot.parse().ok()).collect::<Option<_>>()?;
            slots.sort_unstable();
            return Some(Acquired { fence, slots });
        }
        // The reply to `SET NX`.
        if *value == Value::Okay {
            return Some(Acquired::default());
        }
        Some(Acquired { fence: with_yes(value)?, ..Acquired::default() })
    }
}

impl Reply for Extended {
    fn read(value: &Value) -> Option<Extended> {
        Some(Extended { waits: with_yes(value)? })
    }
}

impl Reply for Released {
    fn read(value: &Value) -> Option<Released> {
        Some(match value {
            Value::Int(1) => Released::Freed,
            Value::Int(2) => Released::Granted,
            Value::Int(3) => Released::Reserved,
            Value::Int(4 | 5) => Released::Untold,
            Value::Int(6) => Released::InPause,
            _ => return None,
        })
    }
}

impl Reply for Fenced {
    fn read(value: &Value) -> Option<Fenced> {
        with_yes(value).flatten().map(Fenced)
    }
}

impl Reply for Holders {
    fn read(value: &Value) -> Option<Holders> {
        let (Value::Int(1), pairs) = value.items()?.split_first()? else { return None };
        let holder = |pair: &[Value]| match pair {
            [token, Value::Int(ms)] => Some((token.text()?, left(*ms))),
            _ => None,
        };
        pairs.chunks(2).map(holder).collect()
    }
}

/// Reply: `1`, for example to an arrival at a latch.
impl Reply for () {
    fn read(value: &Value) -> Option<()> {
        (*value == Value::Int(1)).then_some(())
    }
}

impl Reply for LatchStatus {
    fn read(value: &Value) -> Option<LatchStatus> {
        let [Value::Int(1), Value::Int(is_open), Value::Int(count), Value::Int(ms), arrivals @ ..] = value.items()?
        else {
            return None;
        };
        Some(LatchStatus {
            is_open: *is_open == 1,
            count: usize::try_from(*count).ok()?,
            // -1: a program has removed the time-to-live.
            kept: (*ms > -2).then(|| u64::try_from(*ms).map_or(MAX_LIFETIME, |ms| Duration::from_millis(ms.max(1)))),
            arrivals: arrivals.iter().map(Value::text).collect::<Option<_>>()?,
        })
    }
}

/// True for a no in any of the forms that scripts use.
pub(crate) fn is_no(value: &Value) -> bool {
    match value {
        // Of `SET NX`.
        Value::Nil => true,
        Value::Int(n) => *n <= 0,
        Value::List(items) => matches!(items.first(), Some(Value::Int(0))),
        _ => false,
    }
}

/// The number that comes with a yes, if one does.
#[allow(clippy::option_option, reason = "a yes without a number is a yes")]
fn with_yes(value: &Value) -> Option<Option<u64>> {
    match value.items() {
        Some([Value::Int(1), number]) => Some(Some(number.text()?.parse().ok()?)),
        _ => (*value == Value::Int(1)).then_some(None),
    }
}

impl<R> Vote<R> {
    /// A no to a call that names no wait.
    pub(crate) fn taken(token: String, ttl: Option<Duration>) -> Vote<R> {
        Vote::Taken { token, ttl, place: QueuePlace::Nowhere }
    }

    /// Parses the noes that the scripts document: `0`, `-1`, `{0, ms, token, place}`, `{0}`.
    fn read_no(value: &Value) -> Option<Vote<R>> {
        match (value, value.items()) {
            // Nil is the reply to `SET NX`, which does not name the holder.
            (Value::Int(0) | Value::Nil, _) => Some(Vote::taken(String::new(), None)),
            (Value::Int(-1), _) | (_, Some([Value::Int(0)])) => Some(Vote::Absent),
            (_, Some([Value::Int(0), Value::Int(ms), token, place])) => {
                Some(Vote::Taken { token: token.text()?, ttl: left(*ms), place: QueuePlace::read(place)? })
            }
            _ => None,
        }
    }

    pub(crate) fn from_result(result: Result<Value, Failure>) -> Vote<R>
    where
        R: Reply,
    {
        let unexpected = |value: &Value| {
            let reply = value.text().map_or_else(|| format!("{value:?}"), |text| printable(&text));
            let message = format!("unexpected reply `{}`", reply.chars().take(200).collect::<String>());
            Vote::Failed(Failure { kind: FailureKind::Refused, executed: Executed::Maybe, message })
        };
        match result {
            Ok(value) => {
                R::read(&value).map(Vote::Yes).or_else(|| Vote::read_no(&value)).unwrap_or_else(|| unexpected(&value))
            }
            Err(failure) => Vote::Failed(failure),
        }
    }

    pub(crate) fn is_yes(&self) -> bool {
        matches!(self, Vote::Yes(_))
    }

    /// True if the node certainly does not have this call's token: it has another one, none, or a key of another type.
    pub(crate) fn is_definite_no(&self) -> bool {
        match self {
            Vote::Taken { .. } | Vote::Absent => true,
            Vote::Failed(failure) => failure.kind == FailureKind::WrongType,
            Vote::Yes(_) | Vote::Void => false,
        }
    }

    /// A yes or a definite no: the state of that node is known.
    pub(crate) fn is_definite(&self) -> bool {
        self.is_yes() || self.is_definite_no()
    }

    /// True if the call was not sent, and another attempt may succeed soon.
    pub(crate) fn is_unsent(&self) -> bool {
        use FailureKind::{LeftOut, Overloaded, TimedOut, Transient, Unreachable};
        let passes = |kind| matches!(kind, Unreachable | TimedOut | Overloaded | LeftOut | Transient);
        matches!(self, Vote::Failed(failure) if failure.executed == Executed::No && passes(failure.kind))
    }

    /// True if the node may have our token after an acquire with this vote.
    pub(crate) fn may_be_set(&self) -> bool {
        match self {
            Vote::Yes(_) | Vote::Void => true,
            Vote::Failed(failure) => failure.executed == Executed::Maybe,
            Vote::Taken { .. } | Vote::Absent => false,
        }
    }
}

impl QueuePlace {
    fn read(value: &Value) -> Option<QueuePlace> {
        match value {
            Value::Int(0) => Some(QueuePlace::Nowhere),
            Value::Int(1) => Some(QueuePlace::New),
            Value::Int(2) => Some(QueuePlace::Kept),
            _ => None,
        }
    }
}

/// The time that is left; `None` for -1, a key without end. A server whose clock goes on in a script can say -2, if the
/// key expires meanwhile.
pub(super) fn left(ms: i64) -> Option<Duration> {
    (ms != -1).then(|| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
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

    fn vote<R: Reply>(value: &Value) -> Vote<R> {
        Vote::from_result(Ok(value.clone()))
    }

    #[test]
    fn an_unexpected_reply_is_shown_as_text_and_cut() {
        let message = |reply: Vec<u8>| match Vote::<Holders>::from_result(Ok(Value::Text(reply))) {
            Vote::Failed(failure) => failure.message,
            _ => String::new(),
        };
        assert_eq!(message(b"hello".to_vec()), "unexpected reply `hello`");
        let long = message(vec![b'a'; 1 << 20]);
        assert!(long.len() < 300 && long.ends_with("aa`"), "{} bytes", long.len());
    }

    /// `SET NX` says no by a nil.
    #[test]
    fn a_no_in_each_form() {
        let noes = [Value::Nil, Value::Int(0), Value::Int(-1), list(&[Value::Int(0)])];
        let yeses = [Value::Okay, Value::Int(1), list(&[Value::Int(1)]), text("a")];
        assert!(noes.iter().all(is_no) && !yeses.iter().any(is_no));
    }

    #[test]
    fn each_operation_reads_its_own_reply() {
        let one = Value::Int(1);
        let with_number = list(&[Value::Int(1), text("17")]);
        assert_eq!(vote(&one), Vote::Yes(Acquired::default()));
        assert_eq!(vote(&with_number), Vote::Yes(Acquired { fence: Some(17), ..Acquired::default() }));
        let with_slot = |fence| list(&[Value::Int(1), text(fence), text("4 10 7")]);
        assert_eq!(vote(&with_slot("17")), Vote::Yes(Acquired { fence: Some(17), slots: vec![4, 7, 10] }));
        assert_eq!(vote(&with_slot("0")), Vote::Yes(Acquired { slots: vec![4, 7, 10], ..Acquired::default() }));
        assert_eq!(vote(&one), Vote::Yes(Extended { waits: None }));
        assert_eq!(vote(&with_number), Vote::Yes(Extended { waits: Some(17) }));
        assert_eq!(vote(&with_number), Vote::Yes(Fenced(17)));
        let how = [1, 2, 3, 4].map(|how| vote(&Value::Int(how)));
        assert_eq!(how, [Released::Freed, Released::Granted, Released::Reserved, Released::Untold].map(Vote::Yes));
        let ms = |n| Some(Duration::from_millis(n));
        let pairs = list(&[Value::Int(1), text("a"), Value::Int(5), text("b"), Value::Int(-1)]);
        assert_eq!(vote(&pairs), Vote::Yes(vec![("a".to_owned(), ms(5)), ("b".to_owned(), None)]));
        assert_eq!(vote::<Holders>(&list(&[Value::Int(0)])), Vote::Absent);
        assert_eq!(vote(&one), Vote::Yes(()));
        let looked = list(&[Value::Int(1), Value::Int(0), Value::Int(1), Value::Int(5), text("a")]);
        let closed = LatchStatus { is_open: false, count: 1, kept: ms(5), arrivals: vec!["a".into()] };
        assert_eq!(vote(&looked), Vote::Yes(closed));
    }

    #[test]
    fn all_operations_are_refused_in_the_same_words() {
        let no = |ms, place| list(&[Value::Int(0), Value::Int(ms), text("t"), Value::Int(place)]);
        for (n, place) in [(0, QueuePlace::Nowhere), (1, QueuePlace::New), (2, QueuePlace::Kept)] {
            let ended = Vote::Taken { token: "t".into(), ttl: Some(Duration::ZERO), place };
            assert_eq!(vote::<Acquired>(&no(-2, n)), ended);
        }
        assert_eq!(vote::<Acquired>(&no(5, 0)), Vote::taken("t".into(), Some(Duration::from_millis(5))));
        assert_eq!(vote::<Acquired>(&no(-1, 0)), Vote::taken("t".into(), None));
        assert_eq!(vote::<Released>(&Value::Int(0)), Vote::taken(String::new(), None));
        assert_eq!(vote::<Extended>(&Value::Int(-1)), Vote::Absent);
    }

    #[test]
    fn anything_else_may_have_set_the_token() {
        assert_eq!(vote::<Acquired>(&Value::Nil), Vote::taken(String::new(), None), "of `SET NX`");
        for odd in [Value::Int(7), text("x"), list(&[]), list(&[Value::Int(1), Value::Nil])] {
            let vote: Vote<Acquired> = vote(&odd);
            assert!(matches!(vote, Vote::Failed(_)) && vote.may_be_set(), "{odd:?}");
        }
    }

    fn said(kind: FailureKind, executed: Executed) -> Vote<Acquired> {
        Vote::Failed(Failure::new(kind, executed, ""))
    }

    #[test]
    fn an_unknown_outcome_is_never_a_no() {
        let (unknown, unsent) =
            (said(FailureKind::TimedOut, Executed::Maybe), said(FailureKind::TimedOut, Executed::No));
        assert!(unknown.may_be_set() && !unknown.is_definite_no());
        assert!(!unsent.may_be_set() && !unsent.is_definite_no());
    }

    #[test]
    fn what_each_vote_says_of_our_token() {
        let wrong_type = said(FailureKind::WrongType, Executed::No);
        for no in [Vote::taken("t".into(), None), Vote::Absent, wrong_type] {
            assert!(no.is_definite_no() && !no.may_be_set() && !no.is_yes(), "{no:?}");
        }
        let void: Vote<Acquired> = Vote::Void;
        assert!(!void.is_yes() && void.may_be_set() && !void.is_definite_no() && !void.is_unsent());
        let ours = Vote::Yes(Acquired::default());
        assert!(ours.is_yes() && ours.may_be_set() && !ours.is_definite_no() && !ours.is_unsent());
    }

    #[test]
    fn only_what_can_pass_and_was_not_sent_is_unsent() {
        for passes in [FailureKind::Unreachable, FailureKind::TimedOut, FailureKind::LeftOut, FailureKind::Transient] {
            assert!(said(passes, Executed::No).is_unsent(), "{passes:?}");
            assert!(!said(passes, Executed::Maybe).is_unsent(), "{passes:?}");
        }
        for stays in [FailureKind::WrongType, FailureKind::Refused] {
            assert!(!said(stays, Executed::No).is_unsent(), "{stays:?}");
        }
    }
}
