//! Shared connections. All calls of a client to a server go over a few connections, in order. An `r2d2` pool makes the
//! connections and replaces them.
//!
//! 1. `framer.rs`: finds the end of each reply in the bytes of a connection.
//! 2. `halves.rs`: the two halves of a connection, which are used at the same time.
//! 3. `command.rs`: a call on its way to a server, and the outcomes that its thread waits for.
//! 4. `table.rs`: chooses one connection for all unanswered calls about a key.
//! 5. `outbox.rs`: calls to be written, and calls in flight. `pipe.rs`: one connection, shared by all threads.
//!    `writing.rs`: how calls are written. `pump.rs`: the thread that writes and reads for others. `waiting.rs`: how a
//!    thread waits.
//! 6. `arrivals.rs`: how threads wait for new connections. `connections.rs`: all connections to one server.
//!    `supply.rs`: makes connections.
//!
//! Some choices that are not obvious:
//!
//! - The calls in flight have their own mutex. A thread that waits for room in the socket holds the mutex of the
//!   writing half. If that guarded the calls in flight, the reader could not read, and only reading makes room.
//! - A thread that finds another one writing leaves a mark. The other thread checks the outbox again when it is done.
//!   Otherwise a call could stay there.
//! - The pump does not count sleeping threads. It reads while a thread waits for any call in flight. It checks this
//!   under the mutex under which calls move from the outbox to the calls in flight.
//! - The first acquire on a server checks the user's permissions. They are not checked when connecting, because an ACL
//!   may depend on keys, and no key is known then. A release carries its source until the server has executed one.
//! - A replaced connection is read until all its calls are answered.

pub(super) mod arrivals;
pub(super) mod command;
pub(super) mod connections;
pub(super) mod framer;
pub(super) mod halves;
mod outbox;
pub(super) mod pipe;
mod pump;
mod supply;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
pub(super) mod waiting;
pub(super) mod writing;
