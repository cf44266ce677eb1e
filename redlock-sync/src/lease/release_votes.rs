//! What the votes of a release mean, over several rounds. Pure.

use crate::protocol::reply::{Executed, Failure, FailureKind, Released, Vote};
use crate::quorum::{Ballot, votes_needed};

/// True if a majority said that the token is gone. A node that has another token in its place says so too.
pub(super) fn is_confirmed(ballot: &Ballot<Released>) -> bool {
    ballot.definite() >= votes_needed(ballot.votes.len())
}

/// True if all of these nodes said that the token is gone.
pub(super) fn is_gone_from(nodes: &[bool], ballot: &Ballot<Released>) -> bool {
    nodes.iter().zip(&ballot.votes).all(|(has, vote)| !has || vote.is_definite())
}

/// The token is not there: the key does not exist, or another holder has it by now.
pub(super) fn is_gone(vote: &Vote<Released>) -> bool {
    matches!(vote, Vote::Absent | Vote::Taken { .. })
}

/// Merges the answers of a repeated round, from the nodes that it asked. If an earlier outcome was unknown, "not held"
/// means that the first transmission was executed. Another holder may have taken the lock since.
pub(super) fn merge(ballot: &mut Ballot<Released>, again: Ballot<Released>) {
    ballot.duplicate |= again.duplicate;
    for (old, new) in ballot.votes.iter_mut().zip(again.votes) {
        if !old.is_definite() {
            let was_known = !matches!(old, Vote::Failed(f) if f.executed == Executed::Maybe);
            *old = match (&*old, new) {
                (_, new) if !was_known && is_gone(&new) => Vote::Yes(Released::Freed),
                // The server's own words say more than a timeout of the repetition.
                (Vote::Failed(said), Vote::Failed(late)) if late.kind == FailureKind::TimedOut && said.is_answer() => {
                    let executed = if was_known { late.executed } else { Executed::Maybe };
                    Vote::Failed(Failure { executed, ..said.clone() })
                }
                (_, new) => new,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Tick;

    fn failed(kind: FailureKind, executed: Executed) -> Vote<Released> {
        Vote::Failed(Failure { kind, executed, message: "said".into() })
    }

    fn ballot(votes: Vec<Vote<Released>>) -> Ballot<Released> {
        Ballot { votes: votes.into(), started: Tick::ZERO, duplicate: false }
    }

    #[test]
    fn not_held_after_an_unknown_outcome_is_success() {
        let mut first =
            ballot(vec![failed(FailureKind::Unreachable, Executed::Maybe), failed(FailureKind::LeftOut, Executed::No)]);
        assert!(!is_confirmed(&first) && !is_gone_from(&[true; 3], &first));
        merge(&mut first, ballot(vec![Vote::Absent, Vote::Absent]));
        assert_eq!(first.votes[..], [Vote::Yes(Released::Freed), Vote::Absent]);
        assert!(is_confirmed(&first) && is_gone_from(&[true; 3], &first));
    }

    #[test]
    fn a_node_that_may_have_it_has_to_confirm_besides_the_majority() {
        let freed = || Vote::Yes(Released::Freed);
        let silent = || failed(FailureKind::LeftOut, Executed::No);
        let two_of_three = ballot(vec![freed(), silent(), Vote::Absent]);
        assert!(is_confirmed(&two_of_three));
        assert!(
            is_gone_from(&[true, false, true], &two_of_three) && !is_gone_from(&[false, true, false], &two_of_three)
        );
    }

    #[test]
    fn an_answer_stays_and_words_of_the_server_outlive_a_time_out() {
        let mut first = ballot(vec![Vote::Yes(Released::Freed), failed(FailureKind::Refused, Executed::No)]);
        merge(&mut first, ballot(vec![Vote::Absent, failed(FailureKind::TimedOut, Executed::Maybe)]));
        assert_eq!(first.votes[..], [Vote::Yes(Released::Freed), failed(FailureKind::Refused, Executed::Maybe)]);
    }

    #[test]
    fn what_is_not_known_stays_so_until_a_node_says_that_it_is_gone() {
        let maybe = || failed(FailureKind::TimedOut, Executed::Maybe);
        let mut first = ballot(vec![maybe(), maybe(), maybe()]);
        let taken = || Vote::taken("t".into(), None);
        merge(&mut first, ballot(vec![failed(FailureKind::Unreachable, Executed::No), maybe(), taken()]));
        assert_eq!(
            first.votes[..],
            [failed(FailureKind::Unreachable, Executed::No), maybe(), Vote::Yes(Released::Freed)]
        );
        assert!(!is_confirmed(&first) && !is_gone_from(&[true; 3], &first));
    }

    #[test]
    fn later_words_replace_earlier_ones_but_for_a_time_out() {
        let (refused, gone) =
            (|| failed(FailureKind::Refused, Executed::No), || failed(FailureKind::Unreachable, Executed::No));
        let mut first = ballot(vec![refused(), gone()]);
        merge(&mut first, ballot(vec![gone(), failed(FailureKind::TimedOut, Executed::No)]));
        assert_eq!(first.votes[..], [gone(), failed(FailureKind::TimedOut, Executed::No)]);
    }

    #[test]
    fn a_duplicate_of_any_round_stays() {
        for (before, again) in [(true, false), (false, true), (false, false), (true, true)] {
            let mut first = Ballot { duplicate: before, ..ballot(vec![Vote::Absent]) };
            merge(&mut first, Ballot { duplicate: again, ..ballot(vec![Vote::Absent]) });
            assert_eq!(first.duplicate, before || again);
        }
    }
}
