//! Shared connections. All calls of a client to a server go over a few of them, in order, and a pool of `r2d2` makes and remakes them.
//!
//! 1. `framer.rs`: where replies end in bytes.
//! 2. `ends.rs`: a connection, whose two ends are used at the same time.
//! 3. `command.rs`: a call on its way, and what its thread waits for.
//! 4. `table.rs`: over which connection calls about a key go.
//! 5. `outbox.rs`: calls that are not written, and those that are in_flight a reply. `pipe.rs`: one connection, shared by all threads. `pump.rs`: the thread
//!    that writes and reads for others. `waiting.rs`: how a thread waits.
//! 6. `arrivals.rs`: where threads wait for connections. `connections.rs`: those to one server. `supply.rs`: what gives them.
//!
//! What differs from the first sketch, and why:
//!
//! - What is in_flight a reply has a mutex of its own. If that of the writing end guarded it, a thread that waits for room in the socket would keep the reader
//!   from reading, which is what makes room.
//! - A writer that was found at work looks at the outbox once more when it is done. Without that a call can stay there.
//! - The pump counts no sleepers. It reads as long as a thread waits for any call that is in_flight, and looks at that under the mutex under which calls move
//!   from the outbox to what is in_flight.
//! - Permissions are checked by the first acquire on a server, as before, and not when a connection is made: an ACL can be about keys, and none is known
//!   then. A release carries its source until the server has executed one.
//! - A connection that was replaced is read to its end, and not kept unread.

pub(super) mod arrivals;
pub(super) mod command;
pub(super) mod connections;
pub(super) mod ends;
pub(super) mod framer;
mod outbox;
pub(super) mod pipe;
mod pump;
pub(super) mod supply;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
pub(super) mod waiting;
