//! The one integration binary.
//!
//! 1. `fixture`: the fixture itself, so that the other tests can rely on it.
//! 2. `kinds`: the guard contract, by which one test runs for every kind of lock. `logged`: what the library logs.
//! 3. `contract`: what every lock must do when nothing is broken.
//! 4. `faults`: FAULTS by number, and bad input by number.
//! 5. `handover`: how a lock goes from its holder to a waiter.
//! 6. `attribute`: `#[distributed_lock]` and the other macros; `attribute_misuse`: what they refuse.
//! 7. `examples`: the examples, run as people run them.
//! 8. `chaos`: a short chaos run.
//! 9. `properties`: random input, and what must hold for all of it.
//! 10. `regressions`: what reviews found.
//! 11. `tls`: servers behind TLS, with certificates of every sort.
//! 12. `tidy`: rules of the repository.
//! 13. `queue`: queues of delayed tasks.
//! 14. `interop`, a feature: locks of other programs on the same keys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait by the real clock"
)]

mod attribute;
mod attribute_misuse;
mod chaos;
mod contract;
mod examples;
mod faults;
mod fixture;
mod handover;
mod inputs;
#[cfg(feature = "interop")]
mod interop;
mod kinds;
mod logged;
mod properties;
mod queue;
mod regressions;
mod tidy;
mod tls;
