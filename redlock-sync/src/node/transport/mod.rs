//! The connections that all threads of a client share, and how threads wait for their calls.
//!
//! 1. `halves.rs`: the two halves of a connection, which are used at the same time. `framer.rs`: finds the end of each
//!    reply.
//! 2. `connection.rs`: a connection: calls are written, and replies assigned to them.
//! 3. `round.rs`: the calls of one thread. It reads, or sleeps while others read.
//! 4. `drain.rs`: the thread that reads what nobody waits for.

pub(super) mod connection;
pub(super) mod drain;
pub(super) mod framer;
pub(super) mod halves;
pub(super) mod round;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
