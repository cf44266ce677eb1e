//! What the macros expand to and what the test rig needs; not part of the public API.
//!
//! 1. `hold`: the place of a guard outside the body, and how it ends.
//! 2. `policy`: what a call returns that had no lock.
//! 3. `escape`: values in keys.
//! 4. `assert`: whether this thread holds a lock.
//! 5. `span`: that of a body, with feature `tracing`.
//! 6. `memory`: commands to a node in memory, as any client of a server can send them.
//! 7. `duration`: lengths of time as variables have them, for `redlock-cli`.

mod assert;
mod escape;
mod hold;
#[cfg(feature = "testing")]
mod memory;
mod policy;
mod span;

pub use self::assert::assert_locked;
pub use self::escape::escape;
pub use self::hold::{
    AnyValue, Guard, Hold, OnceGuard, Run, SharedHold, Value, begin, client, default_wait, wait_without_end,
};
#[cfg(feature = "testing")]
pub use self::memory::command;
pub use self::policy::{OrError, OrSkip, panic};

/// Operation and SHA-1 of every script, so that a proxy can tell them apart.
#[must_use]
pub fn scripts() -> Vec<(&'static str, String)> {
    crate::protocol::script::all().into_iter().map(|script| (script.operation, script.sha.clone())).collect()
}

/// A length of time as environment variables have it, such as `1h30m`.
#[must_use]
pub fn duration(text: &str) -> Option<std::time::Duration> {
    crate::client::duration(text)
}
