//! A simulation: the library's own code from the seam between rounds and servers (`node/link.rs`) upwards, against in-memory nodes that run its own
//! scripts, in virtual time. Compiled for tests only.
//!
//! One schedule is made from a seed: so many nodes and clients, locks whose names look alike, what their threads do, with which settings, and
//! what goes wrong. Messages are slow, stalled or lost before or after they were executed, connections are reset, and what they carried is
//! executed out of order; calls are sent again; processes pause or die, clocks run at different rates and jump, nodes restart without their
//! data. While it runs, [`invariants`] checks:
//!
//! 1. Exclusion: when a client is given the lock, no other holder's `check` is `Ok`. So a loss is told before another holder begins. Of a read-write
//!    lock there are readers or one writer, and of a semaphore as many permits as it has (`kinds`).
//! 2. No update of what the lock protects is lost.
//! 3. Fences rise in real-time order, and a holder's stays the same.
//! 4. A token is never asked for again after its release was sent.
//! 5. No key of a lock is without a time-to-live, and at the end only fence counters are left.
//! 6. Liveness: once all is well again, all threads get through; and a wait with a deadline ends at its deadline.
//! 7. Where nothing goes wrong, a lock that is wanted is not without a holder for long.
//! 8. Only those errors come which the faults can cause.
//! 9. A client that is given a lock has its token on a majority of the nodes, and only its own calls take it from there (`support`).
//! 10. A token is used for one attempt or one grant, an id for one wait (`ids`).
//! 11. A hold is as its own settings have it, however it was got: neither longer nor shorter, on the nodes too (`settings`).
//! 12. Once all is well again, no majority of the nodes has a token for long which a client that is alive has given up (`releases`), or which
//!     comes from an attempt that failed (`attempts`).
//! 13. On one node, where nothing goes wrong, waits get the lock in order of arrival: writers among themselves, and no reader waits for more than two
//!     of them.
//!
//! `cargo test -p redlock-sync simulation` runs some thousand schedules. More of them, or others:
//!
//! ```text
//! REDLOCK_SIM_SCHEDULES=1000000 cargo test --release -p redlock-sync simulation::schedules -- --nocapture
//! REDLOCK_SIM_SEED=4711 REDLOCK_SIM_SCHEDULES=1 cargo test -p redlock-sync simulation::schedules -- --nocapture
//! ```
//!
//! A schedule that fails is printed, with the command that repeats it. Further settings:
//!
//! | variable | what |
//! |---|---|
//! | `REDLOCK_SIM_THREADS` | on how many threads they run |
//! | `REDLOCK_SIM_NODES` | with so many nodes each |
//! | `REDLOCK_SIM_SURVEY` | go on after a failure, and tell how often what was violated |
//! | `REDLOCK_SIM_WITHOUT` | leave out these rules, by the names above, with commas between: to see what the others find |
//!
//! `tests/controls/` has patches that break the library on purpose, and `tests/CHAOS.md` says how they are tried: the simulation must find most of
//! them. [`contract`] has the same calls for an in-memory node and for a server, so that what is simulated is what servers do.
//!
//! From the bottom up:
//!
//! - [`scripts`]: the scripts, on the store of `node/memory`. [`server`]: a node. [`network`]: what is between it and a client. [`pushes`]: push
//!   connections. [`wire`]: a node as a client dials it.
//! - [`world`]: time and events. [`identity`]: which process a client is, and its random generator. [`plan`]: what a seed stands for.
//! - [`kinds`]: the kinds of locks that they use. [`client`]: what the threads do. [`invariants`]: what must hold. [`settings`] and [`tokens`]: rules 10 to 12. [`order`]: rule 13.
//!   [`rules`]: leaving some out.
//! - [`run`]: one schedule from its beginning to its end.

mod client;
mod contract;
mod identity;
mod invariants;
mod kinds;
mod network;
mod order;
mod plan;
mod pushes;
mod rules;
mod run;
mod schedules;
mod scripts;
mod server;
mod settings;
mod tokens;
mod wire;
mod world;

pub(crate) use identity::{process_id, random};
pub(crate) use world::Condvar;
