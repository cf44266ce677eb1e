//! Votes, and counting them. Pure.

use std::time::Duration;

use crate::clock::Tick;
use crate::config::drift;
use crate::node::{Executed, Failure, Trouble, Value};

/// What one node says to a call, whatever the kind of lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Done; the fence is 0 where the call has none. Of a release and of a count the number is what they tell.
    Yes { fence: u64 },
    /// A definite no: the key is another's, for that long (`None`: without end). With an empty token the lock is free, but only after that
    /// time for the attempt that asks.
    Taken { token: String, ttl: Option<Duration>, place: Place },
    /// A definite no: there is no such key.
    Absent,
    /// No answer that counts.
    Failed(Failure),
}

/// Where the wait of an attempt stands after a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not in the queue.
    Nowhere,
    /// It entered the queue just now.
    New,
    /// It was there.
    Kept,
}

impl Vote {
    /// Reads the replies that the scripts document: a number, `{1, number}`, `{1, token, ms}`, `{0, ms, token, place}`, `{0}`.
    fn read(value: &Value) -> Option<Vote> {
        match value {
            Value::Int(1) => Some(Vote::Yes { fence: 0 }),
            Value::Int(how @ 2..=4) => Some(Vote::Yes { fence: how.unsigned_abs() }),
            Value::Int(0) => Some(Vote::taken(String::new(), None)),
            Value::Int(-1) => Some(Vote::Absent),
            Value::List(items) => match items.as_slice() {
                [Value::Int(1), fence] => Some(Vote::Yes { fence: number(fence)? }),
                [Value::Int(1), token, Value::Int(ms)] => Some(Vote::taken(text(token)?, left(*ms))),
                [Value::Int(0), Value::Int(ms), token, place] => {
                    Some(Vote::Taken { token: text(token)?, ttl: left(*ms), place: Place::read(place)? })
                }
                [Value::Int(0)] => Some(Vote::Absent),
                _ => None,
            },
            _ => None,
        }
    }

    /// A no to a call that names no wait.
    pub(crate) fn taken(token: String, ttl: Option<Duration>) -> Vote {
        Vote::Taken { token, ttl, place: Place::Nowhere }
    }

    pub(super) fn from_result(result: Result<Value, Failure>) -> Vote {
        match result {
            Ok(value) => Vote::read(&value).unwrap_or_else(|| {
                Vote::Failed(Failure {
                    trouble: Trouble::Refused,
                    executed: Executed::Maybe,
                    message: format!("unexpected reply {value:?}"),
                })
            }),
            Err(failure) => Vote::Failed(failure),
        }
    }

    pub(crate) fn is_yes(&self) -> bool {
        matches!(self, Vote::Yes { .. })
    }

    /// The token is certainly not this call's: another one, none, or a key of another type.
    pub(crate) fn is_definite_no(&self) -> bool {
        match self {
            Vote::Taken { .. } | Vote::Absent => true,
            Vote::Failed(failure) => failure.trouble == Trouble::WrongType,
            Vote::Yes { .. } => false,
        }
    }

    /// Nothing of the call has got through, which can be otherwise in a moment.
    pub(super) fn is_unsent(&self) -> bool {
        use Trouble::{LeftOut, Overloaded, TimedOut, Transient, Unreachable};
        let passes = |trouble| matches!(trouble, Unreachable | TimedOut | Overloaded | LeftOut | Transient);
        matches!(self, Vote::Failed(failure) if failure.executed == Executed::No && passes(failure.trouble))
    }

    /// Whether our token may stand on this node after an acquire that said this.
    pub(super) fn may_be_set(&self) -> bool {
        match self {
            Vote::Yes { .. } => true,
            Vote::Failed(failure) => failure.executed == Executed::Maybe,
            Vote::Taken { .. } | Vote::Absent => false,
        }
    }
}

impl Place {
    fn read(value: &Value) -> Option<Place> {
        match value {
            Value::Int(0) => Some(Place::Nowhere),
            Value::Int(1) => Some(Place::New),
            Value::Int(2) => Some(Place::Kept),
            _ => None,
        }
    }
}

/// A server whose clock goes on in a script can say -2: the key ended while the script looked at it.
fn left(ms: i64) -> Option<Duration> {
    (ms != -1).then(|| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

/// Counts votes. Pure; right for even numbers of nodes too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) of: usize,
    pub(crate) yes: usize,
    pub(crate) no: usize,
    pub(crate) failed: usize,
}

impl Tally {
    pub(crate) fn count(votes: &[Vote]) -> Tally {
        let yes = votes.iter().filter(|v| v.is_yes()).count();
        let failed = votes.iter().filter(|v| matches!(v, Vote::Failed(_))).count();
        Tally { of: votes.len(), yes, failed, no: votes.len() - yes - failed }
    }

    /// Votes that make a majority.
    pub(crate) fn need(of: usize) -> usize {
        of / 2 + 1
    }

    pub(crate) fn won(&self) -> bool {
        self.yes >= Tally::need(self.of)
    }

    /// A majority was asked and answered; so a round that is not won was lost to others, not to failures.
    pub(crate) fn is_answered(&self) -> bool {
        self.yes + self.no >= Tally::need(self.of)
    }
}

/// The votes of one round, with the moment before its first byte.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub(crate) votes: Vec<Vote>,
    pub(crate) started: Tick,
    /// On some node a copy of the call may still be executed, out of order.
    pub(crate) ghost: bool,
}

impl Ballot {
    pub(crate) fn tally(&self) -> Tally {
        Tally::count(&self.votes)
    }

    /// The largest number that came with a yes.
    pub(crate) fn largest_fence(&self) -> u64 {
        let fence = |vote: &Vote| if let Vote::Yes { fence } = vote { *fence } else { 0 };
        self.votes.iter().map(fence).max().unwrap_or(0)
    }

    /// The smallest time-to-live that another holder's key has.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        let ttl = |vote: &Vote| match vote {
            Vote::Taken { ttl, token, .. } if !token.is_empty() => *ttl,
            _ => None,
        };
        self.votes.iter().filter_map(ttl).min()
    }

    /// For how long a lock that this round won is surely held.
    pub(crate) fn validity(&self, lease: Duration, now: Tick) -> Duration {
        self.started.after(lease).before(drift(lease)).since(now)
    }

    /// The first failure of that kind of trouble, with its node's index.
    pub(crate) fn failure(&self, trouble: Trouble) -> Option<(usize, &Failure)> {
        self.votes.iter().enumerate().find_map(|(i, vote)| match vote {
            Vote::Failed(failure) if failure.trouble == trouble => Some((i, failure)),
            _ => None,
        })
    }

    /// Some node may have our token, now or later, although it did not vote yes.
    pub(crate) fn is_haunted(&self) -> bool {
        self.ghost || self.votes.iter().any(|vote| !vote.is_yes() && vote.may_be_set())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Vote {
        let message = String::new();
        Vote::Failed(Failure { trouble: Trouble::TimedOut, executed: Executed::No, message })
    }

    #[test]
    fn every_combination_up_to_seven_nodes() {
        for of in 1..=7_usize {
            for yes in 0..=of {
                for no in 0..=(of - yes) {
                    let votes: Vec<Vote> = std::iter::repeat_n(Vote::Yes { fence: 1 }, yes)
                        .chain(std::iter::repeat_n(Vote::Absent, no))
                        .chain(std::iter::repeat_n(failed(), of - yes - no))
                        .collect();
                    let tally = Tally::count(&votes);
                    assert_eq!(tally.won(), 2 * yes > of, "{tally:?}");
                    assert_eq!(tally.is_answered(), 2 * (yes + no) > of, "{tally:?}");
                    assert_eq!(tally.yes + tally.no + tally.failed, of);
                }
            }
        }
    }

    #[test]
    fn two_majorities_always_share_a_node() {
        for of in 1..=9 {
            assert!(2 * Tally::need(of) > of);
        }
    }

    #[test]
    fn replies_become_votes() {
        let text = |s: &str| Value::Text(s.into());
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(1), text("17")])), Some(Vote::Yes { fence: 17 }));
        let taken = Some(Vote::taken("t".into(), Some(Duration::from_millis(5))));
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(0), Value::Int(5), text("t"), Value::Int(0)])), taken);
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(1), text("t"), Value::Int(5)])), taken);
        let endless = Some(Vote::taken("t".into(), None));
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(1), text("t"), Value::Int(-1)])), endless);
        for (n, place) in [(0, Place::Nowhere), (1, Place::New), (2, Place::Kept)] {
            let ended = Some(Vote::Taken { token: "t".into(), ttl: Some(Duration::ZERO), place });
            let said = vec![Value::Int(0), Value::Int(-2), text("t"), Value::Int(n)];
            assert_eq!(Vote::read(&Value::List(said)), ended);
        }
        assert_eq!(Vote::read(&Value::List(vec![Value::Int(0)])), Some(Vote::Absent));
        for odd in [Value::Nil, Value::Int(7), text("x"), Value::List(vec![])] {
            assert_eq!(Vote::read(&odd), None, "{odd:?}");
            assert!(Vote::from_result(Ok(odd)).may_be_set());
        }
    }

    #[test]
    fn an_unknown_outcome_is_never_a_no() {
        let unknown =
            Vote::Failed(Failure { trouble: Trouble::TimedOut, executed: Executed::Maybe, message: String::new() });
        assert!(unknown.may_be_set() && !unknown.is_definite_no());
        assert!(!failed().may_be_set() && !failed().is_definite_no());
    }

    fn said(trouble: Trouble, executed: Executed) -> Vote {
        Vote::Failed(Failure { trouble, executed, message: String::new() })
    }

    fn taken(ms: u64) -> Vote {
        Vote::taken("t".into(), Some(Duration::from_millis(ms)))
    }

    fn ballot(votes: Vec<Vote>) -> Ballot {
        Ballot { votes, started: Tick::ZERO, ghost: false }
    }

    #[test]
    fn single_numbers_become_votes() {
        assert_eq!(Vote::read(&Value::Int(1)), Some(Vote::Yes { fence: 0 }));
        assert_eq!([2, 3, 4].map(|n| Vote::read(&Value::Int(n))), [2, 3, 4].map(|fence| Some(Vote::Yes { fence })));
        assert_eq!(Vote::read(&Value::Int(0)), Some(Vote::taken(String::new(), None)));
        assert_eq!(Vote::read(&Value::Int(-1)), Some(Vote::Absent));
        assert_eq!(Vote::from_result(Ok(Value::Int(-1))), Vote::Absent);
    }

    #[test]
    fn what_each_vote_says_of_our_token() {
        let wrong_type = || said(Trouble::WrongType, Executed::No);
        for no in [taken(1), Vote::Absent, wrong_type()] {
            assert!(no.is_definite_no() && !no.may_be_set() && !no.is_yes(), "{no:?}");
        }
        let ours = Vote::Yes { fence: 3 };
        assert!(ours.is_yes() && ours.may_be_set() && !ours.is_definite_no() && !ours.is_unsent());
    }

    #[test]
    fn only_what_can_pass_and_was_not_sent_is_unsent() {
        for passes in [Trouble::Unreachable, Trouble::TimedOut, Trouble::LeftOut, Trouble::Transient] {
            assert!(said(passes, Executed::No).is_unsent(), "{passes:?}");
            assert!(!said(passes, Executed::Maybe).is_unsent(), "{passes:?}");
        }
        for stays in [Trouble::WrongType, Trouble::Refused] {
            assert!(!said(stays, Executed::No).is_unsent(), "{stays:?}");
        }
    }

    #[test]
    fn numbers_of_a_round_are_those_of_the_votes_that_have_them() {
        let round = ballot(vec![Vote::Yes { fence: 3 }, taken(70), Vote::Yes { fence: 9 }, taken(50), failed()]);
        assert_eq!(round.largest_fence(), 9);
        assert_eq!(round.expires_in(), Some(Duration::from_millis(50)));
        assert_eq!(round.tally(), Tally { of: 5, yes: 2, no: 2, failed: 1 });
        let none = ballot(vec![Vote::taken(String::new(), None), Vote::Absent]);
        assert_eq!((none.largest_fence(), none.expires_in()), (0, None));
    }

    #[test]
    fn validity_is_what_is_left_of_the_lease_less_the_drift() {
        // The drift of ten seconds is 102 ms.
        let (second, start) = (Duration::from_secs(1), Tick::from_nanos(7));
        let round = Ballot { votes: vec![], started: start, ghost: false };
        assert_eq!(round.validity(10 * second, start), Duration::from_millis(9898));
        assert_eq!(round.validity(10 * second, start.after(4 * second)), Duration::from_millis(5898));
        assert_eq!(round.validity(10 * second, start.after(10 * second)), Duration::ZERO);
    }

    #[test]
    fn the_first_failure_of_a_kind_is_found() {
        let refused = || said(Trouble::Refused, Executed::No);
        let round = ballot(vec![Vote::Absent, failed(), refused(), refused()]);
        assert_eq!(round.failure(Trouble::Refused).map(|(node, _)| node), Some(2));
        assert_eq!(round.failure(Trouble::TimedOut).map(|(node, _)| node), Some(1));
        assert_eq!(round.failure(Trouble::WrongType), None);
    }

    #[test]
    fn a_round_is_haunted_by_what_may_be_set_without_a_yes() {
        let maybe = || said(Trouble::TimedOut, Executed::Maybe);
        assert!(!ballot(vec![Vote::Yes { fence: 0 }, Vote::Absent, failed()]).is_haunted());
        assert!(ballot(vec![Vote::Yes { fence: 0 }, maybe()]).is_haunted());
        assert!(Ballot { ghost: true, ..ballot(vec![Vote::Absent]) }.is_haunted());
    }
}
