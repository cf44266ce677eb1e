//! Macros of redlock-sync; use them through that crate.
