//! The one integration binary.
//!
//! 1. `fixture`: the fixture itself, so that the other tests can rely on it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait by the real clock"
)]

mod fixture;
