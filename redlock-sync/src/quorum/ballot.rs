//! Counts the votes of a round, without I/O and without a clock.

use std::time::Duration;

use crate::clock::Tick;
use crate::options::drift;
use crate::protocol::reply::{Acquired, Holders, PerNode, Vote};

/// The number of votes that make a majority. An even number of nodes is allowed.
pub(crate) fn votes_needed(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The votes of one round.
#[derive(Debug)]
pub(crate) struct Ballot<R> {
    pub(crate) votes: PerNode<Vote<R>>,
    /// The time before the first byte was sent.
    pub(crate) started: Tick,
    /// Some node may still execute a copy of the call, after later calls.
    pub(crate) duplicate: bool,
}

impl<R> Ballot<R> {
    /// The number of nodes that said yes.
    pub(crate) fn yes(&self) -> usize {
        self.votes.iter().filter(|vote| vote.is_yes()).count()
    }

    /// The number of nodes that answered with a yes, a definite no or a void vote.
    pub(crate) fn answered(&self) -> usize {
        self.votes.iter().filter(|vote| !matches!(vote, Vote::Failed(_))).count()
    }

    pub(crate) fn won(&self) -> bool {
        self.yes() >= votes_needed(self.votes.len())
    }

    /// True if a majority answered. If such a round is not won, other holders have the lock, and the error is `Busy`
    /// and not `Unavailable`.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered() >= votes_needed(self.votes.len())
    }

    /// The number of nodes that answered with a definite yes or no.
    pub(crate) fn definite(&self) -> usize {
        self.votes.iter().filter(|vote| vote.is_definite()).count()
    }

    /// After how long a majority of the nodes can be free at the earliest, if other holders do not renew. A node that
    /// names no holder may be free at any time. `None` if a majority may be free now, or never will be.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        let free_in = |vote: &Vote<R>| match vote {
            Vote::Taken { ttl, token, .. } if !token.is_empty() => ttl.unwrap_or(Duration::MAX),
            _ => Duration::ZERO,
        };
        let mut free_in: Vec<Duration> = self.votes.iter().map(free_in).collect();
        free_in.sort_unstable();
        let first = free_in.get(votes_needed(self.votes.len()).checked_sub(1)?).copied()?;
        (first > Duration::ZERO && first < Duration::MAX).then_some(first)
    }

    /// How long a lock that this round won is still held for certain.
    pub(crate) fn validity(&self, lease: Duration, now: Tick) -> Duration {
        self.started.after(lease).before(drift(lease)).since(now)
    }

    /// The nodes that may have our token, now or later. A copy that broke off may come to a node that has answered "no"
    /// to another copy.
    pub(crate) fn may_be_set(&self) -> impl Iterator<Item = bool> {
        self.votes.iter().map(|vote| self.duplicate || vote.may_be_set())
    }

    /// True if some node that did not vote yes may have our token, now or later.
    pub(crate) fn token_may_remain(&self) -> bool {
        let is_unknown = |vote: &Vote<R>| matches!(vote, Vote::Failed(_)) && vote.may_be_set();
        self.duplicate || self.votes.iter().any(is_unknown)
    }
}

impl Ballot<Acquired> {
    /// The largest fence of the nodes that voted yes.
    pub(crate) fn largest_fence(&self) -> Option<u64> {
        let fence = |vote: &Vote<Acquired>| if let Vote::Yes(acquired) = vote { acquired.fence } else { None };
        self.votes.iter().filter_map(fence).max()
    }
}

impl Ballot<Holders> {
    /// The tokens that a majority of the nodes has, in the order in which the nodes list them. Each comes with the
    /// least time for which it keeps its majority (`None`: without end).
    pub(crate) fn of_majority(&self) -> Vec<(String, Option<Duration>)> {
        let need = votes_needed(self.votes.len());
        let held = |vote: &Vote<Holders>| if let Vote::Yes(all) = vote { all.clone() } else { Vec::new() };
        let all: Vec<(String, Option<Duration>)> = self.votes.iter().flat_map(held).collect();
        let mut holders: Vec<(String, Option<Duration>)> = Vec::new();
        for (token, _) in &all {
            let of_token = all.iter().filter(|(t, _)| t == token);
            let mut ttls: Vec<Duration> = of_token.map(|(_, ttl)| ttl.unwrap_or(Duration::MAX)).collect();
            ttls.sort_unstable_by(|a, b| b.cmp(a));
            if let Some(ttl) = ttls.get(need - 1)
                && holders.iter().all(|(holder, _)| holder != token)
            {
                holders.push((token.clone(), (*ttl != Duration::MAX).then_some(*ttl)));
            }
        }
        holders
    }

    /// True if a token without a majority would have one if all nodes of unknown state had it.
    pub(crate) fn may_have_other_holder(&self) -> bool {
        let unknown = self.votes.iter().filter(|vote| !vote.is_definite()).count();
        let held = self.votes.iter().filter_map(|vote| if let Vote::Yes(all) = vote { Some(all) } else { None });
        let tokens: Vec<&str> = held.flatten().map(|(token, _)| token.as_str()).collect();
        let nodes_of = |token: &str| tokens.iter().filter(|other| **other == token).count();
        let need = votes_needed(self.votes.len());
        unknown > 0 && tokens.iter().map(|token| nodes_of(token)).any(|known| known < need && known + unknown >= need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::{Executed, Failure, FailureKind};

    fn failed() -> Vote<Acquired> {
        said(FailureKind::TimedOut, Executed::No)
    }

    fn said(kind: FailureKind, executed: Executed) -> Vote<Acquired> {
        Vote::Failed(Failure { kind, executed, message: String::new() })
    }

    fn yes(fence: Option<u64>) -> Vote<Acquired> {
        Vote::Yes(Acquired { fence, ..Acquired::default() })
    }

    fn taken(ms: u64) -> Vote<Acquired> {
        Vote::taken("t".into(), Some(Duration::from_millis(ms)))
    }

    fn ballot(votes: Vec<Vote<Acquired>>) -> Ballot<Acquired> {
        Ballot { votes: votes.into(), started: Tick::ZERO, duplicate: false }
    }

    #[test]
    fn a_void_vote_is_an_answer_and_no_yes() {
        let split = ballot(vec![yes(None), Vote::Void, Vote::Void]);
        assert!(!split.won() && split.is_answered() && !split.token_may_remain());
        assert_eq!(split.expires_in(), None);
    }

    #[test]
    fn every_combination_up_to_seven_nodes() {
        for of in 1..=7_usize {
            for yes in 0..=of {
                for no in 0..=(of - yes) {
                    let votes: Vec<Vote<()>> = std::iter::repeat_n(Vote::Yes(()), yes)
                        .chain(std::iter::repeat_n(Vote::Absent, no))
                        .chain(std::iter::repeat_n(
                            Vote::Failed(Failure::new(FailureKind::TimedOut, Executed::No, "")),
                            of - yes - no,
                        ))
                        .collect();
                    let ballot = Ballot { votes: votes.into(), started: Tick::ZERO, duplicate: false };
                    assert_eq!(ballot.won(), 2 * yes > of, "{ballot:?}");
                    assert_eq!(ballot.is_answered(), 2 * (yes + no) > of, "{ballot:?}");
                    assert_eq!((ballot.yes(), ballot.answered()), (yes, yes + no));
                }
            }
        }
    }

    #[test]
    fn two_majorities_always_share_a_node() {
        for of in 1..=9 {
            assert!(2 * votes_needed(of) > of);
        }
    }

    #[test]
    fn a_lock_can_be_free_once_a_majority_of_the_nodes_is() {
        let endless = || Vote::<Acquired>::taken("t".into(), None);
        let until = |votes| ballot(votes).expires_in().map(|left| left.as_millis());
        assert_eq!(until(vec![taken(50)]), Some(50));
        assert_eq!(until(vec![taken(5), taken(70), taken(50)]), Some(50));
        assert_eq!(until(vec![yes(None), taken(70), taken(50)]), Some(50));
        assert_eq!(until(vec![failed(), taken(70), failed()]), None, "perhaps now");
        assert_eq!(until(vec![taken(5), endless(), endless()]), None, "never");
        assert_eq!(until(vec![taken(5), taken(9), endless(), endless()]), None, "two of four are no majority");
        assert_eq!(until(vec![]), None);
    }

    #[test]
    fn numbers_of_a_round_are_those_of_the_votes_that_have_them() {
        let round = ballot(vec![yes(Some(3)), taken(70), yes(Some(9)), taken(50), failed()]);
        assert_eq!(round.largest_fence(), Some(9));
        assert_eq!((round.yes(), round.answered()), (2, 4));
        let none = ballot(vec![Vote::taken(String::new(), None), Vote::Absent, yes(None)]);
        assert_eq!((none.largest_fence(), none.expires_in()), (None, None));
    }

    #[test]
    fn validity_is_what_is_left_of_the_lease_less_the_drift() {
        // The drift of ten seconds is 102 ms.
        let (second, start) = (Duration::from_secs(1), Tick::from_nanos(7));
        let round = Ballot::<Acquired> { votes: PerNode::new(), started: start, duplicate: false };
        assert_eq!(round.validity(10 * second, start), Duration::from_millis(9898));
        assert_eq!(round.validity(10 * second, start.after(4 * second)), Duration::from_millis(5898));
        assert_eq!(round.validity(10 * second, start.after(10 * second)), Duration::ZERO);
    }

    #[test]
    fn a_token_may_remain_where_it_may_be_set_without_a_yes() {
        let maybe = || said(FailureKind::TimedOut, Executed::Maybe);
        assert!(!ballot(vec![yes(None), Vote::Absent, failed()]).token_may_remain());
        assert!(ballot(vec![yes(None), maybe()]).token_may_remain());
        assert!(Ballot { duplicate: true, ..ballot(vec![Vote::Absent]) }.token_may_remain());
    }

    fn seen(votes: &[Option<(&str, Option<u64>)>]) -> Option<(String, Option<u64>)> {
        let vote = |seen: &Option<(&str, Option<u64>)>| {
            let taken =
                |(token, ms): (&str, Option<u64>)| Vote::Yes(vec![(token.to_owned(), ms.map(Duration::from_millis))]);
            seen.map_or(Vote::Absent, taken)
        };
        let ballot = Ballot { votes: votes.iter().map(vote).collect(), started: Tick::ZERO, duplicate: false };
        let (token, remaining) = ballot.of_majority().into_iter().next()?;
        Some((token, remaining.map(|d| u64::try_from(d.as_millis()).unwrap())))
    }

    #[test]
    fn a_holder_has_a_majority_and_for_as_long_as_it_keeps_one() {
        let (a, b) = (|ms| Some(("a", Some(ms))), |ms| Some(("b", Some(ms))));
        assert_eq!(seen(&[a(10)]), Some(("a".into(), Some(10))));
        assert_eq!(seen(&[b(90), a(10), a(30)]), Some(("a".into(), Some(10))));
        assert_eq!(seen(&[a(50), a(10), a(30)]), Some(("a".into(), Some(30))));
        assert_eq!(seen(&[a(50), a(10), None, None, a(30)]), Some(("a".into(), Some(10))));
        assert_eq!(seen(&[a(10), b(10), None]), None);
        assert_eq!(seen(&[None]), None);
    }

    #[test]
    fn a_node_that_did_not_answer_may_give_a_token_its_majority() {
        let held =
            |tokens: &[&str]| Vote::<Holders>::Yes(tokens.iter().map(|token| ((*token).to_owned(), None)).collect());
        let (a, b, free) = (|| held(&["a"]), || held(&["b"]), || Vote::<Holders>::Absent);
        let silent = || Vote::<Holders>::Failed(Failure::new(FailureKind::TimedOut, Executed::Maybe, ""));
        let may = |votes: Vec<Vote<Holders>>| {
            Ballot { votes: votes.into(), started: Tick::ZERO, duplicate: false }.may_have_other_holder()
        };
        assert!(may(vec![a(), free(), silent()]));
        assert!(may(vec![a(), b(), silent()]));
        assert!(may(vec![a(), free(), free(), silent(), silent()]));
        assert!(may(vec![held(&["a", "b"]), a(), silent()]), "one holder is certain, and another one is not");
        assert!(!may(vec![a()]));
        assert!(!may(vec![a(), a(), silent()]));
        assert!(!may(vec![a(), b(), a(), a(), silent()]));
        assert!(!may(vec![a(), free(), b()]));
        let wrong_type = Vote::Failed(Failure::new(FailureKind::WrongType, Executed::No, ""));
        assert!(!may(vec![a(), free(), wrong_type]));
        assert!(!may(vec![free(), free(), silent()]));
        assert!(!may(vec![a(), free(), free(), free(), silent()]));
    }

    #[test]
    fn a_key_without_end_has_no_remaining_time() {
        let endless = Some(("a", None));
        assert_eq!(seen(&[endless]), Some(("a".into(), None)));
        assert_eq!(seen(&[endless, Some(("a", Some(7))), None]), Some(("a".into(), Some(7))));
    }
}
