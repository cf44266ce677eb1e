//! The call that asks a node about many locks: which of their tokens it does not have.

use super::reply::{Reply, Value};
use super::script::Arg::Text;
use super::script::{Call, HELD};
use super::{Protocol, TypedCall};
use crate::options::Mode;
use crate::token::LockId;

/// Most tokens that one call asks for. A server serves no other client during a call.
const TOKENS_PER_CALL: usize = 250;
/// The most bytes of tokens and keys in one call, if it asks for more than one token. Over a slow link, what comes next
/// on the connection waits for them.
const BYTES_PER_CALL: usize = 16 * 1024;

/// What stands on a node while a token holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredToken {
    key: String,
    /// In the form that `held.lua` reads.
    what: String,
}

/// The places in the call of the tokens that the node does not have. Reply: `{1, place, …}`, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone(pub(crate) Vec<usize>);

impl Reply for Gone {
    fn read(value: &Value) -> Option<Gone> {
        let (Value::Int(1), places) = value.items()?.split_first()? else { return None };
        let place = |place: &Value| {
            if let Value::Int(place) = place { usize::try_from(*place).ok()?.checked_sub(1) } else { None }
        };
        places.iter().map(place).collect::<Option<_>>().map(Gone)
    }
}

impl Protocol {
    /// What stands on a node while this token holds the lock: one entry, or one for each of several permits.
    pub(crate) fn stored(&self, id: &LockId) -> Vec<StoredToken> {
        let entry = |key: &str, what: String| StoredToken { key: key.to_owned(), what };
        match self {
            Protocol::Mutex(lock) => vec![entry(lock.key.as_str(), format!("={}", id.as_str()))],
            Protocol::ReadWrite(lock) => {
                let letter = if lock.kind().mode == Mode::Exclusive { 'w' } else { 'r' };
                vec![entry(lock.key.as_str(), format!("*{letter}{}", id.as_str()))]
            }
            Protocol::Semaphore(lock) => {
                lock.slots.iter().map(|slot| entry(lock.key.as_str(), format!("*{slot} {}", id.as_str()))).collect()
            }
        }
    }
}

/// Splits tokens into those of one call each.
pub(crate) fn parts(mut tokens: &[StoredToken]) -> Vec<&[StoredToken]> {
    let mut parts = Vec::new();
    while !tokens.is_empty() {
        let mut bytes = 0;
        let fits = |token: &&StoredToken| {
            bytes += token.key.len() + token.what.len();
            bytes <= BYTES_PER_CALL
        };
        let fitting = tokens.iter().take(TOKENS_PER_CALL).take_while(fits).count();
        let (part, others) = tokens.split_at(fitting.max(1));
        parts.push(part);
        tokens = others;
    }
    parts
}

/// Asks which of these tokens a node does not have.
pub(crate) fn ask_for(tokens: &[StoredToken]) -> TypedCall<Gone> {
    let keys: Vec<&str> = tokens.iter().map(|token| token.key.as_str()).collect();
    let args: Vec<_> = tokens.iter().map(|token| Text(&token.what)).collect();
    Call::new(&HELD, &keys, &args).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_bounded_number_of_tokens_and_bytes() {
        let token = |key: usize| StoredToken { key: "k".repeat(key), what: "t".into() };
        let lengths = |tokens: &[StoredToken]| parts(tokens).into_iter().map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&vec![token(1); 501]), [250, 250, 1]);
        assert_eq!(lengths(&vec![token(BYTES_PER_CALL / 3 - 1); 7]), [3, 3, 1]);
        assert_eq!(lengths(&vec![token(BYTES_PER_CALL); 2]), [1, 1]);
    }
}
