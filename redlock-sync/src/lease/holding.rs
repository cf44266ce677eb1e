//! Which nodes hold our token, and until when the majority of them surely does. Pure.

use std::time::Duration;

use crate::clock::Tick;
use crate::config::drift;
use crate::quorum::{Tally, Vote};

/// Per node a mark: the moment until which it grants the lock to no other token, by this process's clock.
///
/// A yes to a call sent at `T1` keeps the key for `ttl` after some moment later than `T1`; less the drift of the clocks, that is
/// at least until `T1 + ttl - drift`. An extend never shortens, so a later yes never lowers the mark; a definite no clears it; silence leaves it. A
/// rival needs a majority, so the lock is held until the number of marked nodes falls below a majority: until the mark that ranks `need`-th
/// from the latest. So two rounds without a majority that each reached another node can lengthen the lease together.
#[derive(Debug, Clone)]
pub(crate) struct Holding {
    until: Vec<Tick>,
    fence: u64,
}

impl Holding {
    /// From the votes of an acquire round.
    pub(crate) fn new(votes: &[Vote], started: Tick, lease: Duration) -> Holding {
        let mut holding = Holding { until: vec![Tick::ZERO; votes.len()], fence: 0 };
        holding.apply(votes, started, lease);
        holding
    }

    /// Adds the votes of a later round.
    pub(crate) fn apply(&mut self, votes: &[Vote], started: Tick, lease: Duration) {
        let mark = started.after(lease).before(drift(lease));
        for (until, vote) in self.until.iter_mut().zip(votes) {
            if let Vote::Yes { fence } = vote {
                *until = (*until).max(mark);
                self.fence = self.fence.max(*fence);
            } else if vote.is_definite_no() {
                *until = Tick::ZERO;
            }
        }
    }

    /// Takes only what is lost from the votes of a round that lengthened nothing.
    pub(crate) fn clear(&mut self, votes: &[Vote]) {
        for (until, _) in self.until.iter_mut().zip(votes).filter(|(_, vote)| vote.is_definite_no()) {
            *until = Tick::ZERO;
        }
    }

    /// Until when the lock is surely held.
    pub(crate) fn deadline(&self) -> Tick {
        let mut marks = self.until.clone();
        marks.sort_unstable_by(|a, b| b.cmp(a));
        marks.get(Tally::need(marks.len()) - 1).copied().unwrap_or(Tick::ZERO)
    }

    /// The largest fence that a node which voted for us gave out.
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// The same nodes for as long, for a holder that has yet to ask for a fence.
    pub(crate) fn without_fence(&self) -> Holding {
        Holding { until: self.until.clone(), fence: 0 }
    }

    /// True if some node does not hold our token as far as we know: a spare vote is missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.until.contains(&Tick::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Executed, Failure, Trouble};

    const LEASE: Duration = Duration::from_secs(10);

    fn yes(fence: u64) -> Vote {
        Vote::Yes { fence }
    }

    fn silence() -> Vote {
        Vote::Failed(Failure { trouble: Trouble::TimedOut, executed: Executed::Maybe, message: String::new() })
    }

    fn at(secs: u64) -> Tick {
        Tick::ZERO.after(Duration::from_secs(secs))
    }

    fn mark(secs: u64) -> Tick {
        at(secs).after(LEASE).before(drift(LEASE))
    }

    #[test]
    fn the_deadline_is_that_of_the_majority() {
        let mut holding = Holding::new(&[yes(3), yes(5), silence()], at(0), LEASE);
        assert_eq!(holding.deadline(), mark(0));
        assert_eq!(holding.fence(), 5);
        assert!(holding.is_incomplete());
        holding.apply(&[yes(0), silence(), silence()], at(3), LEASE);
        assert_eq!(holding.deadline(), mark(0), "one node alone lengthens nothing");
        holding.apply(&[silence(), yes(0), silence()], at(4), LEASE);
        assert_eq!(holding.deadline(), mark(3), "each of two nodes keeps it at least until the earlier mark");
    }

    #[test]
    fn definite_noes_lose_at_once_and_silence_does_not() {
        let mut holding = Holding::new(&[yes(1), yes(1), yes(1)], at(0), LEASE);
        holding.apply(&[Vote::Absent, silence(), silence()], at(1), LEASE);
        assert_eq!(holding.deadline(), mark(0));
        holding.apply(&[silence(), Vote::Absent, silence()], at(1), LEASE);
        assert_eq!(holding.deadline(), Tick::ZERO);
    }

    #[test]
    fn a_shorter_extend_does_not_shorten() {
        let mut holding = Holding::new(&[yes(1)], at(0), LEASE);
        holding.apply(&[yes(0)], at(1), Duration::from_secs(1));
        assert_eq!(holding.deadline(), mark(0));
    }

    #[test]
    fn even_numbers_need_more_than_half() {
        let holding = Holding::new(&[yes(1), yes(1), silence(), silence()], at(0), LEASE);
        assert_eq!(holding.deadline(), Tick::ZERO);
    }

    #[test]
    fn a_round_that_lengthens_nothing_only_takes_away() {
        let mut holding = Holding::new(&[yes(1), yes(1), yes(1)], at(0), LEASE);
        assert!(!holding.is_incomplete());
        holding.clear(&[yes(9), Vote::Absent, silence()]);
        assert!(holding.is_incomplete());
        assert_eq!((holding.deadline(), holding.fence()), (mark(0), 1));
        holding.clear(&[yes(9), silence(), Vote::Absent]);
        assert_eq!(holding.deadline(), Tick::ZERO);
    }

    #[test]
    fn a_successor_holds_as_long_and_has_no_fence_yet() {
        let successor = Holding::new(&[yes(7), yes(8), silence()], at(2), LEASE).without_fence();
        assert_eq!((successor.deadline(), successor.fence()), (mark(2), 0));
        assert!(successor.is_incomplete());
    }
}
