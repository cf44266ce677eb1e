//! Which keys are locks: of one key, or of all, page by page.

use std::time::Duration;

use super::TypedCall;
use super::reply::{Reply, Value, left, text};
use super::script::Arg::Text;
use super::script::{Call, LIST, Purpose};
use crate::key::Key;

/// Where a node's keys begin.
pub(crate) const START: &str = "0";

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
}

/// What holds that key.
pub(crate) fn look(key: &Key) -> TypedCall<Page> {
    Call::new(&LIST, Purpose::Other, None, Duration::ZERO, &[key.as_str()], &[]).into()
}

/// The locks on a page of a node's keys.
pub(crate) fn page(cursor: &str, pattern: &str) -> TypedCall<Page> {
    Call::new(&LIST, Purpose::Other, None, Duration::ZERO, &[], &[Text(cursor), Text(pattern)]).into()
}

impl Reply for Page {
    fn read(value: &Value) -> Option<Page> {
        let Value::List(items) = value else { return None };
        let [Value::Int(1), next, holders @ ..] = items.as_slice() else { return None };
        let listed = |item: &[Value]| match item {
            [key, kind, token, Value::Int(ms)] => {
                Some(Listed { key: text(key)?, kind: text(kind)?, token: text(token)?, remaining: left(*ms) })
            }
            _ => None,
        };
        Some(Page { next: text(next)?, listed: holders.chunks(4).map(listed).collect::<Option<_>>()? })
    }
}
