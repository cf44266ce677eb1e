//! Which connection of a server has unanswered calls about a key. A call about the same key goes over the same one: so calls about a key are executed in the
//! order in which they are written.
//!
//! A word for each of 256 groups of keys: how many calls of the group are unanswered, and on which connection. Keys of a group share a connection, which
//! costs a little and breaks nothing. Nothing is locked and nothing allocated.
//!
//! A group can leave a connection on which its calls are unanswered, and come back to it. Each choice of a connection has a number, so that the end of a call
//! from before takes nothing from the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GROUPS: usize = 256;
/// The number of a connection stands above the count.
const PIPE: u32 = 32;
const COUNT: u64 = (1 << 20) - 1;
/// The number of the choice stands between the two.
const CHOICE: u64 = (1 << PIPE) - 1 - COUNT;

#[derive(Debug)]
pub(crate) struct Table(Box<[AtomicU64; GROUPS]>);

/// A call that is not answered.
#[derive(Debug)]
pub(crate) struct Claim {
    table: Arc<Table>,
    group: usize,
    /// The connection and the choice, as they stand in the word.
    chosen: u64,
}

impl Table {
    pub(crate) fn new() -> Arc<Table> {
        Arc::new(Table(Box::new([const { AtomicU64::new(0) }; GROUPS])))
    }

    /// The group to which a key belongs: FNV-1a.
    pub(crate) fn group_of(key: &[u8]) -> usize {
        let hash = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        usize::from((hash ^ (hash >> 32)).to_le_bytes()[0])
    }

    fn word(&self, group: usize) -> Option<&AtomicU64> {
        self.0.get(group)
    }

    /// Notes a call of this group. It has to go over the connection that `choose` returns, to which the number is given of the one that has unanswered
    /// calls of the group; if that is of no more use, it chooses another one.
    pub(crate) fn claim<T>(
        self: &Arc<Self>,
        group: usize,
        mut choose: impl FnMut(Option<u32>) -> Option<(u32, T)>,
    ) -> Option<(Claim, T)> {
        let word = self.word(group)?;
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let busy = (seen & COUNT > 0).then(|| u32::try_from(seen >> PIPE).unwrap_or(0));
            let (pipe, chosen) = choose(busy)?;
            let anew = || u64::from(pipe) << PIPE | seen.wrapping_add(COUNT + 1) & CHOICE | 1;
            let new = if busy == Some(pipe) { seen + 1 } else { anew() };
            match word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((Claim { table: Arc::clone(self), group, chosen: new & !COUNT }, chosen)),
                Err(other) => seen = other,
            }
        }
    }
}

impl Claim {
    pub(super) fn group(&self) -> usize {
        self.group
    }
}

impl Drop for Claim {
    /// The call is answered, or its connection is over. What was noted of another connection since then stays.
    fn drop(&mut self) {
        let answered = |word: u64| {
            let is_mine = word & !COUNT == self.chosen && word & COUNT > 0;
            is_mine.then(|| word - 1)
        };
        if let Some(word) = self.table.word(self.group) {
            _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection with that number, or the one that has unanswered calls.
    fn claim(table: &Arc<Table>, else_over: u32) -> (Claim, u32) {
        let (claim, pipe) =
            table.claim(7, |busy| Some((busy.unwrap_or(else_over), busy.unwrap_or(else_over)))).unwrap();
        (claim, pipe)
    }

    #[test]
    fn calls_of_a_group_share_a_connection_until_all_are_answered() {
        let table = Table::new();
        let (first, second) = (claim(&table, 1), claim(&table, 2));
        assert_eq!((first.1, second.1), (1, 1));
        drop(first);
        assert_eq!(claim(&table, 2).1, 1);
        drop(second);
        assert_eq!(claim(&table, 2).1, 2);
    }

    #[test]
    fn another_connection_in_place_of_one_that_is_over() {
        let table = Table::new();
        let old = claim(&table, 1);
        let new = table.claim(7, |busy| (busy == Some(1)).then_some((2, ()))).unwrap();
        drop(old);
        assert_eq!(claim(&table, 3).1, 2, "the end of the old call takes nothing from the new one");
        drop(new);
        assert_eq!(claim(&table, 3).1, 3);
    }

    #[test]
    fn a_connection_that_is_chosen_again() {
        let table = Table::new();
        let choose = |pipe| table.claim(7, |_| Some((pipe, ()))).unwrap().0;
        let old = choose(1);
        drop(choose(2));
        let new = choose(1);
        drop(old);
        assert_eq!(claim(&table, 3).1, 1, "the end of the old call takes nothing from the new one");
        drop(new);
        assert_eq!(claim(&table, 3).1, 3);
    }

    #[test]
    fn keys_are_spread() {
        let mut groups: Vec<usize> = (0..1000).map(|n| Table::group_of(format!("lock:{n}").as_bytes())).collect();
        groups.sort_unstable();
        groups.dedup();
        assert!(groups.len() > 200, "{}", groups.len());
    }
}
