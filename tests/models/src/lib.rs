//! Models of the library's threads: the queue in which the threads of a process wait for a lock (`handover/thread_queue.rs`), the lease that they hold together
//! (`handover/sharing.rs`), the threads that renew leases (`lease/renewal.rs`), the notification connection that waiting threads read in turn (`handover/listener`), and the connections that all threads
//! share (`node/pipes`).
//!
//! These are the library's own files. In place of its `sync` they get one that belongs to the scheduler `shuttle`, which runs a model many
//! times and decides at every lock, notification and atomic which thread goes on. A thread that waits for ever is a deadlock, and fails the model.
//!
//! 1. [`sync`]: mutexes, condition variables and threads on that scheduler.
//! 2. [`world`]: a clock that moves only when a model says so, and a count of threads.
//! 3. [`lease`]: the real renewal threads, and a lease that counts its rounds instead of sending them.
//! 4. [`handover`] and [`node`]: the real turns at the notification connection, and what such a connection is; the real pipes.
//! 5. [`queue`], [`sharing`], [`renewal`], [`relay`], [`turns`], [`pipes`]: the models. The fourth is of the first and third together;
//!    [`listening`] is what the fifth has, [`piping`] what the last has.
//! 6. [`explore`]: how often, and in which order of threads, a model is run.

// The library's files have unit tests of their own, which need the real threads and more of the library.
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

/// The library's own files, with what they have for others that is not used here.
macro_rules! from_library {
    ($($name:ident $path:literal)*) => {
        $(#[allow(dead_code, unreachable_pub)]
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
    names "../../../redlock-sync/src/names.rs"
    observer "../../../redlock-sync/src/observer.rs"
    options "../../../redlock-sync/src/options.rs"
    token "../../../redlock-sync/src/token.rs"
}

pub mod explore;
#[allow(dead_code, unreachable_pub)]
mod handover;
mod lease;
mod listening;
#[allow(dead_code, unreachable_pub)]
mod node;
pub mod pipes;
mod piping;
mod protocol;
pub mod queue;
pub mod relay;
pub mod renewal;
pub mod sharing;
mod sync;
pub mod turns;
mod world;
