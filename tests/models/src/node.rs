//! Replaces the library's `node`: the interface of a notification connection, the real
//! transport, and one server without a transport.

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

mod server;
pub(crate) mod transport;

pub(crate) use self::server::{Answers, Node, NodeFilter, Nodes, Sent, Server};
