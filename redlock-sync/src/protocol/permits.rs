//! The semaphore: a sorted set with one member for each permit that is lent (`lua/slots.lua`).
//!
//! A majority of counts is unsound: of 2 permits on 3 nodes, three holders could have A and B, B and C, A and C. So a
//! permit is a numbered slot, which each node lends to one token at a time. The token to which a majority lent the same
//! slot holds the permit. Each slot is a mutex, and one round asks for all slots. Slots that nodes lent in addition are
//! given back by the first renewal, or by the release.

use std::collections::HashSet;
use std::time::Duration;

use super::reply::{Acquired, Extended, Fenced, Holders, Released, Vote};
use super::script::Arg::{self, Number, Text};
use super::script::{Call, SEMAPHORE_ACQUIRE, SEMAPHORE_EXTEND, SEMAPHORE_FENCE, SEMAPHORE_RELEASE};
use super::{AcquireArgs, ReleaseArgs, TypedCall, millis, text};
use crate::key::Key;
use crate::options::{FENCE_LIFETIME, Kind, Mode};
use crate::token::LockId;

pub(super) const SEMAPHORE: Kind = Kind { name: "semaphore", mode: Mode::Shared };

/// Most permits of a semaphore, since a script reads all that are lent.
pub(crate) const MAX_PERMITS: u32 = 1024;

#[derive(Debug, Clone)]
pub(crate) struct Permits {
    pub(crate) key: Key,
    pub(crate) total: u32,
    /// How many permits an attempt wants. One, with several nodes.
    pub(crate) many: u32,
    /// True with several nodes.
    pub(crate) several: bool,
    /// How long a slot is reserved for a wait that was notified of it. Several nodes reserve none.
    pub(crate) reservation: Duration,
    /// The slot at which an attempt begins to search. `None`: its token decides.
    pub(crate) first: Option<u32>,
    /// The slots of a lease. Empty before there is one.
    pub(crate) slots: Vec<u32>,
}

impl Permits {
    /// Where the search begins. With several nodes, attempts at the same time should begin at different slots, and each
    /// attempt at the same slot on all nodes. A lease keeps its slots.
    fn first_slots(&self, id: &LockId) -> String {
        let hash = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(byte.into());
        match (self.slots.is_empty(), self.first) {
            (false, _) => self.slots_text(),
            (true, Some(first)) => first.to_string(),
            (true, None) if self.several => (id.as_str().bytes().fold(0, hash) % self.total).to_string(),
            (true, None) => "0".to_owned(),
        }
    }

    /// The slot that a node lends to an attempt that begins at `first`, if it has lent `lent`.
    fn search(&self, first: u32, lent: &HashSet<u32>) -> Option<u32> {
        (0..self.total).map(|at| (first + at) % self.total).find(|slot| !lent.contains(slot))
    }

    /// For how many ms a node reserves a slot. 0 tells it that there are several nodes.
    fn reserved_ms(&self) -> Arg<'static> {
        Number(if self.several { 0 } else { millis(self.reservation) })
    }

    fn slots_text(&self) -> String {
        let each: Vec<String> = self.slots.iter().map(u32::to_string).collect();
        each.join(" ")
    }

    /// The wait as the server queue stores it, with what it wants.
    fn stored_wait(&self, wait: Option<&str>) -> String {
        match wait {
            Some(wait) => format!("{wait} {} {}", self.total, self.many),
            None => String::new(),
        }
    }

    pub(crate) fn acquire(&self, attempt: &AcquireArgs<'_>) -> TypedCall<Acquired> {
        let (id, lease, wait) = (attempt.id, attempt.lease, attempt.wait);
        let keys = [self.key.as_str(), self.key.permit_queue(), self.key.fence()];
        let call = |args: &[Arg<'_>]| Call::of_token(&SEMAPHORE_ACQUIRE, Some(id), &keys, args).into();
        let (first, reserved) = (self.first_slots(id), self.reserved_ms());
        let usual = [Text(id.as_str()), Number(millis(lease)), Number(self.total.into()), Text(&first), reserved];
        if attempt.is_fast_path() && self.many == 1 && self.slots.is_empty() {
            return call(&usual);
        }
        let stored_wait = self.stored_wait(wait.map(|wait| wait.id));
        let mut args = usual.to_vec();
        args.extend(attempt.wait_and_fence(&stored_wait));
        let is_lease = !self.slots.is_empty();
        args.extend([Number(is_lease.into()), Number(self.many.into())]);
        call(&args)
    }

    pub(crate) fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        let args = [Text(id.as_str()), Number(millis(lease)), Text(&self.slots_text())];
        Call::of_token(&SEMAPHORE_EXTEND, Some(id), &[self.key.as_str()], &args).into()
    }

    /// The script decides which wait is next.
    pub(crate) fn release(&self, release: &ReleaseArgs<'_>) -> TypedCall<Released> {
        let ReleaseArgs { id, keep, wait, .. } = *release;
        let (slots, stored_wait) = (self.slots_text(), self.stored_wait(wait));
        let usual = [text(id), Text(&slots), Number(self.total.into()), self.reserved_ms()];
        let keys = [self.key.as_str(), self.key.permit_queue()];
        let call = |args: &[Arg<'_>]| Call::of_token(&SEMAPHORE_RELEASE, id, &keys, args).into();
        if wait.is_none() && keep.is_zero() {
            return call(&usual);
        }
        call(&[&usual[..], &[Text(&stored_wait), Number(millis(keep))]].concat())
    }

    pub(crate) fn fence(&self, id: &LockId, fence: Option<u64>) -> TypedCall<Fenced> {
        let slots = self.slots_text();
        let args = [Text(id.as_str()), Number(fence.unwrap_or(0)), Number(millis(FENCE_LIFETIME)), Text(&slots)];
        let keys = [self.key.as_str(), self.key.fence()];
        Call::of_token(&SEMAPHORE_FENCE, Some(id), &keys, &args).into()
    }

    /// Voids all yes votes but those for the slots that most nodes lent: votes count together only if they lent the
    /// same slots. Returns the semaphore of a lease that has those slots.
    pub(crate) fn choose(&self, votes: &mut [Vote<Acquired>]) -> Permits {
        let lent = |vote: &Vote<Acquired>| match vote {
            Vote::Yes(Acquired { slots, .. }) if !slots.is_empty() => Some(slots.clone()),
            _ => None,
        };
        let all: Vec<Vec<u32>> = votes.iter().filter_map(lent).collect();
        let most = all.iter().max_by_key(|slots| all.iter().filter(|other| other == slots).count());
        for vote in votes.iter_mut().filter(|vote| vote.is_yes()) {
            if most.is_none() || lent(vote).as_ref() != most {
                *vote = Vote::Void;
            }
        }
        Permits { slots: most.cloned().unwrap_or_default(), ..self.clone() }
    }

    /// An attempt to which a majority of the nodes would lend the same slot, judging by what they have lent. `None` if
    /// there is no such slot.
    pub(crate) fn with_common_slot(&self, lent: &[Vote<Holders>]) -> Option<Permits> {
        let slot = |(member, _): &(String, _)| member.split_once(' ')?.0.parse::<u32>().ok();
        let taken = |vote: &Vote<Holders>| match vote {
            Vote::Yes(all) => Some(all.iter().filter_map(slot).collect()),
            _ => None,
        };
        let nodes: Vec<HashSet<u32>> = lent.iter().filter_map(taken).collect();
        let agree = |first: &u32| {
            let found: Vec<u32> = nodes.iter().filter_map(|lent| self.search(*first, lent)).collect();
            found.iter().any(|slot| 2 * found.iter().filter(|other| *other == slot).count() > lent.len())
        };
        let first = (0..self.total).find(agree)?;
        Some(Permits { first: Some(first), ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::protocol::QueuePolicy;

    fn semaphore(several: bool) -> Permits {
        let key = Key::new("", "k").unwrap();
        Permits { key, total: 3, many: 1, several, reservation: Duration::from_secs(1), first: None, slots: vec![] }
    }

    fn yes(slots: &[u32]) -> Vote<Acquired> {
        Vote::Yes(Acquired { slots: slots.to_vec(), ..Acquired::default() })
    }

    #[test]
    fn only_votes_for_the_same_slots_count() {
        let chosen = |votes: &mut [Vote<Acquired>]| semaphore(true).choose(votes).slots;
        let mut votes = [yes(&[2]), yes(&[0]), yes(&[2]), Vote::Absent, yes(&[1])];
        assert_eq!(chosen(&mut votes), [2]);
        assert_eq!(votes, [yes(&[2]), Vote::Void, yes(&[2]), Vote::Absent, Vote::Void]);
        let mut none = [Vote::Absent, Vote::Yes(Acquired::default())];
        assert_eq!(chosen(&mut none), [0; 0]);
        assert_eq!(none, [Vote::Absent, Vote::Void], "a yes without a slot is none");
    }

    #[test]
    fn a_retry_begins_where_a_majority_has_a_free_slot() {
        let lent = |slots: &[u32]| Vote::Yes(slots.iter().map(|slot| (format!("{slot} token"), None)).collect());
        let retry = |votes: &[Vote<Holders>]| {
            semaphore(true).with_common_slot(votes).map(|lock| lock.acquire(&attempt()).call.args()[3].clone())
        };
        // Attempts that begin at 0 are lent 1, 2 and 0.
        assert_eq!(retry(&[lent(&[0]), lent(&[0, 1]), lent(&[1])]).as_deref(), Some("1"));
        assert_eq!(retry(&[lent(&[0]), Vote::Absent, lent(&[1])]).as_deref(), Some("2"));
        assert_eq!(retry(&[lent(&[0, 1]), lent(&[1, 2]), lent(&[0, 2])]), None);
    }

    fn attempt() -> AcquireArgs<'static> {
        static ID: LazyLock<LockId> = LazyLock::new(|| LockId::from_server("t"));
        AcquireArgs {
            id: &ID,
            lease: Duration::from_secs(1),
            fence: None,
            wait: None,
            policy: QueuePolicy::None,
            take_over: &[],
        }
    }

    #[test]
    fn attempts_begin_at_different_slots_of_several_nodes_and_a_lease_stays_with_its_own() {
        let first = |lock: &Permits, token| lock.first_slots(&LockId::from_server(token));
        let mut begins = ["a", "b", "c"].map(|token| first(&semaphore(true), token));
        begins.sort();
        assert_eq!(begins, ["0", "1", "2"]);
        assert_eq!(first(&semaphore(false), "b"), "0");
        assert_eq!(first(&Permits { slots: vec![2], ..semaphore(true) }, "a"), "2");
    }
}
