//! A simulation of clients and nodes in virtual time. The clients run the library's own code above the interface
//! between rounds and servers (`node/link.rs`). The nodes are in memory and run the library's own scripts. The
//! simulation is compiled for tests only.
//!
//! A schedule is generated from a seed. It consists of the number of nodes and clients, locks with similar names, the
//! work and the settings of each thread, and the faults. Messages are slow, stalled, or lost before or after they are
//! executed. Connections are reset, and their commands are executed out of order. Calls are sent again. Processes pause
//! or die, clocks run at different rates and jump, and nodes restart without their data. Meanwhile, [`invariants`]
//! checks these rules:
//!
//! 1. Exclusion: when a client acquires the lock, no other holder's `check` is `Ok`. So a loss is reported before
//!    another holder begins. A read-write lock has readers or one writer. The holders of a semaphore have no more
//!    permits than it has in total (`kinds`).
//! 2. No update of the data that the lock protects is lost.
//! 3. Fencing tokens rise in real-time order, and the fencing token of a hold does not change.
//! 4. A token is used in no attempt after its release was sent.
//! 5. Each key of a lock has a time to live, and at the end only the counters of fencing tokens are left.
//! 6. Liveness: once the faults have ended, all threads finish. A wait with a deadline ends at its deadline.
//! 7. In a schedule without faults, a lock that a thread waits for does not stay free for long.
//! 8. A call returns only errors that the faults can cause.
//! 9. When a client acquires a lock, a majority of the nodes has its token. Only the client's own calls remove the
//!    token from them (`support`).
//! 10. A token is used for only one attempt or one grant, and an id for only one wait (`ids`).
//! 11. A hold lasts neither longer nor shorter than its settings say, no matter how it was acquired. The same is true
//!     of its keys on the nodes (`settings`).
//! 12. After the faults have ended, no majority of the nodes keeps a token that a live client has given up
//!     (`releases`), except for a short time. The same is true of a token of a failed attempt (`attempts`). No single
//!     node keeps such a token either (`nodes`).
//! 13. On one node without faults, waits get the lock in order of arrival. For a read-write lock, this holds among
//!     writers, and no reader waits for more than two writers.
//!
//! 14. A latch opens when all of its workers have arrived, and counts each worker once. It stays open and wakes its
//!     waits (`latches`).
//! 15. A multi-lock that has lost one key gives up the others (`several`). A token that was left for another process is
//!     adopted at most once (`letters`).
//! 16. A lease that several threads of a process share is released by the last of them (`client`).
//! 17. A task of a queue has one claimant at a time, is not lost, and is not ended by a stale claimant. It does not
//!     wait while a thread is idle (`queues`).
//! 18. For a job that is run once, at most one call is `Ran`. No call runs the body after the job is done (`jobs`).
//! 19. A wait that is cancelled ends soon (`client`). It leaves nothing on the nodes, as rules 5 and 12 check.
//! 20. Two leaders never pass `check` at the same moment. Each term is checked as a hold, by rules 1 to 3 (`leaders`).
//! 21. Each step on a mutex is one that the models of `tests/proof` have (`models`): what a script does to the keys
//!     ([`model`]), what a client sends, and for how long it relies on a lock ([`evidence`]).
//!
//! A node can also be a master with a replica that takes over. The clients then set `failover_guard` and
//! `min_replicas_ack` ([`replica`]). All rules except rule 12 apply there. Such schedules use only locks.
//!
//! `cargo test -p redlock-sync simulation` runs some hundred schedules. These commands run more schedules, or a given
//! one:
//!
//! ```text
//! REDLOCK_SIM_SCHEDULES=1000000 cargo test --release -p redlock-sync simulation::schedules -- --nocapture
//! REDLOCK_SIM_SEED=4711 REDLOCK_SIM_SCHEDULES=1 cargo test -p redlock-sync simulation::schedules -- --nocapture
//! ```
//!
//! A schedule that fails is printed together with the command that repeats it. Further settings:
//!
//! | variable | what |
//! |---|---|
//! | `REDLOCK_SIM_THREADS` | number of threads that run schedules |
//! | `REDLOCK_SIM_NODES` | number of nodes of each schedule |
//! | `REDLOCK_SIM_REPLICA` | give each node a replica wherever that is possible |
//! | `REDLOCK_SIM_SURVEY` | go on after a failure, and count the violations of each rule |
//! | `REDLOCK_SIM_SCRIPTS` | a folder with scripts that replace those of the same names |
//! | `REDLOCK_SIM_WITHOUT` | rules to leave out, by the names above, separated by commas |
//! | `REDLOCK_SIM_ONLY` | `models`: rule 21 is the only one |
//!
//! `tests/controls/` has patches that break the library on purpose, and `tests/CHAOS.md` says how to run them. The
//! simulation must find most of them. `node/memory/like_a_server` compares an in-memory node with a server.
//!
//! The modules, from the bottom up:
//!
//! - [`units`] and [`random`]: times and randomness. [`kinds`]: the kinds of locks that schedules use. [`plan`]:
//!   generates a schedule from a seed.
//! - [`scripts`]: the scripts, run on the store of `node/memory`. [`server`]: a node. [`connection`]: a connection to
//!   it. [`replication`]: two servers that form one node. [`known`]: the state that the rules check.
//! - [`world`]: the time, the events, and all of the above. [`sync`] and [`clocks`]: mutexes, condition variables and
//!   clocks of coroutines. [`identity`]: the process of each client.
//! - [`network`] and [`notifications`]: messages between nodes and clients. [`execution`]: events at a node.
//!   [`replica`]: events at a node with a replica. [`wire`]: the connection of a client to a node.
//! - [`invariants`]: the rules. [`settings`] and [`tokens`]: rules 10 to 12. [`order`]: rule 13. [`model`] and
//!   [`evidence`]: rule 21. [`rules`]: the choice of rules that a run leaves out.
//! - [`thread`], [`several`], [`letters`], [`latches`], [`jobs`], [`leaders`] and [`queues`]: the work of a thread with
//!   multi-locks, locks that are left for others, latches, jobs that are run once, leaders, and queues of tasks.
//!   [`client`]: all work of a thread.
//! - [`run`]: runs one schedule. [`schedules`]: runs many schedules.

mod client;
mod clocks;
mod connection;
mod evidence;
mod execution;
mod identity;
mod invariants;
mod jobs;
mod kinds;
mod known;
mod latches;
mod leaders;
mod letters;
mod model;
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
