//! Distributed locks on Redis or Valkey, for synchronous programs: no `async`, no runtime.
//!
//! A function is locked by one line above it:
//!
//! ```
//! # let server = redlock_tests::Server::start();
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
//! Its client is the default client of the process: made from [environment variables](Redlock::default_client), or
//! given to [`Redlock::set_default`]. Keys, waiting, policies, and what the macro writes:
//! [`distributed_lock`](macro@distributed_lock). The body never runs without the lock.
//!
//! # A guard in a scope
//!
//! ```
//! # let server = redlock_tests::Server::start();
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
//! `check`, `remaining`, `fencing_token`, `extend` and `on_lost`. Two kinds of lock use the same keys and exclude each
//! other:
//!
//! - [`Mutex`]: a thread that has it and wants it again gets an error ([`WouldDeadlock`](Error::WouldDeadlock)).
//! - [`ReentrantMutex`]: a thread that has it gets it again, without I/O. The attribute's default.
//!
//! Both have [`lock`](Mutex::lock), [`try_lock`](Mutex::try_lock), [`try_lock_for`](Mutex::try_lock_for) and
//! [`try_lock_until`](Mutex::try_lock_until). **`Ok` from them means that the guard held the lock when the call
//! returned**; that another holder has it is the error [`Busy`](Error::Busy). A third kind, [`RwLock`], has keys of
//! another type: any number of readers hold it at a time, or one writer.
//!
//! A [`Semaphore`] admits a fixed number of holders at a time, each with a lease of its own; its
//! [`acquire`](Semaphore::acquire) takes the place of `lock`.
//!
//! A [`MultiLock`] is several mutexes at once, all or none. A [`CountDownLatch`] is not a lock, but threads wait for it
//! in the same way: it opens when a given number of workers have arrived.
//!
//! Two more are built on a mutex. [`RunOnce`] runs a job once for each name, such as a report for each day. Of several
//! processes, a [`Leader`] is the one that works, and another one takes over when it dies. A [`Cancel`] ends the waits
//! of any of these from another thread.
//!
//! # Several nodes
//!
//! With N independent servers a lock is held by a majority of them (the Redlock algorithm), and outlives the loss of
//! the others. Nothing else changes.
//!
//! ```
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
//! They must be independent masters, not replicas of each other: [how many, and how to run them][operations]. What can
//! be set: [`Builder`].
//!
//! # Waiting
//!
//! Threads of one client that want the same lock stand in a queue, first come first served. Only the first of them
//! talks to the servers, and they hand the lock to each other in memory, for 20 ms at a time if other processes wait
//! too. Between processes a release gives the lock to the process that has waited longest and wakes it, in one step on
//! the server; [what breaks this order](Mutex#order). A lock is polled only when no message notifies the waiter, as
//! when a program of another library holds it ([`Retry`]). [`Redlock::shutdown`] ends all waits, and lets holders
//! finish.
//!
//! # What is promised
//!
//! No two holders have the same lock at the same time, as long as both of these are true:
//!
//! 1. Each holder acts only while [`check`](Lease::check) is `Ok`, and nothing pauses it between the check and the act.
//! 2. A majority of the nodes keeps the key until its time-to-live ends. A node loses it early by a restart without
//!    persistence, a jump of its wall clock, eviction, or a failover to a replica that does not have it. With one node:
//!    that node loses nothing.
//!
//! Where either may be false, give [`fencing_token`](Lease::fencing_token) to the protected resource with each write,
//! and let it refuse a token smaller than the largest it has seen. No lock with a lease protects against a holder that
//! was paused; only a fence does.
//!
//! Beyond that:
//!
//! - The lease counts from before the request was sent, less an allowance for drift, on a clock that goes on while the
//!   machine sleeps. The wall clock of the client plays no part.
//! - Losing a lock is final. A guard that lost it goes on reporting the loss, and deletes nothing that is not its own.
//! - After an acquire that failed nothing is held. What it may have set is released again. If no server could be
//!   reached, it ends with its lease.
//! - `unlock()` is `Ok` as soon as a majority confirmed it. A node that is down or left out at that time gets the
//!   release in the background, as soon as it answers, unless the lease has ended by then. Such nodes are a minority:
//!   until then such a node cannot vote for another client.
//! - A request that was given up may still be executed by the server. The release is written behind it on the same
//!   connection, which is kept for that. At most 16 such connections are kept for each node; beyond that the oldest is
//!   closed, and what it still brings about ends with its lease.
//! - A jump of a server's wall clock can end its keys early. With three nodes or more the lock survives such a jump on
//!   one node while it has a spare vote; a node that lost the key is given it again at the next renewal. With one node
//!   the lock is `Lost` at the next renewal.
//! - With several nodes, one that has just restarted casts no vote, since it may have forgotten a lock
//!   ([`restart_guard`](Builder::restart_guard), with its limits).
//!
//! Forty-one faults and fourteen kinds of bad input, and what comes of each: [`guarantees`].
//!
//! # When things go wrong
//!
//! [`Error`] has a variant for each situation, and says what may still be held after it. What to do about each is in
//! one table: [errors, and how to react][errors].
//!
//! An [`Observer`] is notified of waits, holds, renewals and losses, for metrics; [`waited`](Lease::waited) and
//! [`held_for`](Lease::held_for) ask a guard. [`Redlock::health`] says what is wrong with the servers, and
//! [`Redlock::is_ready`] answers a readiness probe.
//!
//! # Settings
//!
//! [`Builder`] has those of a client and [`Mutex`] those of a lock, each with its default and what a larger or smaller
//! value costs. All of them [in tables][settings]. The default client and [`Builder::from_env`] read them from
//! environment variables; a client that is [opened](Redlock::open) or built by [`Redlock::builder`] reads none.
//!
//! # Permissions
//!
//! If a server restricts its users (ACL), [one line for `ACL SETUSER`][permissions] makes a user that may do what the
//! library needs and nothing else. A required permission that is missing is a [`Config`](Error::Config) error of the
//! first acquire, which names it.
//!
//! # Features
//!
//! - `macros`, on by default: [`distributed_lock`](macro@distributed_lock), [`key!`](macro@key),
//!   [`assert_locked!`](macro@assert_locked) and [`#[derive(LockKey)]`](derive@LockKey).
//! - `tls`: `rediss://` URLs, by rustls. See [TLS](#tls).
//! - `json`: bodies of tasks as JSON, by `serde`: `Task::json`, `Job::json` and `Entry::json`.
//! - `metrics`: the observer `Metrics`, which counts and measures by the crate `metrics`, for Prometheus and others.
//! - `tracing`: the observer `Tracing`, which writes events of the crate `tracing`, and a span around the bodies of
//!   annotated functions.
//! - `testing`: locks in memory, for the unit tests of programs that use this library: `Redlock::in_memory()` and the
//!   module `testing`.
//!
//! # TLS
//!
//! With feature `tls` a URL `rediss://host/` speaks TLS 1.2 or 1.3, by rustls. [`Builder::tls`](crate::Builder::tls),
//! or variables, name authorities of your own and the certificate of this client; without them the system's authorities
//! are trusted. [Connect][tls] says what is checked, and how certificates are replaced while the program runs.
//!
//! A certificate that is not trusted, one for another host, and authorities that cannot be read are
//! [`Config`](Error::Config) errors, which say what to do. Nothing turns these checks off.
//!
//! # What this crate does not do
//!
//! - async: it blocks threads. In a program with a runtime, use it [in `spawn_blocking`][async], or use `rslock`.
//! - Turn a read lock into a write lock: two readers that both wait for that would wait for ever.
//! - Survive a fork: a forked child cannot use its parent's client or guards. Fork first, then open a client in each
//!   process.
//! - Replace a transaction: if everything protected is in one database, that database's own locks are simpler and
//!   stronger.
//!
//! # Platforms
//!
//! Linux is the main platform; macOS is supported. On both, leases are measured on a clock that goes on while the
//! machine sleeps. Elsewhere `std::time::Instant` is used, which may stop in suspend: a machine that sleeps past its
//! lease learns of the loss late.
//!
//! [async]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/async.md
//! [errors]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/errors.md
//! [settings]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/settings.md
//! [permissions]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/permissions.md
//! [operations]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#servers
//! [tls]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/connect.md#tls

#![forbid(unsafe_code)]
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
pub use client::{Builder, Ended, HeldLock, Redlock, SeenLatch, SeenQueue, Snapshot, SnapshotOptions};
pub use error::{Error, LostReason, NodeError};
#[cfg(feature = "metrics")]
pub use facades::Metrics;
#[cfg(feature = "tracing")]
pub use facades::Tracing;
pub use health::{Health, NodeHealth};
pub use key::LockKey;
pub use leader::{Leader, LeaderHandle};
pub use lease::{Lease, LeaseState};
pub use lock::hold::Unlocked;
pub use lock::holder::{HoldMode, Holder};
pub use lock::latch::CountDownLatch;
pub use lock::multi::{MultiLock, MultiLockGuard};
pub use lock::mutex::{GuardSend, Mutex, MutexGuard, ThreadBound};
pub use lock::permit::SemaphorePermit;
pub use lock::reentrant::{ReentrantMutex, ReentrantMutexGuard};
pub use lock::rw_guard::{RwLockReadGuard, RwLockWriteGuard};
pub use lock::rw_lock::RwLock;
pub use lock::semaphore::Semaphore;
pub use node::Credentials;
#[cfg(feature = "tls")]
pub use node::Tls;
pub use observer::{Event, LockKind, ObservedLock, Observer};
pub use once::{Once, RunOnce};
pub use options::Retry;
pub use queue::Queue;
pub use queue::job::Job;
pub use queue::task::{Entry, IfQueued, Pushed, Task};
pub use queue::worker::{Verdict, Worker};
pub use token::{LockId, LockToken};

#[cfg(feature = "macros")]
pub use redlock_macros::{LockKey, assert_locked, distributed_lock, key};
