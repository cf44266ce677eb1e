//! What each fuzz target does with its input. A target itself is one line.
//!
//! 1. [`template`] and [`attribute`]: the macros, from their own files. A macro crate cannot be linked, but its files can be compiled here.
//! 2. [`node_url`] and [`settings`]: the library, by its public interface.
//!
//! The properties of `tests/it/properties` and `redlock-macros/src/tests.rs` say much the same of random input on every run of the tests.
//! Here the input grows towards code that was not reached yet.

#![forbid(unsafe_code)]

/// The macros' own files. They name each other by `crate::`, so they have to stand here.
macro_rules! from_macros {
    ($($name:ident $path:literal)*) => {
        $(#[allow(dead_code, unreachable_pub)]
        #[path = $path]
        mod $name;)*
    };
}

from_macros! {
    args "../../redlock-macros/src/args.rs"
    arguments "../../redlock-macros/src/arguments.rs"
    attrs "../../redlock-macros/src/attrs.rs"
    call "../../redlock-macros/src/call.rs"
    caller "../../redlock-macros/src/caller.rs"
    check "../../redlock-macros/src/check.rs"
    derive "../../redlock-macros/src/derive.rs"
    duration "../../redlock-macros/src/duration.rs"
    expand "../../redlock-macros/src/expand.rs"
    function "../../redlock-macros/src/function.rs"
    hole "../../redlock-macros/src/hole.rs"
    key "../../redlock-macros/src/key.rs"
    template "../../redlock-macros/src/template.rs"
}

mod built;
mod client;
mod macros;
mod urls;

pub use client::{Drawn, settings};
pub use macros::{attribute, template};
pub use urls::node_url;

/// The message of an error that must be a `Config` error: one line that a terminal can show.
fn refusal(error: &redlock_sync::Error) -> &str {
    let redlock_sync::Error::Config { message, .. } = error else { panic!("no Config error: {error:?}") };
    assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
    message
}
