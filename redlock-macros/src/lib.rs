//! The macros of `redlock-sync`. Use them through that crate, which re-exports all of them.
//!
//! `#[distributed_lock]` is expanded in these steps, each with its files. The other macros share the steps from
//! `template` on.
//!
//! 1. `args`: parses the arguments. `kind`: the kind of lock. `given`: values that are literals or expressions.
//!    `duration`: lengths of time.
//! 2. `function`: parses the signature of the function.
//! 3. `check`: checks the arguments against each other and the function.
//! 4. `template`: parses the key template. `hole`: checks the expressions in its placeholders.
//! 5. `key`: builds the expression for the key.
//! 6. `policy`: the result of a call without a lock. `expand`: generates the code. `arguments`: moves the parameters
//!    into the body. `attrs`: selects their attributes. `caller`: handles `#[track_caller]`.
//!
//! `derive` and `call` contain the other macros.
//!
//! A mistake becomes one `compile_error!` at its span. The function itself stays unchanged, so that no further message
//! follows. Rustc finds mistakes that depend on types. Their messages are in the traits of the library's
//! `__private/policy.rs`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr, clippy::unreachable))]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )
)]

mod args;
mod arguments;
mod attrs;
mod call;
mod caller;
mod check;
mod derive;
mod duration;
mod expand;
mod function;
mod given;
mod hole;
mod key;
mod kind;
mod policy;
mod template;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Runs a function under a distributed lock: only one process, and one thread of it, is in the body at a time.
///
#[doc = include_str!("docs/distributed_lock.md")] // a link to docs/attribute.md
#[doc = include_str!("docs/expansion.md")]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(args.into(), item.into()).into()
}

#[doc = include_str!("docs/key.md")]
#[proc_macro]
pub fn key(input: TokenStream) -> TokenStream {
    call::key(input.into()).into()
}

#[doc = include_str!("docs/assert_locked.md")]
#[proc_macro]
pub fn assert_locked(input: TokenStream) -> TokenStream {
    call::assert_locked(input.into()).into()
}

#[doc = include_str!("docs/lock_key.md")]
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn derive_lock_key(item: TokenStream) -> TokenStream {
    derive::lock_key(item.into()).into()
}
