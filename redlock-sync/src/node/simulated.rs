//! Rounds over nodes without a wire. A simulation has no threads that could travel together: each round asks its nodes by itself.

use std::time::Duration;

use super::{Answers, Executed, Failure, FailureKind, Node, Value};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Purpose};

/// While connections are being made, how long to wait for one node before looking at the next.
const SLICE: Duration = Duration::from_millis(2);

/// A node of a simulation.
pub(crate) trait Simulated: Node {
    /// Writes the call. A release is first written behind every late call for the same token.
    fn begin<'a>(&'a self, call: &'a Call, by: Tick, connect: ConnectWait) -> Begun<'a>;

    fn as_node(&self) -> &dyn Node;
}

/// What became of an attempt to send.
pub(crate) enum Begun<'a> {
    /// On its way; the reply is read by [`Pending::finish`].
    Sent(Box<dyn Pending + 'a>),
    /// No connection at hand. Send to the other nodes first, then ask again with [`ConnectWait::Slice`].
    Cold,
    /// Not sent, or not worth waiting for.
    Failed(Failure),
}

/// Whether [`Simulated::begin`] may wait for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectWait {
    AtOnce,
    /// At most this long.
    Slice(Duration),
}

/// A call that was written and whose reply is due. Dropping it without `finish` counts as a time-out.
pub(crate) trait Pending {
    /// Reads the reply, until `by` or, if that has passed, for about a millisecond.
    fn finish(self: Box<Self>, by: Tick) -> Answer;
}

/// The end of a call on one node.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Value, Failure>,
    pub(crate) duplicate: bool,
}

/// A round, as [`Wire::round`](super::wire::Wire::round) makes it.
pub(super) fn round(
    nodes: &[Box<dyn Simulated>],
    clock: &dyn Clock,
    call: &Call,
    by: Tick,
    asks: &[bool],
    need: usize,
) -> Answers {
    let started = clock.now();
    let spares = nodes.iter().filter(|node| node.outage().is_none()).count() >= need;
    let mut seats = Vec::new();
    for (node, asks) in nodes.iter().zip(asks) {
        seats.push(match node.outage().filter(|_| spares) {
            _ if !asks => Begun::Failed(super::round::not_asked()),
            Some(outage) => Begun::Failed(left_out(&**node, call, by, outage)),
            None => node.begin(call, by, ConnectWait::AtOnce),
        });
    }
    while seats.iter().any(|seat| matches!(seat, Begun::Cold)) && clock.now() < by {
        for (node, seat) in nodes.iter().zip(seats.iter_mut()) {
            if matches!(seat, Begun::Cold) {
                *seat = node.begin(call, by, ConnectWait::Slice(SLICE));
            }
        }
    }
    let mut duplicate = false;
    let mut end = |seat| match seat {
        Begun::Sent(pending) => {
            let Answer { result, duplicate: copied } = pending.finish(by);
            duplicate |= copied;
            result
        }
        Begun::Cold => Err(Failure::unsent(FailureKind::TimedOut, "no connection in time")),
        Begun::Failed(failure) => Err(failure),
    };
    let results = seats.into_iter().map(&mut end).collect();
    Answers { results, started, duplicate }
}

/// What a node that is left out says. A release is written all the same where that takes no time.
fn left_out(node: &dyn Simulated, call: &Call, by: Tick, outage: Failure) -> Failure {
    if call.purpose != Purpose::Release {
        return outage;
    }
    match node.begin(call, by, ConnectWait::AtOnce) {
        Begun::Sent(_) => Failure { executed: Executed::Maybe, ..outage },
        Begun::Failed(failure) => failure,
        Begun::Cold => outage,
    }
}
