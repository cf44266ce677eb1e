//! Lists which keys are locks: one named key, or all keys, page by page.

use std::collections::BTreeMap;
use std::time::Duration;

use super::TypedCall;
use super::reply::{Reply, Value, left};
use super::script::Arg::{Number, Text};
use super::script::{Arg, Call, LIST};

/// The cursor of a node's first page.
pub(crate) const START: &str = "0";

/// The kind of a key that was not listed completely.
const MORE: &str = "more";
/// The kind of the entry that says how long the script ran.
const TOOK: &str = "took";

/// A holder, as one node names it. The kind can also mark other facts about a key (`list.lua`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) kind: String,
    /// In the form of its kind: that of a semaphore begins with the slot.
    pub(crate) token: String,
    pub(crate) remaining: Option<Duration>,
}

/// One page of a list. Reply: `{1, next cursor, key, kind, token, ms, …}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) next: String,
    pub(crate) listed: Vec<Listed>,
    /// Keys that need another call, by the number of their members that were listed.
    pub(crate) more: BTreeMap<u64, Vec<String>>,
    /// How long the server was busy with this call.
    pub(crate) took: Duration,
}

/// Lists what holds these keys, after the first `listed` members of each. `is_named`: a user has named them, and no
/// page has.
pub(crate) fn more(keys: &[&str], is_named: bool, listed: u64) -> TypedCall<Page> {
    let args = [Number(is_named.into()), Number(listed)];
    Call::new(&LIST, keys, &args).into()
}

/// The locks on one page of a node's keys. In a cluster, the server that serves `slot` is asked.
pub(crate) fn page(cursor: &str, patterns: &[String], slot: Option<usize>) -> TypedCall<Page> {
    let args: Vec<Arg<'_>> = [cursor].into_iter().chain(patterns.iter().map(String::as_str)).map(Text).collect();
    Call::at_slot(slot, Call::new(&LIST, &[], &args)).into()
}

impl Reply for Page {
    fn read(value: &Value) -> Option<Page> {
        let [Value::Int(1), next, holders @ ..] = value.items()? else { return None };
        let mut page = Page { next: next.text()?, ..Page::default() };
        for item in holders.chunks(4) {
            let [key, kind, token, Value::Int(ms)] = item else { return None };
            let (key, kind, token) = (key.text()?, kind.text()?, token.text()?);
            match kind.as_str() {
                MORE => page.more.entry(token.parse().ok()?).or_default().push(key),
                TOOK => page.took = Duration::from_micros(token.parse().ok()?),
                _ => page.listed.push(Listed { key, kind, token, remaining: left(*ms) }),
            }
        }
        Some(page)
    }
}
