//! A simulation: the library's own code from the seam between rounds and servers (`node/link.rs`) upwards, against
//! in-memory nodes that run its own scripts, in virtual time. Compiled for tests only.
//!
//! A schedule is generated from a seed: the number of nodes and clients, locks with similar names, the work and the
//! settings of each thread, and the faults. Messages are slow, stalled, or lost before or after they are executed.
//! Connections are reset, and their commands are executed out of order. Calls are sent again. Processes pause or die,
//! clocks run at different rates and jump, and nodes restart without their data. Meanwhile [`invariants`] checks:
//!
//! 1. Exclusion: when a client is given the lock, no other holder's `check` is `Ok`. So a loss is reported before
//!    another holder begins. A read-write lock has readers or one writer, and a semaphore has no more holders than
//!    permits (`kinds`).
//! 2. No update of what the lock protects is lost.
//! 3. Fences rise in real-time order, and a holder's stays the same.
//! 4. A token is used in no attempt after its release was sent.
//! 5. No key of a lock is without a time-to-live, and at the end only fence counters are left.
//! 6. Liveness: once the faults have ended, all threads finish. A wait with a deadline ends at its deadline.
//! 7. In a schedule without faults, a lock that a thread waits for does not stay free for long.
//! 8. A call returns only errors that the faults can cause.
//! 9. A client that is given a lock has its token on a majority of the nodes, and only its own calls take it from there
//!    (`support`).
//! 10. A token is used for one attempt or one grant, an id for one wait (`ids`).
//! 11. A hold lasts as long as its settings say, however it was acquired: neither longer nor shorter, on the nodes too
//!     (`settings`).
//! 12. Once the faults have ended, no majority of the nodes keeps a token for long that a live client has given up
//!     (`releases`), or that comes from a failed attempt (`attempts`). No single node keeps one either (`nodes`).
//! 13. On one node without faults, waits get the lock in order of arrival: writers among themselves, and no reader
//!     waits for more than two of them.
//!
//! 14. A latch opens when all of its workers have arrived, each counted once, stays open, and wakes its waits
//!     (`latches`).
//! 15. A multi-lock that has lost one key gives up the others (`several`). A token that was left to others is adopted
//!     once at most (`letters`).
//! 16. A lease that threads of a process share is released by the last of them (`client`).
//! 17. A task of a queue has one claimant at a time, is not lost, is not ended by a stale claimant, and does not wait
//!     beside an idle thread (`queues`).
//! 18. For a job that is run once, at most one call is `Ran`, and no call runs the body once it is done (`jobs`).
//! 19. A wait that is cancelled ends soon (`client`), and leaves nothing: rules 5 and 12.
//! 20. No two leaders pass `check` at one moment: each term is judged as a hold, by rules 1 to 3 (`leaders`).
//!
//! A node can also be a master with a replica that takes over, for clients with `failover_guard` and `min_replicas_ack`
//! ([`replica`]). All rules but rule 12 hold there. Such schedules have locks only.
//!
//! `cargo test -p redlock-sync simulation` runs some hundred schedules. More of them, or others:
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
//! | `REDLOCK_SIM_THREADS` | number of threads that run schedules |
//! | `REDLOCK_SIM_NODES` | number of nodes of each schedule |
//! | `REDLOCK_SIM_REPLICA` | give each node a replica wherever that is possible |
//! | `REDLOCK_SIM_SURVEY` | go on after a failure, and count the violations of each rule |
//! | `REDLOCK_SIM_SCRIPTS` | a folder with scripts that replace those of the same names |
//! | `REDLOCK_SIM_WITHOUT` | rules to leave out, by the names above, separated by commas |
//!
//! `tests/controls/` has patches that break the library on purpose, and `tests/CHAOS.md` says how they are run: the
//! simulation must find most of them. [`contract`] makes the same calls to an in-memory node and to a server, and
//! compares the results.
//!
//! From the bottom up:
//!
//! - [`units`] and [`random`]: times and randomness. [`kinds`]: the kinds of locks that schedules use. [`plan`]:
//!   generates a schedule from a seed.
//! - [`scripts`]: the scripts, on the store of `node/memory`. [`server`]: a node. [`connection`]: a connection to it.
//!   [`replication`]: two servers that form one node. [`known`]: the state that the rules check.
//! - [`world`]: time, events, and all of the above. [`sync`] and [`clocks`]: mutexes, condition variables and clocks of
//!   coroutines. [`identity`]: the process of each client.
//! - [`network`] and [`notifications`]: messages between nodes and clients. [`execution`]: events at a node.
//!   [`replica`]: events at a node with a replica. [`wire`]: the connection of a client to a node.
//! - [`invariants`]: the rules. [`settings`] and [`tokens`]: rules 10 to 12. [`order`]: rule 13. [`rules`]: leaving
//!   rules out.
//! - [`thread`], [`several`], [`letters`], [`latches`], [`jobs`], [`leaders`] and [`queues`]: the work of a thread with
//!   multi-locks, locks that are left to others, latches, jobs that are run once, leaders, and queues of tasks.
//!   [`client`]: the work of a thread in total.
//! - [`run`]: runs one schedule. [`schedules`]: runs many.

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
mod notifications;
mod order;
mod plan;
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
