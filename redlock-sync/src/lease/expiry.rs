//! Which nodes have our token, and until when a majority surely has it. Pure.

use std::time::Duration;

use crate::clock::Tick;
use crate::options::drift;
use crate::protocol::reply::{PerNode, Vote};
use crate::quorum::votes_needed;

/// One mark for each node: until then, by this process's clock, the node grants the lock to no other token.
///
/// A yes to a call sent at `T1` keeps the key for `ttl` from some moment after `T1`. With the drift of the clocks
/// subtracted, that is at least until `T1 + ttl - drift`. An extend never shortens a lease, so a later yes never lowers
/// the mark. A definite no clears the mark, and silence leaves it.
///
/// A rival needs a majority. So the lock is held until fewer than a majority of nodes are marked: until the mark that
/// ranks `need`-th from the latest. Two rounds without a majority that each reached another node can therefore extend
/// the lease together.
#[derive(Debug, Clone)]
pub(crate) struct VoteExpiry {
    until: PerNode<Tick>,
}

impl VoteExpiry {
    /// The marks of an acquire round.
    pub(crate) fn new<R>(votes: &[Vote<R>], started: Tick, lease: Duration) -> VoteExpiry {
        let mut expiry = VoteExpiry { until: PerNode::from_elem(Tick::ZERO, votes.len()) };
        expiry.apply(votes, started, lease);
        expiry
    }

    /// Adds the votes of a later round.
    pub(crate) fn apply<R>(&mut self, votes: &[Vote<R>], started: Tick, lease: Duration) {
        let mark = started.after(lease).before(drift(lease));
        for (until, vote) in self.until.iter_mut().zip(votes) {
            if vote.is_yes() {
                *until = (*until).max(mark);
            } else if vote.is_definite_no() {
                *until = Tick::ZERO;
            }
        }
    }

    /// Applies only the losses, for a round that extended nothing.
    pub(crate) fn clear<R>(&mut self, votes: &[Vote<R>]) {
        for (until, _) in self.until.iter_mut().zip(votes).filter(|(_, vote)| vote.is_definite_no()) {
            *until = Tick::ZERO;
        }
    }

    /// Until when the lock is surely held.
    pub(crate) fn deadline(&self) -> Tick {
        let need = votes_needed(self.until.len());
        let is_reached = |mark: &Tick| self.until.iter().filter(|until| *until >= mark).count() >= need;
        self.until.iter().copied().filter(is_reached).max().unwrap_or(Tick::ZERO)
    }

    /// True if some node does not have our token, as far as we know. Then a spare vote is missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.until.contains(&Tick::ZERO)
    }

    /// The nodes that have our token, as far as we know.
    pub(crate) fn nodes(&self) -> PerNode<bool> {
        self.until.iter().map(|until| *until > Tick::ZERO).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::{Executed, Failure, FailureKind};

    const LEASE: Duration = Duration::from_secs(10);

    fn yes() -> Vote<()> {
        Vote::Yes(())
    }

    fn silence() -> Vote<()> {
        Vote::Failed(Failure { kind: FailureKind::TimedOut, executed: Executed::Maybe, message: String::new() })
    }

    fn at(secs: u64) -> Tick {
        Tick::ZERO.after(Duration::from_secs(secs))
    }

    fn mark(secs: u64) -> Tick {
        at(secs).after(LEASE).before(drift(LEASE))
    }

    #[test]
    fn the_deadline_is_that_of_the_majority() {
        let mut expiry = VoteExpiry::new(&[yes(), yes(), silence()], at(0), LEASE);
        assert_eq!(expiry.deadline(), mark(0));
        assert!(expiry.is_incomplete());
        expiry.apply(&[yes(), silence(), silence()], at(3), LEASE);
        assert_eq!(expiry.deadline(), mark(0), "one node alone extends nothing");
        expiry.apply(&[silence(), yes(), silence()], at(4), LEASE);
        assert_eq!(expiry.deadline(), mark(3), "each of two nodes keeps it at least until the earlier mark");
    }

    #[test]
    fn definite_noes_lose_at_once_and_silence_does_not() {
        let mut expiry = VoteExpiry::new(&[yes(), yes(), yes()], at(0), LEASE);
        expiry.apply(&[Vote::Absent, silence(), silence()], at(1), LEASE);
        assert_eq!(expiry.deadline(), mark(0));
        expiry.apply(&[silence(), Vote::Absent, silence()], at(1), LEASE);
        assert_eq!(expiry.deadline(), Tick::ZERO);
    }

    #[test]
    fn a_shorter_extend_does_not_shorten() {
        let mut expiry = VoteExpiry::new(&[yes()], at(0), LEASE);
        expiry.apply(&[yes()], at(1), Duration::from_secs(1));
        assert_eq!(expiry.deadline(), mark(0));
    }

    #[test]
    fn even_numbers_need_more_than_half() {
        let expiry = VoteExpiry::new(&[yes(), yes(), silence(), silence()], at(0), LEASE);
        assert_eq!(expiry.deadline(), Tick::ZERO);
    }

    #[test]
    fn a_round_that_extends_nothing_only_takes_away() {
        let mut expiry = VoteExpiry::new(&[yes(), yes(), yes()], at(0), LEASE);
        assert!(!expiry.is_incomplete());
        expiry.clear(&[yes(), Vote::Absent, silence()]);
        assert!(expiry.is_incomplete());
        assert_eq!(expiry.deadline(), mark(0));
        expiry.clear(&[yes(), silence(), Vote::Absent]);
        assert_eq!(expiry.deadline(), Tick::ZERO);
    }
}
