//! What `redlock doctor --try` needs besides the public API.

use super::Redlock;
use crate::error::Error;
use crate::names::{HELPERS, OF_QUEUES, helper};
use crate::protocol::TypedCall;
use crate::protocol::reply::Vote;
use crate::protocol::script::{Call, REMOVE_KEYS, Script};
use crate::token::random_part;

/// True if this client is subscribed to its notifications.
pub(crate) fn listens(locks: &Redlock) -> bool {
    locks.inner.listener.listens()
}

/// Ends all keys that locks, latches, marks and a queue of this name have, on each node, by a script that no server has
/// seen before: it has a random comment. Returns how many keys there were. The script stays in memory. With several
/// nodes, the keys of one that does not answer end by themselves.
pub(crate) fn remove_keys(locks: &Redlock, name: &str) -> Result<u64, Error> {
    let quorum = &locks.inner.quorum;
    let key = locks.key(&name)?;
    let text = format!("{}-- {}\n", REMOVE_KEYS.source, random_part()?);
    let script: &'static Script = Box::leak(Box::new(Script::new(REMOVE_KEYS.operation, &text)));
    let helpers = HELPERS.iter().chain(&OF_QUEUES).map(|suffix| helper(key.as_str(), suffix));
    let of_mark = key.done().latch_waits();
    let keys: Vec<String> = [key.as_str().to_owned(), of_mark].into_iter().chain(helpers).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let call: TypedCall<u64> = Call::new(script, &names, &[]).into();
    let ballot = quorum.round(&call, quorum.round_deadline());
    if !ballot.is_answered() {
        return Err(quorum.failed(script.operation, key.as_str(), &ballot));
    }
    Ok(ballot.votes.iter().map(|vote| if let Vote::Yes(removed) = vote { *removed } else { 0 }).sum())
}
