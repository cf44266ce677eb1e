//! Connections, and the packets on their way.

use std::collections::VecDeque;

use super::server::Command;
use super::units::Time;

/// A wait of a coroutine. A wake-up for an earlier wait is ignored.
pub(super) type Waiter = (usize, u64);

/// What happens to a packet that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Good,
    LostReply,
    CutAfter,
}

/// The commands that a client writes at once.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) connection: usize,
    pub(super) commands: Vec<Command>,
    pub(super) fate: Fate,
    /// The time at which the packet arrives, unless the path is partitioned.
    pub(super) arrives: Time,
}

/// The network path from one client to one node.
#[derive(Debug, Default)]
pub(super) struct Path {
    pub(super) partitioned_until: Time,
    /// True if packets that are sent during the partition are lost.
    pub(super) loses: bool,
}

/// A connection. Packets arrive in order in both directions.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each can be so without the others")]
pub(super) struct Connection {
    pub(super) client: usize,
    pub(super) node: usize,
    /// The epoch of the node when the connection was made.
    pub(super) epoch: u32,
    pub(super) queue: VecDeque<Packet>,
    /// The time at which the last packet of the client arrives.
    pub(super) last: Time,
    /// The time at which the last message of the node arrives.
    pub(super) back: Time,
    /// Packets that the client writes from now on do not arrive.
    pub(super) is_lost: bool,
    /// Messages of the node no longer arrive. Both sides may be unaware of that.
    pub(super) is_mute: bool,
    /// A reset has closed the connection. The client has not noticed yet.
    pub(super) is_cut: bool,
    /// The client knows that the connection is broken.
    pub(super) is_broken: bool,
    pub(super) is_closed: bool,
    /// The channel to which the node has subscribed the connection.
    pub(super) channel: Option<String>,
    /// The bytes that have arrived at the client, and that it has not read.
    pub(super) unread: VecDeque<u8>,
    pub(super) waiter: Option<Waiter>,
    /// The number of the last write of the connection.
    pub(super) written: u64,
    /// The latest time until which the connection waits for the replica.
    pub(super) blocked_until: Time,
}
