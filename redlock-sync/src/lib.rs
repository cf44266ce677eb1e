//! Redlock (under construction)
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod __private;
