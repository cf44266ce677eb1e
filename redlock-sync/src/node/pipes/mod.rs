//! Shared connections. All calls of a client to a server go over a few of them, in order, and a pool of `r2d2` makes and remakes them.
//!
//! 1. `framer.rs`: where replies end in bytes.
//! 2. `ends.rs`: a connection, whose two ends are used at the same time.
//! 3. `flight.rs`: a call on its way, and what its thread waits for.
//! 4. `outbox.rs`: calls that are not written, and those that are owed a reply. `pipe.rs`: one connection, shared by all threads. `pump.rs`: the thread
//!    that writes and reads for others. `waiting.rs`: how a thread waits.

mod ends;
mod flight;
mod framer;
mod outbox;
mod pipe;
mod pump;
mod waiting;
