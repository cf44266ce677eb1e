//! Nodes: the only part of the crate that opens sockets, and the only one that names the `redis` and `r2d2` crates.
//!
//! What a [`Node`] promises to the layers above:
//!
//! - A call goes to all nodes at the same time, over a few connections that all threads of a client share.
//! - Every wait has a bound.
//! - If it is not known whether the server executed a call, the failure says so ([`Executed::Maybe`]); it is never
//!   reported as a "no".
//! - A server executes two calls of a client about one key in the order in which they were written, as long as the
//!   earlier one is not answered and its connection not broken: so a release undoes an acquire that was given up.
//!
//! Its files, from the socket up:
//!
//! 1. `url.rs`: a node's URL and its address. `redact.rs`: how they are shown without a password.
//! 2. `resolve.rs`: names to addresses, in bounded time. `credentials.rs`: users and passwords that are asked for at
//!    each connection. `certificates.rs`: those of TLS.
//! 3. `reply.rs`: replies as values, and what the server's errors mean.
//! 4. `link.rs`: what a connection is, and how it broke. `stream.rs`: one to Redis; `socket.rs` dials it, `tls.rs`
//!    tells the errors of TLS that last, `duplex.rs` has its two ends. `memory/`: a server in memory, feature
//!    `testing`. `sentinel/`: a server that Sentinels watch.
//! 5. `background.rs`: the few threads that all nodes of a client share.
//! 6. `identities.rs`: which server each member really is, and whether two of them are one.
//! 7. `breaker.rs`: the circuit breaker of one server. `status.rs`: what the log says of it.
//! 8. `host.rs`: how to connect to a server, and how it is doing. `handshake.rs` is what is said on a new connection.
//! 9. `push.rs`: the push connection, which is subscribed to a channel.
//! 10. `pipes/`: the connections for calls. `server.rs`: one server with its connections.
//! 11. `cluster/`: a node that is a Redis Cluster, and where its calls go. `members.rs`: a [`Node`], which is that or
//!     one server.
//! 12. `exchange.rs`: the calls of one thread on their way. `post.rs`: a call that no thread waits for. `replicas.rs`:
//!     which replicas have what was written. `set.rs`: the nodes of a client.

mod background;
mod breaker;
#[cfg(feature = "tls")]
mod certificates;
mod cluster;
mod credentials;
mod duplex;
mod exchange;
mod handshake;
mod host;
mod identities;
mod link;
mod members;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
mod pipes;
mod post;
mod push;
mod redact;
mod redis_reply;
mod replicas;
mod resolve;
mod sentinel;
mod server;
mod set;
mod socket;
mod status;
mod stream;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod url;

use std::fmt;
use std::time::Duration;

use crate::clock::Tick;
pub(crate) use crate::protocol::reply::{Executed, Failure, FailureKind, Value};
pub(crate) use background::Background;
#[cfg(feature = "tls")]
pub use certificates::Tls;
pub(crate) use credentials::CredentialSource;
pub use credentials::Credentials;
pub(crate) use credentials::Login;
#[cfg(any(test, feature = "testing"))]
pub(crate) use link::Dial;
#[cfg(test)]
pub(crate) use link::{Broken, Connection, Halves};
pub(crate) use members::Node;
#[cfg(test)]
pub(crate) use pipes::ends::{Shut, Sink, Source};
#[cfg(feature = "client")]
pub(crate) use redis::Client as RedisClient;
pub(crate) use set::Nodes;
pub(crate) use url::NodeUrl;

/// What concerns the connections to every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Longest wait for one node: to connect, to write, to read.
    pub(crate) node_timeout: Duration,
    /// How many connections to each server all calls share.
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
            connections: 3,
            failover_guard: false,
            min_replicas_ack: 0,
        }
    }
}

/// Which calls go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Priority {
    /// Attempts to take a lock, and questions.
    Normal,
    /// Renewals and releases.
    High,
}

/// Which nodes a round asks.
pub(crate) type NodeFilter<'a> = &'a dyn Fn(usize) -> bool;

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
