//! Chooses a connection for each key. While a call about a key is unanswered, further calls about it go over the same
//! connection. So they are executed in the order in which they were written.
//!
//! Keys are hashed into 256 groups. Each group has one word with the number of its unanswered calls and their
//! connection. Keys of a group share a connection, which costs little and does no harm. The table needs no locks and no
//! allocations.
//!
//! A group can leave a connection while its calls are unanswered there, and come back later. So each choice of a
//! connection has a number. A call of an earlier choice does not decrement the count of a later one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::names;

const GROUPS: usize = 256;
/// The shift of the connection's number, which is above the choice.
const PIPE: u32 = 32;
const COUNT: u64 = (1 << 20) - 1;
/// The bits of the choice's number, which is between the connection and the count.
const CHOICE: u64 = (1 << PIPE) - 1 - COUNT;

/// The words of the groups.
///
/// [`Table::count`] and the drop of [`UnansweredCall`] change a word in one step, and pair with each other. A thread
/// that reads a count of zero sends its call after the end of the last counted call. Otherwise the server could execute
/// the two in the other order.
#[derive(Debug)]
pub(crate) struct Table(Box<[AtomicU64; GROUPS]>);

/// An unanswered call. Dropping it decrements the count of its group.
#[derive(Debug)]
pub(crate) struct UnansweredCall {
    table: Arc<Table>,
    pub(super) group: usize,
    /// The connection and the choice, as in the word.
    chosen: u64,
}

impl Table {
    pub(crate) fn new() -> Arc<Table> {
        Arc::new(Table(Box::new([const { AtomicU64::new(0) }; GROUPS])))
    }

    /// The group of a key: its hash, folded.
    pub(crate) fn group_of(key: &[u8]) -> usize {
        let hash = names::hash(key);
        usize::from((hash ^ (hash >> 32)).to_le_bytes()[0])
    }

    /// Counts a call of this group. `choose` gets the number of the connection with unanswered calls of the group. It
    /// returns that number, or another one if that connection cannot be used.
    pub(crate) fn count<T>(
        self: &Arc<Self>,
        group: usize,
        mut choose: impl FnMut(Option<u32>) -> Option<(u32, T)>,
    ) -> Option<(UnansweredCall, T)> {
        let word = self.0.get(group)?;
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let busy = (seen & COUNT > 0).then(|| u32::try_from(seen >> PIPE).unwrap_or(0));
            let (pipe, chosen) = choose(busy)?;
            let anew = || u64::from(pipe) << PIPE | seen.wrapping_add(COUNT + 1) & CHOICE | 1;
            let new = if busy == Some(pipe) { seen + 1 } else { anew() };
            match word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    return Some((UnansweredCall { table: Arc::clone(self), group, chosen: new & !COUNT }, chosen));
                }
                Err(other) => seen = other,
            }
        }
    }
}

impl Drop for UnansweredCall {
    /// Decrements the count, unless the group has been assigned to a connection anew since then.
    fn drop(&mut self) {
        let answered = |word: u64| {
            let is_mine = word & !COUNT == self.chosen && word & COUNT > 0;
            is_mine.then(|| word - 1)
        };
        if let Some(word) = self.table.0.get(self.group) {
            _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a call on the busy connection, or on this one if there is none.
    fn count(table: &Arc<Table>, else_over: u32) -> (UnansweredCall, u32) {
        let (call, pipe) = table.count(7, |busy| Some((busy.unwrap_or(else_over), busy.unwrap_or(else_over)))).unwrap();
        (call, pipe)
    }

    #[test]
    fn calls_of_a_group_share_a_connection_until_all_are_answered() {
        let table = Table::new();
        let (first, second) = (count(&table, 1), count(&table, 2));
        assert_eq!((first.1, second.1), (1, 1));
        drop(first);
        assert_eq!(count(&table, 2).1, 1);
        drop(second);
        assert_eq!(count(&table, 2).1, 2);
    }

    #[test]
    fn another_connection_in_place_of_one_that_is_over() {
        let table = Table::new();
        let old = count(&table, 1);
        let new = table.count(7, |busy| (busy == Some(1)).then_some((2, ()))).unwrap();
        drop(old);
        assert_eq!(count(&table, 3).1, 2, "the end of the old call takes nothing from the new one");
        drop(new);
        assert_eq!(count(&table, 3).1, 3);
    }

    #[test]
    fn a_connection_that_is_chosen_again() {
        let table = Table::new();
        let choose = |pipe| table.count(7, |_| Some((pipe, ()))).unwrap().0;
        let old = choose(1);
        drop(choose(2));
        let new = choose(1);
        drop(old);
        assert_eq!(count(&table, 3).1, 1, "the end of the old call takes nothing from the new one");
        drop(new);
        assert_eq!(count(&table, 3).1, 3);
    }

    #[test]
    fn keys_are_spread() {
        let mut groups: Vec<usize> = (0..1000).map(|n| Table::group_of(format!("lock:{n}").as_bytes())).collect();
        groups.sort_unstable();
        groups.dedup();
        assert!(groups.len() > 200, "{}", groups.len());
    }
}
