//! Nodes: the servers of a client and the connections to them. Only this folder opens sockets, and only it names the
//! `redis` and `r2d2` crates.
//!
//! A [`Node`] promises to the layers above:
//!
//! - A call goes to all nodes at the same time, over a few connections that all threads of a client share.
//! - Every wait has a bound.
//! - If it is not known whether the server executed a call, the failure says so ([`Executed::Maybe`]). Such a call is
//!   never reported as a "no".
//! - A server executes two calls of a client about one key in the order in which they were sent. That holds as long as
//!   the connection of the key is not broken. So a release rolls back an acquire that timed out.
//!
//! The way of a call, down and back:
//!
//! 1. `set.rs`, `exchange.rs`: a thread sends its calls to all nodes, then waits for all. `target.rs`: one call to one
//!    node. `post.rs`: a release for which no thread waits, whose outcome goes to a callback.
//! 2. `members.rs`, `cluster/`: the server of a node. `server.rs`: whether it knows the script, and may be asked.
//! 3. `connections.rs`: the connection, by the hash of the key. `supply.rs`, `order.rs`: how connections are made.
//! 4. `transport/connection.rs`: bytes and entry are appended, and written. A write never waits.
//! 5. `transport/waiting.rs`: the thread reads, for itself and for others, or sleeps while another one reads.
//! 6. `transport/reading.rs`: each reply goes to the entry that is first, and from there to its thread or callback.
//! 7. `exchange.rs`: a broken call is sent once more, an unknown script with its source, a redirected call elsewhere. A
//!    call that is not answered becomes a failure. `redis_reply.rs`, `replicas.rs`: replies become values and failures.
//!
//! Around it:
//!
//! - `url.rs`, `redact.rs`, `resolve.rs`, `credentials.rs`, `certificates.rs`: what leads to a server. `link.rs`: the
//!   trait `Dial`. `socket.rs`, `stream.rs`, `duplex.rs`, `tls.rs`: sockets with deadlines. `handshake.rs`: the login.
//! - `host.rs`: the state of a server. `health.rs`: whether it is left out, and what was logged last.
//!   `known_scripts.rs`: the scripts that it has. `identities.rs`: which server each node really is.
//! - `sentinel/`: the master of a group. `memory/`: a server in memory, feature `testing`. `subscriber.rs`: a
//!   connection for messages. `background.rs`: threads.

mod background;
#[cfg(feature = "tls")]
mod certificates;
mod cluster;
mod connections;
mod credentials;
#[cfg(feature = "tls")]
mod duplex;
mod exchange;
mod handshake;
mod health;
mod host;
mod identities;
mod known_scripts;
mod link;
mod members;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
mod order;
mod post;
mod redact;
mod redis_reply;
mod replicas;
mod resolve;
mod sentinel;
mod server;
mod set;
mod socket;
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
pub(crate) use crate::protocol::reply::{Executed, Failure, FailureKind, PerNode, Value};
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
    pub(crate) results: PerNode<Result<Value, Failure>>,
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
