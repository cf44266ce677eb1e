//! The connections that all threads of a client share, and how threads wait for their calls.
//!
//! 1. `halves.rs`: the two halves of a connection, which are used at the same time. `framer.rs`: finds the end of each
//!    reply.
//! 2. `round.rs`: the outcomes of the calls of one thread. `call_queue.rs`: the calls of a connection, in their order.
//! 3. `connection.rs`: a connection, and how calls are written. `reading.rs`: how replies are read. `unattended.rs`:
//!    calls for which no thread waits.
//! 4. `waiting.rs`: a thread reads, or sleeps while others read. `drain.rs`: the thread that reads what nobody waits
//!    for.

pub(super) mod call_queue;
pub(super) mod connection;
pub(super) mod drain;
pub(super) mod framer;
pub(super) mod halves;
mod reading;
pub(super) mod round;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
mod unattended;
pub(super) mod waiting;
