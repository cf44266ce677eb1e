//! What the macros expand to and what the test rig needs; not part of the public API.
//!
//! 1. `hold`: the place of a guard outside the body, and how it ends.
//! 2. `policy`: what a call returns that had no lock.
//! 3. `escape`: values in keys.
//! 4. `assert`: whether this thread holds a lock.
//! 5. `memory`: commands to a node in memory, as any client of a server can send them.

mod assert;
mod escape;
mod hold;
#[cfg(feature = "testing")]
mod memory;
mod policy;

pub use self::assert::assert_locked;
pub use self::escape::{Escaped, escape};
pub use self::hold::{AnyValue, Guard, Hold, SharedHold, Value, client, default_wait};
#[cfg(feature = "testing")]
pub use self::memory::command;
pub use self::policy::{OrError, OrSkip, panic};

/// Operation and SHA-1 of every script, so that a proxy can tell them apart.
#[must_use]
pub fn scripts() -> Vec<(&'static str, String)> {
    crate::protocol::script::all().into_iter().map(|script| (script.operation, script.sha.clone())).collect()
}
