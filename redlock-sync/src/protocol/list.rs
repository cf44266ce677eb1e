//! Which keys are locks: of one key, or of all, page by page.

use std::collections::BTreeMap;
use std::time::Duration;

use super::TypedCall;
use super::reply::{Reply, Value, left, text};
use super::script::Arg::{Number, Text};
use super::script::{Arg, Call, LIST, Purpose};
use crate::key::Key;

/// Where a node's keys begin.
pub(crate) const START: &str = "0";

/// The kind of a key of which not all was told.
const MORE: &str = "more";
/// The kind of what tells how long the script ran.
const TOOK: &str = "took";

/// A holder as one node names it; or, by its kind, what `list.lua` tells of a key beside its holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) kind: String,
    /// As the kind writes it: that of a semaphore begins with the slot.
    pub(crate) token: String,
    pub(crate) remaining: Option<Duration>,
}

/// `{1, next cursor, key, kind, token, ms, …}`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) next: String,
    pub(crate) listed: Vec<Listed>,
    /// Keys that are to be asked for, by how many of their members were told.
    pub(crate) more: BTreeMap<u64, Vec<String>>,
    /// For how long the server was busy with it.
    pub(crate) took: Duration,
}

/// What holds that key.
pub(crate) fn of_key(key: &Key) -> TypedCall<Page> {
    more(&[key.as_str()], true, 0)
}

/// What holds these keys, behind so many of their members. A user has named them, or a page.
pub(crate) fn more(keys: &[&str], is_named: bool, told: u64) -> TypedCall<Page> {
    let args = [Number(is_named.into()), Number(told)];
    Call::new(&LIST, Purpose::Other, None, Duration::ZERO, keys, &args).into()
}

/// The locks on a page of a node's keys; of a cluster, of the server that serves the slot.
pub(crate) fn page(cursor: &str, patterns: &[String], slot: Option<usize>) -> TypedCall<Page> {
    let args: Vec<Arg<'_>> = [cursor].into_iter().chain(patterns.iter().map(String::as_str)).map(Text).collect();
    Call::at_slot(slot, Call::new(&LIST, Purpose::Other, None, Duration::ZERO, &[], &args)).into()
}

impl Reply for Page {
    fn read(value: &Value) -> Option<Page> {
        let Value::List(items) = value else { return None };
        let [Value::Int(1), next, holders @ ..] = items.as_slice() else { return None };
        let mut page = Page { next: text(next)?, ..Page::default() };
        for item in holders.chunks(4) {
            let [key, kind, token, Value::Int(ms)] = item else { return None };
            let (key, kind, token) = (text(key)?, text(kind)?, text(token)?);
            match kind.as_str() {
                MORE => page.more.entry(token.parse().ok()?).or_default().push(key),
                TOOK => page.took = Duration::from_micros(token.parse().ok()?),
                _ => page.listed.push(Listed { key, kind, token, remaining: left(*ms) }),
            }
        }
        Some(page)
    }
}
