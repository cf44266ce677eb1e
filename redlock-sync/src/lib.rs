//! Distributed locks on Redis for Rust programs that block.
//!
//! A lock is an RAII guard with a renewal thread of its own. It is held on one Redis server, or on a majority of N independent ones
//! (Redlock). The library tells the holder when a lock is gone before anybody else can have it, and hands out a fencing token
//! so that the protected resource can refuse a holder that is late.
//!
//! ```
//! # let server = redlock_tests::Server::start();
//! # let url = server.url();
//! use redlock_sync::Redlock;
//!
//! let locks = Redlock::open(&url)?; // such as "redis://127.0.0.1/"
//! let guard = locks.mutex("order:42").lock()?; // blocks until it is ours
//! guard.check()?; // still ours? no I/O
//! println!("UPDATE … WHERE fence < {}", guard.fencing_token()?);
//! guard.unlock()?; // or drop it
//! # Ok::<(), redlock_sync::Error>(())
//! ```
//!
//! # What is promised
//!
//! Two holders never hold the same lock at the same time, provided that
//!
//! 1. the holder acts only while [`check`](Lease::check) is `Ok`, with no pause between the check and the act, and
//! 2. fewer nodes than would break the majority lose the key early: by a restart without persistence, a jump of the server's wall clock, eviction, or a
//!    failover to a replica that lacks it. With one node that is: the node keeps its data.
//!
//! Outside that, use [`fencing_token`](Lease::fencing_token) at the protected resource. No lock with a lease protects against a paused
//! holder; only a fence does.
//!
//! # What this crate does not do
//!
//! - async: it is for programs that block and have no runtime. With one, take `rslock`.
//! - read-to-write upgrade: two readers that both wait to upgrade would wait for ever.
//! - a forked child cannot use its parent's client. Fork first, then open a client in each process.
//!
//! # Platforms
//!
//! Linux first; macOS is supported. There leases are measured on a clock that goes on while the machine sleeps. Elsewhere
//! `std::time::Instant` is used, which may stop in suspend: a machine that sleeps past its lease learns of the loss late.

#![forbid(unsafe_code)]

// So that the paths the macros write lead here from this crate's own tests and examples too.
extern crate self as redlock_sync;

mod acquire;
mod client;
mod clock;
mod config;
mod default_client;
mod error;
mod gate;
mod key;
mod lease;
mod lock;
mod node;
mod primitive;
mod quorum;
mod reentry;
mod script;
mod token;
mod wait;

#[doc(hidden)]
pub mod __private;

pub use acquire::Holder;
pub use client::{Builder, Redlock};
pub use config::Retry;
pub use error::{Error, LostReason, NodeError};
pub use key::LockKey;
pub use lease::{Lease, LeaseState};
pub use lock::mutex::{Mutex, MutexGuard, Sendable, ThreadBound};
pub use lock::reentrant::{ReentrantMutex, ReentrantMutexGuard, Unlocked};
pub use token::LockId;

#[cfg(feature = "macros")]
pub use redlock_macros::{LockKey, assert_locked, distributed_lock, key};
