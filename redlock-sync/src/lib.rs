//! Distributed locks on Redis or Valkey, for Rust programs that block and have no async runtime.
//!
//! A function is locked by one line above it:
//!
//! ```
//! # let server = redlock_tests::Server::start();
//! # redlock_sync::Redlock::set_default(redlock_sync::Redlock::open(server.url())?)?;
//! use redlock_sync::{Error, distributed_lock};
//!
//! #[distributed_lock("order:<id>")]
//! fn ship(id: u64) -> Result<String, Error> {
//!     Ok(format!("order {id} is on its way")) // for each order one process at a time is here
//! }
//!
//! assert_eq!(ship(42)?, "order 42 is on its way");
//! # Ok::<(), Error>(())
//! ```
//!
//! Its client is the default client of the process: made from [the environment](#settings-from-the-environment), or given to
//! [`Redlock::set_default`]. Keys, waiting, policies, and what the macro writes: [`distributed_lock`](macro@distributed_lock). The body never runs without
//! the lock.
//!
//! # A guard in a scope
//!
//! ```
//! # let server = redlock_tests::Server::start();
//! # let url = server.url();
//! use redlock_sync::Redlock;
//!
//! let locks = Redlock::open(&url)?; // such as "redis://127.0.0.1/"; keep it, clones share everything
//! let guard = locks.mutex("order:42").lock()?; // blocks until it is ours
//! for _step in 0..3 {
//!     guard.check()?; // still ours? reads a clock, does no I/O
//!     println!("UPDATE … WHERE fence <= {}", guard.fencing_token()?);
//! }
//! guard.unlock()?; // says how it went; dropping the guard releases too, and reports by the log
//! # Ok::<(), redlock_sync::Error>(())
//! ```
//!
//! A renewal thread of the guard's own lengthens the lease while the guard lives. Guards deref to [`Lease`], which has `check`, `remaining`,
//! `fencing_token`, `extend` and `on_lost`. Two kinds of lock take the same keys and exclude each other:
//!
//! - [`Mutex`]: a thread that has it and wants it again is told so ([`WouldDeadlock`](Error::WouldDeadlock)).
//! - [`ReentrantMutex`]: a thread that has it gets it again, without I/O. The attribute's default.
//!
//! Both have [`lock`](Mutex::lock), [`try_lock`](Mutex::try_lock), [`try_lock_for`](Mutex::try_lock_for) and
//! [`try_lock_until`](Mutex::try_lock_until). **`Ok` always means that the lock is held**; that somebody else has it is the error
//! [`Busy`](Error::Busy).
//!
//! # Several nodes
//!
//! With N independent servers a lock is held by a majority of them (the Redlock algorithm), and outlives the loss of the others. Nothing else
//! changes.
//!
//! ```
//! # let servers = redlock_tests::servers(3);
//! # let (a, b, c) = (servers[0].url(), servers[1].url(), servers[2].url());
//! use redlock_sync::Redlock;
//!
//! let locks = Redlock::builder().nodes([a, b, c]).build()?; // such as "redis://a.example/"
//! let guard = locks.mutex("order:42").lock()?; // two of the three said yes
//! # servers[0].kill();
//! guard.fencing_token()?; // one of them may die
//! # Ok::<(), redlock_sync::Error>(())
//! ```
//!
//! They must be masters that know nothing of each other. Take three or five; an even number tolerates no more failures than the odd one
//! below it. What can be set: [`Builder`].
//!
//! # Waiting
//!
//! Threads of one client that want the same lock stand in line, first come first served; only the first of them talks to the servers, and they hand
//! the lock on among themselves in memory. Between processes a release gives the lock to the one that has waited longest, in one step on the
//! server, and wakes it. Nobody polls but for a lock that another program holds. [`Redlock::close`] ends all waits.
//!
//! # What is promised
//!
//! No two holders have the same lock at the same time, as long as both of these are true:
//!
//! 1. Each holder acts only while [`check`](Lease::check) is `Ok`, and nothing pauses it between the check and the act.
//! 2. Fewer nodes than would break the majority lose the key before its time: by a restart without persistence, a jump of the server's wall clock,
//!    eviction, or a failover to a replica that does not have it. With one node that is: this node loses nothing.
//!
//! Where one of them may be false, give [`fencing_token`](Lease::fencing_token) to the protected resource, and let it refuse a token smaller than
//! the largest it has seen. No lock with a lease protects against a holder that was paused; only a fence does.
//!
//! # When things go wrong
//!
//! Each error, what may still be held after it, and what to do:
//!
//! | Error | What it means | Still held? | What to do |
//! |---|---|---|---|
//! | [`Busy`](Error::Busy) | somebody else has the lock, or the votes were split | nothing | wait, skip, or say so |
//! | [`Unavailable`](Error::Unavailable) from an acquire | no majority could be asked | nothing; a key that could not be taken back ends with its lease | try later |
//! | [`Unavailable`](Error::Unavailable) from [`extend`](Lease::extend), [`fencing_token`](Lease::fencing_token) | the same, while holding | the lock, as long as [`check`](Lease::check) is `Ok` | try again, or stop |
//! | [`Lost`](Error::Lost) | the lease ran out, or the key was taken or deleted | nothing; somebody else may have the lock | stop; what was done since the last `check` may have overlapped |
//! | [`Unconfirmed`](Error::Unconfirmed) from `unlock` | the release was sent and no majority confirmed it | nothing; the key may stay until its lease ends | go on; others may have to wait |
//! | [`WouldDeadlock`](Error::WouldDeadlock) | this thread has the lock already | the outer guard, as before | [`ReentrantMutex`], or lend `&Lease` |
//! | [`WrongType`](Error::WrongType) | the key has something that is no lock | from an acquire or `unlock` nothing; else ask `check` | another name or prefix |
//! | [`Config`](Error::Config) | a setting, a name, a URL or a server's set-up cannot work | from an acquire nothing; else ask `check` | correct it; trying again does not help |
//! | [`Closed`](Error::Closed) | the client was [closed](Redlock::close), or a forked child used its parent's client or guard | nothing | open another client; in the child, one of its own |
//!
//! `Lost` and `Unconfirmed` are not the same. After `Lost` the work may have overlapped with another holder's. After `Unconfirmed` it did not: the
//! lease had not run out when the release was sent. Only the way to the next holder takes longer.
//!
//! What servers do on their own, and what stays on one that could not be reached:
//!
//! - `unlock()` is `Ok` as soon as a majority confirmed it. A node that is down or left out at that moment keeps the key until its lease ends. It is one
//!   of a minority, and for others one vote less until then. This process knows the old token and is not stopped by it.
//! - A request that was given up may still be executed by the server. The release is written behind it on the same connection, which is
//!   kept for that. At most 16 such connections are kept for each node, the oldest are closed first. What then comes too late ends with its
//!   lease.
//! - A jump of a server's wall clock can end its keys early. Several nodes survive that of one while there is a spare vote; a node that lost the
//!   key is given it again at the next renewal. With one node the lock is `Lost` at the next renewal.
//! - A node that restarted just now may have forgotten a lock. It casts no vote ([`restart_guard`](Builder::restart_guard), with its limits).
//!
//! Forty-one faults and what comes of each: [`guarantees`].
//!
//! # Settings from the environment
//!
//! The default client reads these when it is first needed. Variables that are empty count as not set.
//!
//! | Variable | Meaning | Without it |
//! |---|---|---|
//! | `REDLOCK_NODES` | URLs of the servers, separated by commas | `REDIS_URL` |
//! | `REDIS_URL` | URL of the one server | an error that says how |
//! | `REDLOCK_LEASE` | [`lease`](Builder::lease), such as `30s`, `500ms`, `1m30s` | 30 s |
//! | `REDLOCK_NODE_TIMEOUT` | [`node_timeout`](Builder::node_timeout), likewise | 250 ms |
//! | `REDLOCK_KEY_PREFIX` | [`key_prefix`](Builder::key_prefix) | none |
//!
//! A client that is [opened](Redlock::open) or [built](Redlock::builder) reads none of them.
//!
//! # Permissions
//!
//! If a server restricts its users (ACL), this line makes a user that may do what the library needs for locks whose names begin with `order:`, and
//! nothing else. The URL names the user and the password: `redis://locks:secret@host/`.
//!
//! ```text
//! ACL SETUSER locks on >secret ~order:* ~{order:*}:* &redlock-sync:* +eval +evalsha +set +get +mget +del +exists +pexpire +pttl +time +zadd +zrem +zcard +zrange +zrevrange +zpopmin +zremrangebyrank +publish +subscribe +info +select
//! ```
//!
//! - `~order:*` matches the keys of the locks, and `~{order:*}:*` the keys beside them, such as `{order:42}:fence` and `{order:42}:queue`. If a name has
//!   a hash tag, such as `order:{7}:cart`, the first pattern matches all of its keys. With a [prefix](Builder::key_prefix) the patterns are `~PREFIXorder:*`
//!   and `~{PREFIXorder:*}:*`.
//! - `+eval` to `+zremrangebyrank` are required. If one of them is missing, or the right to one of a lock's keys, an acquire is
//!   [`Config`](Error::Config), names what is missing, and leaves nothing behind. The first acquire on each connection has the server check that, in
//!   the same request.
//! - `&redlock-sync:*`, `+publish` and `+subscribe` are optional: these are the channels on which processes that wait for a lock are told that it is
//!   theirs. Users made on Redis 7 may use no channel unless that is said. Without them such processes poll, each in its turn, and the log says so.
//! - `+info` is optional: without it, a replica is noticed only when it refuses a write, a member of a cluster when it redirects, two URLs of one
//!   server not at all, and [`restart_guard`](Builder::restart_guard) has no effect.
//! - `+select` is required only if a URL names a database other than 0.
//!
//! # Features
//!
//! - `macros`, on by default: [`distributed_lock`](macro@distributed_lock), [`key!`](macro@key), [`assert_locked!`](macro@assert_locked) and
//!   [`#[derive(LockKey)]`](derive@LockKey).
//! - `tls`: `rediss://` URLs, by rustls. See [TLS](#tls).
//! - `testing`: locks in memory, for the unit tests of programs that use this library: `Redlock::in_memory()` and the module `testing`.
//!
//! # TLS
//!
//! With feature `tls` a URL `rediss://host/` speaks TLS 1.2 or 1.3. The server's certificate has to be valid for the host as it stands in the URL, and to
//! be signed by an authority that this machine trusts:
//!
//! - If `SSL_CERT_FILE` (a file of certificates in PEM form) or `SSL_CERT_DIR` (directories of such files, separated by colons) is set, only the
//!   authorities in there are trusted. Use this for an authority of your own.
//! - Otherwise the system's authorities are trusted: on Linux those in the places where OpenSSL looks, such as `/etc/ssl/certs`; on macOS those of the
//!   keychain.
//!
//! They are read for each new connection. A certificate that is not trusted, one for another host, and authorities that cannot be read are
//! [`Config`](Error::Config) errors, which say what to do.
//!
//! Client certificates are not supported. By default Redis asks for one: set `tls-auth-clients no`, and let the client log in with a password.
//!
//! # What this crate does not do
//!
//! - async: it is for programs that block and have no runtime. With one, take `rslock`.
//! - read-to-write upgrade: two readers that both wait to upgrade would wait for ever.
//! - fork: a child cannot use its parent's client or guards. Fork first, then open a client in each process.
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
mod ear;
mod error;
mod fork;
mod key;
mod lease;
mod lock;
mod node;
mod primitive;
mod quorum;
mod reentry;
mod script;
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
mod simulation;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod token;
mod wait;

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

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
