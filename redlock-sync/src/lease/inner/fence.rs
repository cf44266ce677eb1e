//! Fencing tokens.

use super::{LeaseInner, RoundState};
use crate::error::Error;
use crate::protocol::reply::{Fenced, Vote};

impl LeaseInner {
    /// The fencing token. With one node, it is the value of the counter. With several, it is the largest among our
    /// votes, once a majority that still has our token has stored it. Without that, it would not rise from one majority
    /// to the next. With `fenced(true)` the acquire has raised the counter. Otherwise, and for a lock that was passed
    /// on in this process, a round is made here.
    pub(crate) fn fencing_token(&self) -> Result<u64, Error> {
        self.still_ours()?;
        let mut rounds = self.rounds.lock();
        if let Some(fence) = rounds.fence {
            return Ok(fence);
        }
        self.still_ours()?;
        let fence = rounds.offered_fence.map_or_else(|| self.fence_round(&mut rounds, None), Ok)?;
        if self.quorum.len() > 1 {
            self.fence_round(&mut rounds, Some(fence))?;
        }
        rounds.fence = Some(fence);
        Ok(fence)
    }

    /// Raises the counters to `fence`, or to their next values. Returns the largest value that a majority has now.
    fn fence_round(&self, rounds: &mut RoundState, fence: Option<u64>) -> Result<u64, Error> {
        let Some(call) = self.protocol().lock().map(|lock| lock.fence(&self.id, fence)) else {
            let kind = self.protocol().kind().name;
            return Err(Error::config(format!("lock `{}` has no fencing tokens: it is a {kind}", self.key)));
        };
        let mut ballot = self.quorum.quick_round_of_voters(&call, self.quorum.round_deadline());
        // A node that just restarted may have forgotten an earlier holder's fence, as it may have forgotten a lock.
        self.quorum.disqualify_restarted(&mut ballot.votes);
        self.record_losses(rounds, &ballot);
        self.round_result("fence", &ballot)?;
        let fence = |vote: &Vote<Fenced>| if let Vote::Yes(Fenced(fence)) = vote { *fence } else { 0 };
        Ok(ballot.votes.iter().map(fence).max().unwrap_or_default())
    }
}
