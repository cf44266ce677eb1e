//! The integration tests, but for those that need the machine to themselves (`alone`).
//!
//! 1. `fixture`: the fixture itself, so that the other tests can rely on it.
//! 2. `kinds`: the guard contract, by which one test runs for every kind of lock. `place`: where the locks are. `process`: a process to be killed or stopped. `logged`: what the library logs.
//! 3. `contract`: what every lock must do when nothing is broken. `features`: what every kind has, readers and several permits too. `closures`: a lock for the time of a closure. `cancel`: a wait that another thread ends. `leader`: one of several. `once`: a job that is run once.
//! 4. `faults`: FAULTS by number, and bad input by number.
//! 5. `handover`: how a lock goes from its holder to a waiter. `taking_over`: by a token, and by force.
//!    `keys_without_ttl`: keys that never end.
//! 6. `semaphore`: several holders at a time. `rw_lock`: many readers, or one writer. `latch`, `multi`, `queue`: what is no single lock.
//! 7. `attribute`: `#[distributed_lock]` and the other macros; what they refuse is in `tests/ui`. `in_memory`: nodes in memory, for unit tests of users.
//! 8. `examples`: the examples, run as people run them.
//! 9. `chaos`: a short chaos run.
//! 10. `properties`: random input, and what must hold for all of it.
//! 11. `regressions`: what reviews found.
//! 12. `health`: what is wrong with servers. `snapshot`: all that there is to see. `observer`: what is told of locks. `credentials`: passwords that change. `replicas`: which have to have a lock. `tls`: servers behind TLS, with certificates of every sort. `own_client`: the server of a client that the program has.
//! 13. `sentinel`: servers that Sentinels watch. `cluster`: locks on Redis Clusters.
//! 14. `tidy`: rules of the repository.
//! 15. `interop`, a feature: locks of other programs on the same keys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait by the real clock"
)]

mod attribute;
mod cancel;
mod chaos;
mod closures;
mod cluster;
mod contract;
mod credentials;
mod examples;
mod faults;
mod features;
mod fixture;
mod handover;
mod health;
mod in_memory;
mod inputs;
#[cfg(feature = "interop")]
mod interop;
mod keys_without_ttl;
mod kinds;
mod latch;
mod leader;
mod logged;
mod multi;
mod observer;
mod once;
mod own_client;
mod place;
mod process;
mod properties;
mod queue;
mod regressions;
mod replicas;
mod rw_lock;
mod semaphore;
mod sentinel;
mod snapshot;
mod taking_over;
mod tidy;
mod tls;
