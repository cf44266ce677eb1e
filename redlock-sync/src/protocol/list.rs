//! Which keys are locks: of one key, or of all, page by page.

use std::collections::BTreeMap;
use std::time::Duration;

use super::TypedCall;
use super::reply::{Reply, Value, left, text};
use super::script::Arg::{Number, Text};
use super::script::{Call, LIST, Purpose};
use crate::key::Key;

/// Where a node's keys begin.
pub(crate) const START: &str = "0";

/// The kind of a key of which not all was told.
const MORE: &str = "more";

/// A holder as one node names it.
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
}

/// What holds that key.
pub(crate) fn look(key: &Key) -> TypedCall<Page> {
    more(&[key.as_str()], true, 0)
}

/// What holds these keys, behind so many of their members. A user has named them, or a page.
pub(crate) fn more(keys: &[&str], is_named: bool, told: u64) -> TypedCall<Page> {
    let args = [Number(is_named.into()), Number(told)];
    Call::new(&LIST, Purpose::Other, None, Duration::ZERO, keys, &args).into()
}

/// The locks on a page of a node's keys.
pub(crate) fn page(cursor: &str, pattern: &str) -> TypedCall<Page> {
    Call::new(&LIST, Purpose::Other, None, Duration::ZERO, &[], &[Text(cursor), Text(pattern)]).into()
}

impl Reply for Page {
    fn read(value: &Value) -> Option<Page> {
        let Value::List(items) = value else { return None };
        let [Value::Int(1), next, holders @ ..] = items.as_slice() else { return None };
        let mut page = Page { next: text(next)?, ..Page::default() };
        for item in holders.chunks(4) {
            let [key, kind, token, Value::Int(ms)] = item else { return None };
            let (key, kind, token) = (text(key)?, text(kind)?, text(token)?);
            if kind == MORE {
                page.more.entry(token.parse().ok()?).or_default().push(key);
            } else {
                page.listed.push(Listed { key, kind, token, remaining: left(*ms) });
            }
        }
        Some(page)
    }
}
