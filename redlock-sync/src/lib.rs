//! Distributed locks on Redis or Valkey, for synchronous programs: no `async`, no runtime.
//!
//! A function is locked by one line above it:
//!
//! ```
//! # let server = redlock_tests::Server::for_sample();
//! # redlock_sync::Redlock::set_default(redlock_sync::Redlock::open(server.url())?)?;
//! use redlock_sync::{Error, distributed_lock};
//!
//! #[distributed_lock("order:{id}")]
//! fn ship(id: u64) -> Result<String, Error> {
//!     Ok(format!("order {id} is on its way")) // for each order one process at a time is here
//! }
//!
//! assert_eq!(ship(42)?, "order 42 is on its way");
//! # Ok::<(), Error>(())
//! ```
//!
//! The body never runs without the lock. The function uses the default client of the process. The library makes that
//! client from [environment variables](Redlock::default_client), unless the program gives one to
//! [`Redlock::set_default`]. [`distributed_lock`](macro@distributed_lock) documents keys, waiting, policies, and what
//! the macro writes.
//!
//! # A guard in a scope
//!
//! ```
//! # let server = redlock_tests::Server::for_sample();
//! # let url = server.url();
//! use redlock_sync::Redlock;
//!
//! let locks = Redlock::open(&url)?; // such as "redis://127.0.0.1/"; keep it, clones share everything
//! let guard = locks.mutex("order:42").lock()?; // blocks until this thread has the lock
//! for _step in 0..3 {
//!     guard.check()?; // is the lock still held? reads a clock, does no I/O
//!     println!("UPDATE … WHERE fence <= {}", guard.fencing_token()?);
//! }
//! guard.unlock()?; // says how it went; dropping the guard releases too, and logs what goes wrong
//! # Ok::<(), redlock_sync::Error>(())
//! ```
//!
//! While the guard lives, a background thread renews the lease. The guard of one lock derefs to [`Lease`], which has
//! `check`, `remaining`, `fencing_token`, `extend` and `on_lost`. The guard of a [`MultiLock`] has a lease for each
//! key.
//!
//! Two kinds of lock use the same keys, so they exclude each other:
//!
//! - [`Mutex`]: a thread that holds it and locks it again gets an error ([`WouldDeadlock`](Error::WouldDeadlock)).
//! - [`ReentrantMutex`]: a thread that holds it and locks it again gets it at once, without I/O. The attribute uses
//!   this kind by default.
//!
//! Both have [`lock`](Mutex::lock), [`try_lock`](Mutex::try_lock), [`try_lock_for`](Mutex::try_lock_for) and
//! [`try_lock_until`](Mutex::try_lock_until). **If one of these calls is `Ok`, the guard held the lock when the call
//! returned**. If another holder has the lock, the error is [`Busy`](Error::Busy).
//!
//! The other kinds use keys of another type, or several keys:
//!
//! - [`RwLock`]: any number of readers hold it at a time, or one writer.
//! - [`Semaphore`]: a fixed number of holders at a time, each with a lease of its own. Its
//!   [`acquire`](Semaphore::acquire) takes the place of `lock`.
//! - [`MultiLock`]: several mutexes at once, all or none.
//! - [`CountDownLatch`]: it is not a lock, but threads wait for it in the same way. It opens when a given number of
//!   workers have arrived.
//!
//! Two more are built on a mutex. [`Once`] runs a job once for each name, such as a report for each day. Of
//! several processes, a [`Leader`] is the one that works. If it dies, another one takes over.
//!
//! A [`Queue`] keeps tasks on one server until a [`Worker`] has done them. Each task is claimed by one worker at a
//! time. With a [`Cancel`], another thread can stop calls that wait for any of these.
//!
//! # Several nodes
//!
//! With several independent servers, a holder has the lock on a majority of them (the Redlock algorithm). The lock
//! survives the loss of the others. Nothing else changes.
//!
//! ```
//! # redlock_sync::__private::be_patient();
//! # let servers = redlock_tests::servers(3);
//! # let (a, b, c) = (servers[0].url(), servers[1].url(), servers[2].url());
//! use redlock_sync::Redlock;
//!
//! let locks = Redlock::builder().nodes([a, b, c]).build()?; // such as "redis://a.example/"
//! let guard = locks.mutex("order:42").lock()?; // two of the three servers granted it
//! # servers[0].kill();
//! guard.fencing_token()?; // one of them may die
//! # Ok::<(), redlock_sync::Error>(())
//! ```
//!
//! The servers must be independent masters, not replicas of each other: [how many, and how to run them][operations].
//! [`Builder`] has the settings.
//!
//! # Waiting
//!
//! Threads of one client that want the same lock stand in a queue, first come, first served. Only the first of them
//! talks to the servers. They hand the lock to each other in memory, for 20 ms at a time if other processes wait too.
//!
//! Between processes, a release gives the lock to the process that has waited longest, and wakes it. Both happen in one
//! step on the server. [Some events break this order](Mutex#order). A waiter polls the lock only if no message can
//! notify it that the lock is free ([`Retry`]). For example, a program of another library may hold it.
//! [`Redlock::shutdown`] stops all waiters, and lets holders finish.
//!
//! # What is promised
//!
//! No two holders have the same lock at the same time, as long as both of these are true:
//!
//! 1. Each holder acts only while [`check`](Lease::check) is `Ok`, and nothing pauses it between the check and the act.
//! 2. A majority of the nodes keeps the key until its time-to-live ends. A node loses it early by a restart without
//!    persistence, a jump of its wall clock, or eviction. A failover to a replica that does not have the key has the
//!    same effect. With one node: that node loses nothing.
//!
//! If one of them may be false, give [`fencing_token`](Lease::fencing_token) to the protected resource with each write.
//! Let the resource refuse a token that is smaller than the largest one it has seen. No lock with a lease protects
//! against a holder that was paused. Only a fence does.
//!
//! Beyond that:
//!
//! - The client counts the lease from before it sent the request, less an allowance for drift. Its clock goes on while
//!   the machine sleeps. The wall clock of the client plays no part.
//! - The loss of a lock is final. A guard that has lost the lock goes on reporting the loss. It deletes nothing that is
//!   not its own.
//! - If an acquire fails, nothing is held. The client takes back what the acquire may have set. If a server cannot be
//!   reached for that, the key ends with its lease.
//! - `unlock()` is `Ok` as soon as a majority has confirmed it. If a node is down or left out at that moment, the
//!   client repeats the release in the background. It does so until the node answers or the lease ends. Until then the
//!   node cannot vote for another client. Such nodes are a minority.
//! - A server may still execute a request that the client has given up. The client writes the release behind it on the
//!   same connection. A connection that does not answer is replaced. The client keeps two such connections to each
//!   server, for eight node timeouts at most. What a server executes after that ends with its lease.
//! - A jump of a server's wall clock can end its keys early. With one node, the lock is `Lost` about a second later.
//!   With three or more, the lock survives the jump of one node while it has a spare vote. The next renewal sets the
//!   key on that node again.
//! - With several nodes, a node that has just restarted casts no vote, since it may have forgotten a lock.
//!   [`restart_guard`](Builder::restart_guard) states the limits of this rule.
//!
//! A picture of a lock's life, and what comes of each fault and of bad input: [`guarantees`].
//!
//! # When things go wrong
//!
//! [`Error`] has a variant for each situation, and says what may still be held after it. One table says what to do
//! about each: [errors, and how to react][errors].
//!
//! An [`Observer`] gets an event for each acquire, release, renewal and loss, for metrics. A guard says how long its
//! call [waited](Lease::waited), and for how long it has been [held](Lease::held_for). [`Redlock::health`] says what is
//! wrong with the servers, and [`Redlock::is_ready`] answers a readiness probe.
//!
//! # Settings
//!
//! [`Builder`] has the settings of a client, and [`Mutex`] those of a lock. Each states its default, and what a larger
//! or smaller value costs. [Tables][settings] list all of them. The default client and [`Builder::from_env`] read
//! settings from environment variables. [`Redlock::open`] and [`Redlock::builder`] read none.
//!
//! # Permissions
//!
//! If a server restricts its users (ACL), [one line for `ACL SETUSER`][permissions] makes a user that may do what the
//! library needs, and nothing else. If a required permission is missing, the first acquire is a
//! [`Config`](Error::Config) error, which names the permission.
//!
//! # Features
//!
//! - `macros`, on by default: [`distributed_lock`](macro@distributed_lock), [`key!`](macro@key),
//!   [`assert_locked!`](macro@assert_locked) and [`#[derive(LockKey)]`](derive@LockKey).
//! - `tls`: `rediss://` URLs, by rustls. See [TLS](#tls).
//! - `json`: bodies of tasks as JSON, by `serde`: `Task::json`, `Job::json` and `TaskInfo::json`.
//! - `serde`: what the library shows of locks, queues and servers, such as [`Snapshot`], can be serialized.
//! - `client`: `Builder::client` takes the settings of a client of the crate `redis`.
//! - `metrics`: the observer `Metrics`, which counts and measures by the crate `metrics`, for Prometheus and others.
//! - `tracing`: the observer `Tracing`, which writes events of the crate `tracing`, and a span around the bodies of
//!   annotated functions.
//! - `testing`: locks in memory, for the unit tests of programs that use this library: `Redlock::in_memory()` and the
//!   module `testing`.
//!
//! # TLS
//!
//! With feature `tls`, the URL `rediss://host/` stands for a connection by TLS 1.2 or 1.3. The client trusts the
//! authorities that the system trusts. To name others, or a certificate of this client, use
//! [`Builder::tls`](crate::Builder::tls) or environment variables. [Connect][tls] says what the client checks, and how
//! a running program replaces certificates.
//!
//! The call is a [`Config`](Error::Config) error if a certificate is not trusted or is for another host, or if
//! authorities cannot be read. The error says what to do. Nothing turns these checks off.
//!
//! # What this crate does not do
//!
//! - It is not async: it blocks threads. In a program with a runtime, use it [in `spawn_blocking`][async], or use
//!   `rslock`.
//! - It turns no read lock into a write lock: two readers that both wanted that would wait for ever.
//! - It does not survive a fork: a forked child cannot use its parent's client or guards. Fork first, then open a
//!   client in each process.
//! - It does not replace a transaction: if all protected data is in one database, the locks of that database are
//!   simpler and stronger.
//!
//! # Platforms
//!
//! Linux is the main platform. CI also runs the tests on macOS. On both, the library measures leases on a clock that
//! goes on while the machine sleeps. Elsewhere it uses `std::time::Instant`, which may stop meanwhile. A machine that
//! sleeps past its lease then learns of the loss late.
//!
//! [async]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#in-programs-with-an-async-runtime
//! [errors]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#errors
//! [settings]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#settings
//! [permissions]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#permissions
//! [operations]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#how-many-nodes
//! [tls]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#tls

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr, clippy::unreachable))]
// Where the documentation is hosted: says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// So that the paths the macros write lead here from this crate's own tests and examples too.
extern crate self as redlock_sync;

mod acquire;
mod cancel;
mod client;
mod clock;
mod default_client;
mod error;
mod facades;
mod fork;
mod handler;
mod handover;
mod health;
mod inner;
mod key;
mod latch;
mod leader;
mod lease;
mod lock;
mod names;
mod node;
mod observer;
mod once;
mod options;
mod parker;
mod protocol;
mod queue;
mod quorum;
#[cfg(feature = "serde")]
mod serial;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]
#[path = "../simulation/mod.rs"]
mod simulation;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod token;

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc(hidden)]
pub mod __private;

pub use cancel::Cancel;
pub use client::{Builder, HeldLock, Redlock, SeenLatch, SeenQueue, ShutdownReport, Snapshot, SnapshotOptions};
pub use error::{ConfigKind, Error, LostReason, NodeError};
#[cfg(feature = "metrics")]
pub use facades::Metrics;
#[cfg(feature = "tracing")]
pub use facades::Tracing;
pub use health::{Health, NodeHealth};
pub use key::LockKey;
pub use leader::{Leader, LeaderHandle};
pub use lease::{Lease, LeaseState};
pub use lock::count_down_latch::CountDownLatch;
pub use lock::holder::{HoldMode, Holder};
pub use lock::multi::{MultiLock, MultiLockGuard};
pub use lock::mutex::{GuardNoSend, GuardSend, Mutex, MutexGuard};
pub use lock::nested_hold::Unlocked;
pub use lock::permit::SemaphorePermit;
pub use lock::reentrant::{ReentrantMutex, ReentrantMutexGuard};
pub use lock::rw_guard::{RwLockReadGuard, RwLockWriteGuard};
pub use lock::rw_lock::RwLock;
pub use lock::semaphore::Semaphore;
pub use node::Credentials;
#[cfg(feature = "tls")]
pub use node::Tls;
pub use observer::{Event, LockKind, ObservedLock, Observer};
pub use once::{Once, RunOutcome};
pub use options::Retry;
pub use queue::Queue;
pub use queue::job::Job;
pub use queue::task::{IfQueued, Pushed, Task, TaskInfo};
pub use queue::worker::{Verdict, Worker};
pub use token::{LockId, LockToken};

#[cfg(feature = "macros")]
pub use redlock_macros::{LockKey, assert_locked, distributed_lock, key};
