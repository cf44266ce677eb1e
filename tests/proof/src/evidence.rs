//! From what a client concludes that it holds the lock. Both models use these functions, and so does the simulation of
//! the library, which knows each message.

use crate::scripts::Reply;
use crate::single::Rule;

/// The moment at which fewer than `need` servers surely keep the token. One mark for each server: until then, it does.
pub fn deadline<T: Ord + Copy>(marks: &mut [T], need: usize) -> Option<T> {
    marks.sort_unstable_by(|a, b| b.cmp(a));
    marks.get(need.checked_sub(1)?).copied()
}

/// Whether a grant to the wait may still be the lock without an attempt, after an attempt of the wait that got this
/// reply, or none. `was_queued`: an earlier attempt has found the wait in the queue.
pub fn stays_certain(reply: Option<Reply>, is_duplicate: bool, was_queued: bool, obeys: impl Fn(Rule) -> bool) -> bool {
    let is_no = reply.is_some_and(Reply::is_no);
    let is_as_expected = match reply {
        Some(Reply::New) => !was_queued,
        Some(Reply::Kept) => was_queued,
        _ => true,
    };
    (is_no || !obeys(Rule::CleanNoes))
        && (!is_duplicate || !obeys(Rule::NoDuplicate))
        && (is_as_expected || !obeys(Rule::Places))
}
