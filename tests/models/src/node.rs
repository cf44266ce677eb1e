//! Replaces the library's `node`: the interface of a notification connection, the real transport, the real choice of a
//! connection with a replacement for the pool, and one server without a transport.

use std::fmt;
use std::time::Duration;

pub(crate) trait Subscriber: Send + fmt::Debug {
    fn receive(&mut self, timeout: Duration) -> Heard;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Vec<u8>),
    Nothing,
    Broken(String),
}

#[path = "../../../redlock-sync/src/node/connections.rs"]
pub(crate) mod connections;
pub(crate) mod host;
#[path = "../../../redlock-sync/src/node/order.rs"]
mod order;
mod server;
mod supply;
pub(crate) mod transport;

/// No server of the models refuses a user.
pub(crate) fn is_about_permission(_: &str) -> bool {
    false
}

pub(crate) use self::server::{Answers, Node, NodeFilter, Nodes, Sent, Server};
pub(crate) use crate::protocol::reply::{Failure, FailureKind};
use host as link;
