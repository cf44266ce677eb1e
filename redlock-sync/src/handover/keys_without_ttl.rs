//! Keys without a time-to-live, such as a program leaves that stopped between `SETNX` and `EXPIRE`. Pure.

use std::time::Duration;

use crate::clock::Tick;
use crate::protocol::reply::{Acquired, Vote};
use crate::quorum::Ballot;
use crate::token::LockId;

/// The values of keys without a time-to-live, each with the moment since when it has been seen unchanged.
#[derive(Debug, Default)]
pub(crate) struct KeysWithoutTtl(Vec<(String, Tick)>);

impl KeysWithoutTtl {
    /// Records what an attempt has found. The values count from the start of its ballot.
    pub(crate) fn record(&mut self, ballot: &Ballot<Acquired>) {
        let value = |vote: &Vote<Acquired>| match vote {
            Vote::Taken { token, ttl: None, .. } if !token.is_empty() => Some(token.clone()),
            _ => None,
        };
        let seen: Vec<String> = ballot.votes.iter().filter_map(value).collect();
        self.0.retain(|(value, _)| seen.contains(value));
        for value in seen {
            if self.0.iter().all(|(known, _)| *known != value) {
                self.0.push((value, ballot.started));
            }
        }
    }

    /// The values that have not changed for this long. They have the form `!value`: `acquire.lua` takes such a key over
    /// only while it has no time-to-live.
    pub(crate) fn unchanged_for(&self, long: Duration, now: Tick) -> impl Iterator<Item = LockId> {
        let old = self.0.iter().filter(move |(_, since)| now.since(*since) >= long);
        old.map(|(value, _)| LockId::from_server(&format!("!{value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Tick {
        Tick::ZERO.after(SECOND * seconds)
    }

    fn seen(seconds: u32, votes: Vec<Vote<Acquired>>) -> Ballot<Acquired> {
        Ballot { votes: votes.into(), started: at(seconds), duplicate: false }
    }

    fn without_ttl(value: &str) -> Vote<Acquired> {
        Vote::taken(value.to_owned(), None)
    }

    fn old(keys: &KeysWithoutTtl, now: u32) -> Vec<String> {
        keys.unchanged_for(SECOND * 10, at(now)).map(|id| id.as_str().to_owned()).collect()
    }

    #[test]
    fn a_value_counts_from_when_it_was_first_seen_without_a_gap() {
        let mut keys = KeysWithoutTtl::default();
        keys.record(&seen(1, vec![without_ttl("a"), without_ttl("b"), Vote::Absent]));
        keys.record(&seen(5, vec![without_ttl("a"), without_ttl("c"), without_ttl("a")]));
        assert!(old(&keys, 10).is_empty());
        assert_eq!(old(&keys, 11), ["!a"]);
        assert_eq!(old(&keys, 15), ["!a", "!c"]);
        // In between, the key had a time to live, so a holder has set it.
        keys.record(&seen(16, vec![Vote::taken("a".to_owned(), Some(SECOND)), without_ttl("c")]));
        assert_eq!(old(&keys, 30), ["!c"]);
    }

    #[test]
    fn a_free_lock_that_others_wait_for_is_no_such_key() {
        let mut keys = KeysWithoutTtl::default();
        keys.record(&seen(1, vec![without_ttl("")]));
        assert!(old(&keys, 99).is_empty());
    }
}
