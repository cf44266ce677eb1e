//! An attempt that did not take the lock.

use std::time::Duration;

use super::Ballot;
use crate::error::Error;
use crate::protocol::reply::{Acquired, Vote};

/// The error of such an attempt, with the votes that caused it.
pub(crate) struct Refusal {
    pub(crate) error: Error,
    /// The votes, if the attempt was sent.
    pub(crate) ballot: Option<Ballot<Acquired>>,
}

impl Refusal {
    /// True if the lock is free on some node, but reserved for waits in its queue.
    pub(crate) fn is_queued(&self) -> bool {
        let is_queued = |vote: &Vote<_>| matches!(vote, Vote::Taken { token, .. } if token.is_empty());
        self.error.is_busy() && self.ballot.as_ref().is_some_and(|ballot| ballot.votes.iter().any(is_queued))
    }

    /// True if every node said a definite no and no copy of the attempt may be executed later. Then the attempt has set
    /// nothing.
    pub(crate) fn is_clean(&self) -> bool {
        self.ballot.as_ref().is_some_and(|ballot| !ballot.duplicate && ballot.votes.iter().all(Vote::is_definite_no))
    }

    /// After how long a majority of the nodes can be free, if they said so.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        if let Error::Busy { expires_in, .. } = self.error { expires_in } else { None }
    }
}

impl From<Error> for Box<Refusal> {
    fn from(error: Error) -> Box<Refusal> {
        Box::new(Refusal { error, ballot: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Tick;

    fn refusal(error: Error, votes: Vec<Vote<Acquired>>) -> Refusal {
        Refusal { error, ballot: Some(Ballot { votes: votes.into(), started: Tick::ZERO, duplicate: false }) }
    }

    #[test]
    fn a_refusal_tells_if_others_wait_for_a_free_lock_and_if_it_is_clean() {
        let busy = || Error::Busy { key: "k".into(), expires_in: None, by_this_thread: false, is_latch: false };
        let free = || Vote::taken(String::new(), Some(Duration::ZERO));
        let held = || Vote::taken("t".to_owned(), None);
        assert!(refusal(busy(), vec![held(), free(), Vote::Absent]).is_queued());
        assert!(!refusal(busy(), vec![held(), held(), Vote::Absent]).is_queued());
        assert!(!refusal(Error::Closed, vec![free()]).is_queued());
        assert!(!Refusal { error: busy(), ballot: None }.is_queued());
        assert!(refusal(busy(), vec![held(), free()]).is_clean());
        assert!(!refusal(busy(), vec![held(), Vote::Yes(Acquired::default())]).is_clean());
        assert!(!Refusal { error: busy(), ballot: None }.is_clean());
    }
}
