//! `assert_locked!`.

use crate::names::escaped;
use crate::{Error, Redlock};

/// Panics unless this thread holds the lock. No I/O.
#[track_caller]
#[allow(clippy::panic, reason = "an assertion")]
pub fn assert_locked(client: Result<Redlock, Error>, name: &str) {
    let why = match client.and_then(|client| client.holds(name)) {
        Ok(true) => return,
        Ok(false) => "it was not locked in this thread through this client, or it was lost".to_owned(),
        Err(error) => error.to_string(),
    };
    panic!("assertion failed: this thread does not hold lock `{}`: {why}", escaped(name));
}
