//! Connections, and the packets that are on their way.

use std::collections::VecDeque;

use super::server::Command;
use super::units::Time;

/// A coroutine's wait; woken later than that it sleeps on.
pub(super) type Waiter = (usize, u64);

/// What happens to a packet that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Good,
    LostReply,
    CutAfter,
}

/// What one client writes at once.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) connection: usize,
    pub(super) commands: Vec<Command>,
    pub(super) fate: Fate,
    /// When, if nothing is in its way.
    pub(super) arrives: Time,
}

/// What comes back.
#[derive(Debug)]
pub(super) enum Incoming {
    Replies(Vec<redis::Value>),
    Push(Vec<u8>),
}

/// The way from one client to one node.
#[derive(Debug, Default)]
pub(super) struct Path {
    pub(super) partitioned_until: Time,
    /// What is sent meanwhile is lost.
    pub(super) loses: bool,
}

/// A connection: what is on its way arrives in order, in both directions.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each can be so without the others")]
pub(super) struct Connection {
    pub(super) client: usize,
    pub(super) node: usize,
    /// Of the node, when it was made.
    pub(super) epoch: u32,
    pub(super) queue: VecDeque<Packet>,
    /// When the last packet arrives.
    pub(super) last: Time,
    /// When what the node sent last arrives.
    pub(super) back: Time,
    /// Nothing that is written from now on arrives.
    pub(super) is_lost: bool,
    /// Nothing that the node sends arrives any more, and perhaps neither side has noticed.
    pub(super) is_mute: bool,
    /// Closed by a reset; the client will hear of it.
    pub(super) is_cut: bool,
    /// The client knows that it is broken.
    pub(super) is_broken: bool,
    pub(super) is_closed: bool,
    /// The channel to which the node has subscribed it.
    pub(super) channel: Option<String>,
    pub(super) replies: VecDeque<redis::Value>,
    pub(super) pushes: VecDeque<Vec<u8>>,
    pub(super) waiter: Option<Waiter>,
    /// The number of its last write.
    pub(super) written: u64,
    /// Until then at most it waits for the replica.
    pub(super) blocked_until: Time,
}
