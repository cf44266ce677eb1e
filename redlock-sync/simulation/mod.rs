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
//!     comes from an attempt that failed (`attempts`); and no node has one (`nodes`).
//! 13. On one node, where nothing goes wrong, waits get the lock in order of arrival: writers among themselves, and no reader waits for more than two
//!     of them.
//!
//! 14. A latch opens when all of its workers have arrived, each counted once, stays open, and wakes its waits (`latches`).
//! 15. A multi-lock that has lost one key gives up the others (`several`). A token that was left to others is adopted once at most (`letters`).
//! 16. A lease that threads of a process share is released by the last of them (`client`).
//! 17. A task of a queue has one claimant at a time, is not lost, is not ended by a stale claimant, and does not wait beside an idle thread (`queues`).
//! 18. Of the calls of a job that is run once, at most one is `Ran`, and none runs the body once it is done (`jobs`).
//! 19. A wait that is cancelled ends soon (`client`), and leaves nothing: rules 5 and 12.
//! 20. No two leaders pass `check` at one moment: each term is judged as a hold, by rules 1 to 3 (`leaders`).
//!
//! A node can also be a master with a replica that takes over, for clients with `failover_guard` and `min_replicas_ack` ([`replica`]): all of this holds there too,
//! but for rule 12, and with locks only.
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
//! | `REDLOCK_SIM_REPLICA` | with a replica wherever that is possible |
//! | `REDLOCK_SIM_SURVEY` | go on after a failure, and tell how often what was violated |
//! | `REDLOCK_SIM_SCRIPTS` | with the scripts of this folder in place of those of the same names |
//! | `REDLOCK_SIM_WITHOUT` | leave out these rules, by the names above, with commas between: to see what the others find |
//!
//! `tests/controls/` has patches that break the library on purpose, and `tests/CHAOS.md` says how they are tried: the simulation must find most of
//! them. [`contract`] has the same calls for an in-memory node and for a server, so that what is simulated is what servers do.
//!
//! From the bottom up:
//!
//! - [`units`] and [`random`]: times and chance. [`kinds`]: the kinds of locks that schedules use. [`plan`]: what a seed stands for.
//! - [`scripts`]: the scripts, on the store of `node/memory`. [`server`]: a node. [`connection`]: a connection to it. [`replication`]: two of them that are
//!   one node. [`known`]: what the rules know.
//! - [`world`]: time and events, and all of these. [`sync`] and [`clocks`]: what coroutines wait with. [`identity`]: which process a client is.
//! - [`network`] and [`pushes`]: what is between nodes and clients. [`execution`]: what happens at a node. [`replica`]: at one that has a replica.
//!   [`wire`]: a node as a client dials it.
//! - [`invariants`]: what must hold. [`settings`] and [`tokens`]: rules 10 to 12. [`order`]: rule 13. [`rules`]: leaving some out.
//! - [`thread`], [`several`], [`letters`], [`latches`], [`jobs`], [`leaders`] and [`queues`]: what a thread does with multi-locks, locks that are left to
//!   others, latches, jobs that are run once, leaders, and queues of tasks. [`client`]: with all of them.
//! - [`run`]: one schedule from its beginning to its end. [`schedules`]: many.

mod client;
mod clocks;
mod connection;
mod contract;
mod execution;
mod identity;
mod invariants;
mod jobs;
mod kinds;
mod known;
mod latches;
mod leaders;
mod letters;
mod network;
mod order;
mod plan;
mod pushes;
mod queues;
mod random;
mod replica;
mod replication;
mod rules;
mod run;
mod schedules;
mod scripts;
mod server;
mod settings;
mod several;
mod sync;
mod thread;
mod tokens;
mod units;
mod wire;
mod world;

pub(crate) use identity::{process_id, random, thread_number};
pub(crate) use sync::{Condvar, Mutex};
