//! What the macros expand to and what the test rig needs; not part of the public API.
//!
//! 1. `hold`: keeps the guard outside the body, and releases it.
//! 2. `policy`: the result of a call that got no lock.
//! 3. `escape`: escapes values in keys.
//! 4. `assert`: checks whether this thread holds a lock.
//! 5. `span`: the span of a body, with feature `tracing`.
//! 6. `memory`: sends commands to a node in memory, as any client of a server can, serves it over TCP, and lets it
//!    differ from Redis.
//! 7. `duration`: parses lengths of time as environment variables have them, for `redlock-cli`.
//! 8. `with_nodes_and_env`: the settings of the environment, but for its servers, for `redlock-cli`.
//! 9. `listens`, `remove_keys`: what `redlock doctor --try` sees and removes.
//! 10. `is_odd`, `escaped`, `printable`: how texts of unknown origin are shown, for `redlock-cli` too.

mod assert;
mod escape;
mod hold;
#[cfg(feature = "testing")]
mod memory;
mod policy;
mod span;

pub use self::assert::assert_locked;
pub use self::escape::escape;
pub use self::hold::{AnyValue, Guard, Hold, Run, SharedHold, Value, begin, client, default_wait, wait_without_end};
#[cfg(feature = "testing")]
pub use self::memory::{Rule, command, follow, serve};
pub use self::policy::{OrError, OrSkip, panic};
pub use crate::once::OnceGuard;
pub use crate::protocol::script::Script;

/// Every script of the crate, so that a proxy can tell their calls apart.
#[must_use]
pub fn scripts() -> Vec<&'static Script> {
    crate::protocol::script::all()
}

/// True if the client is subscribed to its notifications, as it is after a wait: for `redlock doctor --try`.
#[must_use]
pub fn listens(locks: &crate::Redlock) -> bool {
    crate::client::listens(locks)
}

/// Ends all keys of a name, by a script that no server has seen: for `redlock doctor --try`.
///
/// # Errors
/// As other calls, if a server did not answer or refused it.
pub fn remove_keys(locks: &crate::Redlock, name: &str) -> Result<u64, crate::Error> {
    crate::client::remove_keys(locks, name)
}

/// Like [`Builder::from_env`](crate::Builder::from_env), but with these servers in place of those that variables name.
///
/// # Errors
/// Those of `from_env`.
pub fn with_nodes_and_env(urls: &[String]) -> Result<crate::Builder, crate::Error> {
    crate::client::with_nodes(urls)
}

/// Lets all clients of this process that set no node timeout wait a second for a node: for the samples of the
/// documentation. A busy machine would fail them otherwise.
pub fn be_patient() {
    crate::options::DEFAULT_NODE_TIMEOUT.store(1000, std::sync::atomic::Ordering::Relaxed);
}

/// Parses a length of time with units, such as `1h30m`.
#[must_use]
pub fn duration(text: &str) -> Option<std::time::Duration> {
    crate::client::duration(text)
}

/// True for a character that a terminal obeys, that changes how others are shown, or that cannot be seen.
#[must_use]
pub fn is_odd(c: char) -> bool {
    crate::names::is_odd(c)
}

/// Escapes a name of unknown origin for a person, so that no two names look alike by what cannot be seen.
#[must_use]
pub fn escaped(name: &str) -> String {
    crate::names::escaped(name)
}

/// Escapes the odd characters of a message, in which names are escaped already.
#[must_use]
pub fn printable(message: &str) -> String {
    crate::names::printable(message)
}
