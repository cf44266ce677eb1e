//! How a lock changes hands: all of it, from thread to thread and from process to process.
//!
//! 1. [`rules`]: chains of holders, pauses for programs of other libraries, and how long a grant stands. Pure.
//! 2. [`queue`]: between the threads of one process.
//! 3. [`grant`]: between processes: what a wait is to the servers, and when a grant to it is the lock.
//! 4. [`listener`]: how a process is told.
//! 5. [`wait`]: how a thread waits for other processes.

pub(crate) mod grant;
pub(crate) mod listener;
pub(crate) mod queue;
pub(crate) mod rules;
pub(crate) mod wait;
