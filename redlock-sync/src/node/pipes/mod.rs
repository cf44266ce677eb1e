//! Shared connections. All calls of a client to a server go over a few of them, in order, and a pool of `r2d2` makes and remakes them.
//!
//! 1. `framer.rs`: where replies end in bytes.
//! 2. `ends.rs`: a connection, whose two ends are used at the same time.
//! 3. `flight.rs`: a call on its way, and what its thread waits for.
//! 4. `table.rs`: over which connection calls about a key go.
//! 5. `outbox.rs`: calls that are not written, and those that are owed a reply. `pipe.rs`: one connection, shared by all threads. `pump.rs`: the thread
//!    that writes and reads for others. `waiting.rs`: how a thread waits.
//! 6. `arrivals.rs`: where threads wait for connections. `server.rs`: the connections to one server, and what gives them. `connector.rs`: how `r2d2` makes
//!    them.
//! 7. `exchange.rs`: one call to all servers.

mod arrivals;
mod connector;
pub(super) mod ends;
mod exchange;
mod flight;
mod framer;
mod outbox;
mod pipe;
mod pump;
mod server;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
mod waiting;
