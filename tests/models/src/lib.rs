//! Models of the library's threads:
//!
//! 1. Threads that sleep until a cell changes, or until they are cancelled (`parker.rs`, `cancel.rs`).
//! 2. The queue in which the threads of a process wait for a lock (`handover/thread_queue.rs`).
//! 3. The lease that several threads hold together (`handover/sharing.rs`).
//! 4. The threads that renew leases (`lease/renewal.rs`).
//! 5. A lease that is renewed, lost, revoked, handed over and ended at the same time (`lease`).
//! 6. The notification connection that waiting threads read in turn (`handover/listener`).
//! 7. The connections that all threads share (`node/transport`), and how threads wait for one (`node/connections.rs`).
//!
//! The models include the library's own source files, but replace its `sync` by one that belongs to the scheduler
//! `shuttle`. The scheduler runs a model many times. At each lock, notification and atomic access it decides which
//! thread runs next. If all threads wait forever, the scheduler reports a deadlock and the model fails.
//!
//! The modules of this crate are:
//!
//! 1. [`sync`]: mutexes, condition variables and threads on the scheduler.
//! 2. [`world`]: a clock that only the model advances, and a count of threads.
//! 3. [`handover`] and [`node`]: the real turns at the notification connection with a replacement for the connection,
//!    the real transport, and one server without a transport for [`leases`].
//! 4. [`parking`], [`queue`], [`sharing`], [`leases`], [`renewal`], [`turns`], [`transport`], [`unattended`],
//!    [`connecting`]: the models. [`listening`] has the fixtures of [`turns`], and [`wire`] has those of [`transport`].
//! 5. [`explore`]: runs a model under many schedules.

// The library's files have unit tests of their own. These tests need the real threads and more of the library.
#![cfg(not(test))]
#![allow(missing_docs, reason = "no interface for others")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model fails by panicking"
)]

/// Includes source files of the library. Parts of them are not used here.
macro_rules! from_library {
    ($($name:ident $path:literal)*) => {
        $(#[allow(dead_code, unused_imports, unreachable_pub)]
        #[path = $path]
        mod $name;)*
    };
}

from_library! {
    cancel "../../../redlock-sync/src/cancel.rs"
    clock "../../../redlock-sync/src/clock.rs"
    error "../../../redlock-sync/src/error.rs"
    fork "../../../redlock-sync/src/fork.rs"
    handler "../../../redlock-sync/src/handler.rs"
    key "../../../redlock-sync/src/key.rs"
    lease "../../../redlock-sync/src/lease/mod.rs"
    names "../../../redlock-sync/src/names.rs"
    observer "../../../redlock-sync/src/observer.rs"
    options "../../../redlock-sync/src/options.rs"
    parker "../../../redlock-sync/src/parker.rs"
    protocol "../../../redlock-sync/src/protocol/mod.rs"
    quorum "../../../redlock-sync/src/quorum/mod.rs"
    token "../../../redlock-sync/src/token.rs"
}

pub mod connecting;
pub mod explore;
#[allow(dead_code, unreachable_pub)]
mod handover;
pub mod leases;
mod listening;
#[allow(dead_code, unreachable_pub)]
mod node;
pub mod parking;
pub mod queue;
pub mod renewal;
pub mod sharing;
mod sync;
pub mod transport;
pub mod turns;
pub mod unattended;
mod wire;
mod world;
