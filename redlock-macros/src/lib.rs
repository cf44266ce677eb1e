//! The macros of `redlock-sync`. Use them through that crate, which exports all of them.
//!
//! The steps of `#[distributed_lock]`, one file each; the other macros share those from the template on:
//!
//! 1. `args`: reads the arguments; `kind`: which lock is taken; `given`: values that are literals or expressions,
//!    `duration` the lengths of time.
//! 2. `function`: reads the head of the function.
//! 3. `check`: what must fit together.
//! 4. `template`: reads the key template; `hole`: what may stand in its holes.
//! 5. `key`: the expression that builds the key.
//! 6. `policy`: how a call ends that has no lock. `expand`: puts it together; `arguments`: how the parameters get into
//!    the body, `attrs`: which attributes go with them; `caller`: what differs with `#[track_caller]`.
//!
//! `derive` and `call` are the other macros.
//!
//! A mistake is one `compile_error!` at the place where it was made; the function stays beside it as it was, so that
//! no further message follows. What only types can tell is left to rustc, with the words of the traits in the
//! library's `__private/policy.rs`.

#![forbid(unsafe_code)]
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

#[doc = include_str!("docs/distributed_lock.md")]
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
