//! Nodes: the only part of the crate that opens sockets, and the only one that names the `redis` and `r2d2` crates.
//!
//! What a [`Node`] promises to the layers above:
//!
//! - Writing a call does not wait for its reply, so that one thread can ask all nodes at the same time.
//! - Every wait has a bound.
//! - If it is not known whether the server executed a call, the failure says so ([`Executed::Maybe`]); it is never reported as a "no".
//! - An acquire that was given up keeps its connection for a while, and a release for the same token is written behind it there: the server
//!   executes them in this order.
//!
//! What is inside, from the wire up:
//!
//! 1. `url.rs`: a node's URL, its address, and how both are shown without a password.
//! 2. `resolve.rs`: names to addresses, in bounded time.
//! 3. `reply.rs`: replies as values, and what the server's errors mean.
//! 4. `link.rs`: one connection, and how it broke. `tls.rs` tells the errors of TLS that last.
//! 5. `background.rs`: the few threads that all nodes of a client share.
//! 6. `roster.rs`: which server each member really is, and whether two of them are one.
//! 7. `health.rs`: the circuit breaker of one node. `condition.rs`: what the log says of it.
//! 8. `host.rs`: what everything about one server shares; connects and probes. `handshake.rs` is the talk on a new connection.
//! 9. `manager.rs`: how r2d2 gets its connections.
//! 10. `pool.rs`: the two pools of a node and how a call takes a connection from them.
//! 11. `late.rs`: sockets whose reply did not come in time, kept so that a release can go behind.
//! 12. `push.rs`: the push connection, which is subscribed to a channel.
//! 13. `server.rs`: [`Node`] for a Redis server. `call.rs` is one call that is on its way.
//! 14. `set.rs`: all nodes of a client.

mod background;
mod call;
mod condition;
mod handshake;
mod health;
mod host;
mod late;
mod link;
mod manager;
mod pool;
mod push;
mod reply;
mod resolve;
mod roster;
mod server;
mod set;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod url;

use std::fmt;
use std::time::Duration;

use crate::clock::Tick;
use crate::script::Call;

pub(crate) use background::Background;
pub(crate) use set::{NodeSettings, Nodes};
pub(crate) use url::NodeUrl;

/// What a server replied to a script, without the types of any crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Value>),
}

/// Which connections a call may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Attempts to take a lock, and questions: they may have to wait for a connection.
    Ordinary,
    /// Renewals and releases: they have connections set aside, so that they never wait behind attempts.
    Reserved,
}

/// Whether the server may have executed a call that failed, or may still do so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Executed {
    No,
    Maybe,
}

/// What kind of trouble a failure is; decides whether trying again can help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// Refused, reset, unresolvable.
    Unreachable,
    /// No answer, or no free connection, in time.
    TimedOut,
    /// Left out for a short while because it failed just now.
    LeftOut,
    /// Restarted so recently that it may have forgotten locks; casts no vote.
    Quarantined,
    /// Passes by itself: LOADING, BUSY (a script runs), MASTERDOWN, TRYAGAIN, CLUSTERDOWN.
    Transient,
    /// The key holds another type.
    WrongType,
    /// Will not work until somebody changes the set-up: NOAUTH, WRONGPASS, NOPERM, READONLY, MOVED, ASK, a replica.
    Misuse,
    /// Any other error of the server: OOM, MISCONF, NOREPLICAS, …
    Refused,
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) trouble: Trouble,
    pub(crate) executed: Executed,
    pub(crate) message: String,
}

impl Failure {
    fn new(trouble: Trouble, executed: Executed, message: impl Into<String>) -> Failure {
        Failure { trouble, executed, message: message.into() }
    }

    /// The server itself said no, rather than nothing at all.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.trouble, Trouble::Transient | Trouble::WrongType | Trouble::Misuse | Trouble::Refused)
    }

    /// A failure before anything was written.
    fn unsent(trouble: Trouble, message: impl Into<String>) -> Failure {
        Failure::new(trouble, Executed::No, message)
    }
}

/// The end of a call on one node.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Value, Failure>,
    /// An earlier transmission of this call broke off and was repeated: its copy could still be executed, out of order.
    pub(crate) ghost: bool,
}

/// What became of an attempt to send.
pub(crate) enum Begun<'a> {
    /// On its way; the reply is read by [`Pending::finish`].
    Sent(Box<dyn Pending + 'a>),
    /// No connection at hand. Send to the other nodes first, then ask again with [`Patience::Slice`].
    Cold,
    /// Not sent, or not worth waiting for.
    Failed(Failure),
}

/// Whether [`Node::begin`] may wait for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    AtOnce,
    /// At most this long; a connection that is still being made then is [`Begun::Cold`] until `by` has passed, or [`Begun::Failed`] where the node
    /// is left out.
    Slice(Duration),
    /// Until `by`.
    Wait,
}

/// A connection on which a channel is subscribed.
pub(crate) trait Push: Send + fmt::Debug {
    /// Waits for a message for `patience` at most.
    fn receive(&mut self, patience: Duration) -> Heard;
}

/// How a wait for a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Vec<u8>),
    Nothing,
    /// The connection is of no more use; with a message.
    Broken(String),
}

/// A call that was written and whose reply is due. Dropping it without `finish` counts as a time-out.
pub(crate) trait Pending {
    /// Reads the reply, until `by` or, if that has passed, for about a millisecond.
    ///
    /// A reply that does not come leaves its connection out of the pool: for an acquire or a release the socket is kept, so that a release can be
    /// written behind it; for anything else it is closed.
    fn finish(self: Box<Self>, by: Tick) -> Answer;
}

/// One server, or what acts as one.
pub(crate) trait Node: Send + Sync + fmt::Debug {
    /// Host and port, or the path of the socket; never a password.
    fn address(&self) -> &str;

    /// The failure for which the node is left out at the moment, if it is. Costs nothing.
    fn outage(&self) -> Option<Failure>;

    /// How long the server has been up at least; `None` if it never said.
    fn uptime(&self) -> Option<Duration>;

    /// The id that the server gave itself when it started; `None` if it never said.
    fn run_id(&self) -> Option<String>;

    /// Opens a connection on which the channel is subscribed; returns once the server has confirmed the subscription. A server that does not let us
    /// subscribe is [`Trouble::Refused`].
    fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure>;

    /// Writes the call on a connection. A release is first written behind every late call for the same token.
    fn begin<'a>(&'a self, call: &'a Call, lane: Lane, by: Tick, patience: Patience) -> Begun<'a>;
}
