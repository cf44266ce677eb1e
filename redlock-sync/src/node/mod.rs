//! Nodes: the only part of the crate that opens sockets, and the only one that names the `redis` and `r2d2` crates.
//!
//! What a [`Node`] promises to the layers above:
//!
//! - A round asks all nodes at the same time, and shares connections with the rounds of other threads: a client has a
//!   few lines, however many threads it has.
//! - Every wait has a bound.
//! - If it is not known whether the server executed a call, the failure says so ([`Executed::Maybe`]); it is never
//!   reported as a "no".
//! - An acquire that was given up keeps its connection for a while, and a release for the same token is written behind
//!   it there: the server executes them in this order.
//!
//! Its files, from the wire up:
//!
//! 1. `url.rs`: a node's URL and its address. `redact.rs`: how they are shown without a password.
//! 2. `resolve.rs`: names to addresses, in bounded time. `credentials.rs`: users and passwords that are asked for at
//!    each connection. `certificates.rs`: those of TLS.
//! 3. `reply.rs`: replies as values, and what the server's errors mean.
//! 4. `link.rs`: what a connection is, and how it broke. `stream.rs`: one to Redis; `socket.rs` dials it, `tls.rs`
//!    tells the errors of TLS that last. `memory/`: a server in memory, feature `testing`. `sentinel/`: a server that
//!    Sentinels watch.
//! 5. `background.rs`: the few threads that all nodes of a client share.
//! 6. `identities.rs`: which server each member really is, and whether two of them are one.
//! 7. `health.rs`: the circuit breaker of one node. `condition.rs`: what the log says of it.
//! 8. `host.rs`: what everything about one server shares; connects and probes. `handshake.rs` is what is said on a new
//!    connection.
//! 9. `late.rs`: calls whose reply did not come in time, kept so that a release can go behind.
//! 10. `push.rs`: the push connection, which is subscribed to a channel. `server.rs`: one server.
//! 11. `line.rs`: a line, which is one connection to each node, and how r2d2 keeps the lines.
//! 12. `bodies.rs`: calls that carry bodies of tasks, and go alone. `depot.rs`: which thread uses a line, and which
//!     rounds travel along. `round.rs` is what is noted of a round.
//! 13. `batch.rs`: rounds on their way, led by one thread over one line. `ride.rs` is what it carries,
//!     `batch/replicas.rs` which replicas have what was written, `batch/alone.rs` a call that goes alone. `direct.rs`
//!     is the usual round of one thread to one server, without a batch.
//! 14. `cluster/`: a node that is a Redis Cluster, and where its calls go. `members.rs`: a [`Node`], which is that or
//!     one server.
//! 15. `wire.rs`: all that together: a round. `set.rs`: the nodes of a client.

mod background;
mod batch;
mod bodies;
#[cfg(feature = "tls")]
mod certificates;
mod cluster;
mod condition;
mod credentials;
mod depot;
mod direct;
mod duplex;
mod handshake;
mod health;
mod host;
mod identities;
mod late;
mod line;
mod link;
mod members;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
// Used by its own tests only, until it takes the place of lines, depot, batches, rides and late sockets. That change removes this line.
#[allow(dead_code, reason = "the transport that stands is used until the next change")]
mod pipes;
mod push;
mod redact;
mod reply;
mod resolve;
mod ride;
mod round;
mod sentinel;
mod server;
mod set;
mod socket;
mod stream;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod wire;

use std::fmt;
use std::time::Duration;

use crate::clock::Tick;
pub(crate) use crate::protocol::reply::{Executed, Failure, FailureKind, Value};
pub(crate) use background::Background;
#[cfg(feature = "tls")]
pub use certificates::Tls;
pub(crate) use credentials::Asked;
pub use credentials::Credentials;
pub(crate) use credentials::Login;
#[cfg(any(test, feature = "testing"))]
pub(crate) use link::Dial;
#[cfg(test)]
pub(crate) use link::{Broken, Connection};
pub(crate) use members::Node;
pub(crate) use set::Nodes;
pub(crate) use url::NodeUrl;

/// What concerns the connections to every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Longest wait for one node: to connect, to write, to read.
    pub(crate) node_timeout: Duration,
    /// Lines for ordinary rounds. There is one more, so that releases find one.
    pub(crate) connections: u32,
    /// A server that has become the master of its group counts as restarted at that moment.
    pub(crate) failover_guard: bool,
    /// So many replicas have to have what gives or lengthens a lease; 0: none is asked.
    pub(crate) min_replicas_ack: u32,
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings {
            node_timeout: Duration::from_millis(250),
            connections: 2,
            failover_guard: false,
            min_replicas_ack: 0,
        }
    }
}

/// Which connections a call may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Attempts to take a lock, and questions: they may have to wait for a connection.
    Ordinary,
    /// Renewals and releases: they have connections set aside, so that they never wait behind attempts.
    Reserved,
}

/// Which nodes a round asks.
pub(crate) type Ask<'a> = &'a dyn Fn(usize) -> bool;

/// What the nodes said to a call.
#[derive(Debug)]
pub(crate) struct Answers {
    /// One for each node.
    pub(crate) results: Vec<Result<Value, Failure>>,
    /// The moment before the first byte.
    pub(crate) started: Tick,
    /// A transmission of this call broke off and was repeated: its copy could still be executed, out of order.
    pub(crate) duplicate: bool,
}

/// A connection on which a channel is subscribed.
pub(crate) trait Push: Send + fmt::Debug {
    /// Waits for a message for `timeout` at most.
    fn receive(&mut self, timeout: Duration) -> Heard;
}

/// How a wait for a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Vec<u8>),
    Nothing,
    /// The connection is of no more use; with a message.
    Broken(String),
}
