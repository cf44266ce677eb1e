//! The integration tests, except those that must run without other tests (`alone`).
//!
//! 1. `fixture`: the test fixture itself, on which the other tests rely.
//! 2. `kinds`: the guard contract, by which one test runs for each kind of lock. `place`: where the locks are kept.
//!    `rig`: servers behind proxies. `process`: processes that tests kill or stop.
//! 3. `contract`: what each lock must do without faults. `features`: what each kind has, including readers and several
//!    permits. `closures`: a lock for the time of a closure. `cancel`: a wait that another thread cancels. `leader`:
//!    one leader of several candidates. `once`: a job that runs once.
//! 4. `faults` and `inputs`: the faults and the bad input in the guarantees, by number.
//!    `losses`: locks that the servers have lost. `transport`: the connections that all threads share.
//! 5. `handover`: how a lock goes from its holder to a waiter. `taking_over`: by a token, and by force.
//!    `keys_without_ttl`: keys that never expire.
//! 6. `semaphore`: several holders at a time. `rw_lock`: many readers, or one writer. `latch`, `multi`, `queue`:
//!    latches, multi-locks, and queues of tasks.
//! 7. `attribute`: `#[distributed_lock]` and the other macros. `tests/ui` covers what they refuse. `in_memory`: nodes
//!    in memory, for unit tests of users.
//! 8. `examples`: the tests run the examples as users run them.
//! 9. `chaos`: a short chaos run.
//! 10. `properties`: properties that hold for random input.
//! 11. `health`: what is wrong with servers. `snapshot`: all locks and queues. `observer`: events of locks. `logged`:
//!     what is logged. `credentials`: passwords that change. `replicas`: replicas that must confirm a lock. `tls`:
//!     servers behind TLS, with valid and invalid certificates. `own_client`: the server of an existing client.
//! 12. `sentinel`: servers that Sentinels watch. `cluster`: locks on Redis Clusters.
//! 13. `tidy`: rules of the repository.
//! 14. `interop`, a feature: programs of other libraries on the same keys.
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
mod losses;
mod multi;
mod observer;
mod once;
mod own_client;
mod place;
mod process;
mod properties;
mod queue;
mod replicas;
mod rig;
mod rw_lock;
mod semaphore;
mod sentinel;
mod snapshot;
mod taking_over;
mod tidy;
mod tls;
mod transport;
