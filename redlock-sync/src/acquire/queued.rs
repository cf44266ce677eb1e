//! A wait as the servers know it, and what its attempts have learned of its place in their queues.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::config::QUEUE_LIFETIME;
use crate::ear::{self, Ear};
use crate::error::Error;
use crate::primitive::Entry;
use crate::quorum::{Ballot, Place, Vote};
use crate::token::random_part;

/// A wait for other processes.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) ear: ear::Wait,
    /// Its name in the queues; none until its client listens, or is known not to.
    pub(super) id: Option<Arc<str>>,
    /// The subscription that its last attempt knew of.
    pub(super) since: u64,
}

impl Queued {
    pub(super) fn begin(ear: &Arc<Ear>) -> Queued {
        Queued { ear: ear.begin(), id: None, since: 0 }
    }

    /// Its client cannot be told anything: the wait looks by itself.
    pub(super) fn polls(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.starts_with('-'))
    }

    /// The id for the next attempt, if the wait can enter a queue now. Another than before where the client listens elsewhere.
    pub(super) fn next_id(&mut self) -> Result<Option<Arc<str>>, Error> {
        if let Some(place) = self.ear.place() {
            self.since = place.since;
            if let Some(id) = self.id.as_ref().filter(|id| id.split('/').next() == Some(&*place.channel)) {
                return Ok(Some(Arc::clone(id)));
            }
            return Ok(Some(format!("{}/{}", place.channel, self.ear.number()).into()));
        }
        if self.ear.polls() && !self.polls() {
            return Ok(Some(format!("-{}", random_part()?).into()));
        }
        Ok(self.id.clone())
    }

    /// What an attempt says of the wait.
    pub(super) fn entry(id: &str, is_last: bool) -> Entry<'_> {
        Entry { id, stays: if is_last { Duration::ZERO } else { QUEUE_LIFETIME } }
    }

    /// The node where its client listens.
    pub(super) fn node(&self) -> Option<usize> {
        self.ear.place().map(|place| place.node)
    }

    /// True if the client has subscribed anew since the last attempt: what was pushed in between is lost.
    pub(super) fn is_outdated(&self) -> bool {
        self.ear.place().is_some_and(|place| place.since != self.since)
    }
}

/// What is known of a wait's entry on one node. Pure.
///
/// A grant that is pushed to the wait is the lock as it stands only if the entry was there without a gap from the first marking attempt until the
/// grant took it, and if no attempt can still take the key from the grant.
#[derive(Debug)]
pub(super) struct Standing {
    /// A grant to this wait was made after this moment: the start of the last attempt that found the entry.
    anchor: Option<Tick>,
    /// Each attempt was answered by a clean no.
    is_certain: bool,
    /// A copy of an attempt may enter the wait, or leave it there, when it is over.
    pub(super) is_haunted: bool,
}

impl Standing {
    pub(super) fn new() -> Standing {
        Standing { anchor: None, is_certain: true, is_haunted: false }
    }

    /// No grant to the wait is the lock as it stands.
    pub(super) fn distrust(&mut self) {
        self.is_certain = false;
    }

    /// True if the wait may be in a queue.
    pub(super) fn may_be_queued(&self) -> bool {
        self.anchor.is_some() || self.is_haunted
    }

    /// Since when a grant to the wait surely holds, if it surely does.
    pub(super) fn grant_since(&self) -> Option<Tick> {
        self.anchor.filter(|_| self.is_certain)
    }

    /// Takes over what an attempt without success has learned. `marks` if it named the wait.
    pub(super) fn note(&mut self, ballot: &Ballot, marks: bool) {
        let is_clean = |vote: &Vote| matches!(vote, Vote::Taken { .. });
        let is_unknown = ballot.is_haunted();
        self.is_certain &= !ballot.ghost && ballot.votes.iter().all(is_clean);
        self.is_haunted |= marks && is_unknown;
        for vote in &ballot.votes {
            match vote {
                Vote::Taken { place: Place::Nowhere, .. } => {}
                Vote::Taken { place, .. } => {
                    // It entered a second time: the entry was taken out in between, by a grant of which this wait was not told.
                    self.is_certain &= (*place == Place::New) == self.anchor.is_none();
                    self.anchor = Some(ballot.started);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Executed, Failure, Trouble};

    fn no(place: Place) -> Vote {
        Vote::Taken { token: "t".into(), ttl: None, place }
    }

    fn after(attempts: &[(u64, Vote, bool)]) -> Standing {
        let mut standing = Standing::new();
        for (at, vote, ghost) in attempts {
            let started = Tick::from_nanos(*at);
            standing.note(&Ballot { votes: vec![vote.clone()], started, ghost: *ghost }, true);
        }
        standing
    }

    #[test]
    fn a_grant_is_the_lock_only_after_clean_noes_to_an_entry_that_was_never_missing() {
        use Place::{Kept, New, Nowhere};
        let since = |attempts: &[(u64, Vote, bool)]| after(attempts).grant_since();
        assert_eq!(since(&[]), None);
        assert_eq!(since(&[(1, no(Nowhere), false)]), None);
        assert_eq!(since(&[(1, no(New), false)]), Some(Tick::from_nanos(1)));
        assert_eq!(since(&[(1, no(New), false), (2, no(Kept), false)]), Some(Tick::from_nanos(2)));
        assert_eq!(since(&[(1, no(New), false), (2, no(New), false)]), None, "the entry was gone in between");
        assert_eq!(since(&[(1, no(Kept), false)]), None, "a copy has entered it");
        assert_eq!(since(&[(1, no(New), true)]), None, "a copy may still take the grant");
        assert_eq!(since(&[(1, Vote::Yes { fence: 0 }, false), (2, no(New), false)]), None, "it is taken back");
        let unknown =
            Vote::Failed(Failure { trouble: Trouble::TimedOut, executed: Executed::Maybe, message: String::new() });
        let lost = after(&[(1, unknown, false), (2, no(New), false)]);
        assert_eq!((lost.grant_since(), lost.is_haunted), (None, true));
    }
}
