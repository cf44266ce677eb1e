//! Nodes: the servers of a client and the connections to them. Only this folder opens sockets, and only it names the
//! `redis` and `r2d2` crates.
//!
//! A [`Node`] promises to the layers above:
//!
//! - A call goes to all nodes at the same time, over a few connections that all threads of a client share.
//! - Every wait has a bound.
//! - If it is not known whether the server executed a call, the failure says so ([`Executed::Maybe`]). Such a call is
//!   never reported as a "no".
//! - A server executes two calls of a client about one key in the order in which they were written. That holds as long
//!   as the earlier one is unanswered and its connection is not broken. So a release rolls back an acquire that timed
//!   out.
//!
//! The files, from the socket up:
//!
//! 1. `url.rs`: parses the URL of a node. `redact.rs`: shows a URL without its passwords.
//! 2. `resolve.rs`: resolves host names in bounded time. `credentials.rs`: asks the application for users and
//!    passwords. `certificates.rs`: the certificates of TLS.
//! 3. `redis_reply.rs`: converts replies to values, and errors of the server to failures.
//! 4. `link.rs`: the trait `Dial`, and a connection before threads share it. `stream.rs`: a socket with deadlines, and
//!    its two halves. `duplex.rs`: the same behind TLS. `socket.rs`: dials. `tls.rs`: which TLS errors are permanent.
//!    `memory/`: a server in memory, feature `testing`. `sentinel/`: the master of a Sentinel group.
//! 5. `background.rs`: the thread pool that all nodes of a client share.
//! 6. `identities.rs`: which server each node really is, and whether two nodes are the same server.
//! 7. `breaker.rs`: the circuit breaker of a server. `status.rs`: the status that was logged last.
//! 8. `host.rs`: how to connect to one server, and its state. `handshake.rs`: the handshake on a new connection.
//! 9. `subscriber.rs`: a connection that is subscribed to a channel.
//! 10. `transport/`: the connections that threads share. `arrivals.rs`, `supply.rs`: how connections are made.
//!     `connections.rs`: those to one server. `server.rs`: a server with its connections.
//! 11. `cluster/`: a node that is a Redis Cluster. `members.rs`: a [`Node`], which is a single server or a cluster.
//! 12. `exchange.rs`: sends the calls of one thread and waits for the replies. `target.rs`: one call to one node.
//!     `post.rs`: sends a release without waiting. `replicas.rs`: counts the replicas that have a write. `set.rs`: all
//!     nodes of a client.

mod arrivals;
mod background;
mod breaker;
#[cfg(feature = "tls")]
mod certificates;
mod cluster;
mod connections;
mod credentials;
#[cfg(feature = "tls")]
mod duplex;
mod exchange;
mod handshake;
mod host;
mod identities;
mod link;
mod members;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
mod post;
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
mod subscriber;
mod supply;
mod target;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod url;

use std::fmt;
use std::time::Duration;

use crate::clock::Tick;
pub(crate) use crate::protocol::reply::{Executed, Failure, FailureKind, Few, Value};
pub(crate) use background::Background;
#[cfg(feature = "tls")]
pub use certificates::Tls;
pub(crate) use credentials::CredentialSource;
pub use credentials::Credentials;
pub(crate) use credentials::Login;
#[cfg(any(test, feature = "testing"))]
pub(crate) use link::Dial;
#[cfg(test)]
pub(crate) use link::{Broken, Halves};
pub(crate) use members::Node;
#[cfg(feature = "client")]
pub(crate) use redis::Client as RedisClient;
pub(crate) use redis_reply::is_about_permission;
pub(crate) use set::Nodes;
#[cfg(test)]
pub(crate) use transport::halves::{Sink, Source};
pub(crate) use url::NodeUrl;

/// Selects the nodes of a round by their index.
pub(crate) type NodeFilter<'a> = &'a dyn Fn(usize) -> bool;

/// Which nodes a round waits for.
#[derive(Clone, Copy)]
enum Awaits<'a> {
    /// All of them, until its deadline.
    All,
    /// A majority that says the same, and a moment for the others. So a slow node does not set the pace. Only the yes
    /// of these nodes counts.
    Majority(NodeFilter<'a>),
}

/// The answers of the nodes to one call.
#[derive(Debug)]
pub(crate) struct Answers {
    /// One result for each node.
    pub(crate) results: Few<Result<Value, Failure>>,
    /// The time before the first byte was written.
    pub(crate) started: Tick,
    /// True if the call was sent twice because a connection broke. The first copy may still be executed, out of order.
    pub(crate) duplicate: bool,
}

/// A connection that is subscribed to one channel.
pub(crate) trait Subscriber: Send + fmt::Debug {
    /// Waits for a message, for at most `timeout`.
    fn receive(&mut self, timeout: Duration) -> Heard;
}

/// The result of a wait for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Vec<u8>),
    Nothing,
    /// The connection cannot be used any more. The string says why.
    Broken(String),
}
