//! The calls of a connection: those to be written, and those in flight.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::command::{Command, Outcome, Outcomes, Wakeup};
use super::framer::WireReply;
use crate::clock::Tick;
use crate::protocol::script::Purpose;

/// The limits of one packet. Its last call may exceed the bytes.
const MAX_PACKET_BYTES: usize = 128 << 10;
const MAX_PACKET_CALLS: usize = 512;

/// The limit of a `WAIT`: a quarter of a node timeout. So a call with a `WAIT` is answered in time behind another
/// `WAIT`, even if replicas do not acknowledge.
pub(super) fn time_for_replicas(node_timeout: Duration) -> Duration {
    node_timeout / 4
}

/// The state of the pump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pump {
    /// The thread does not run.
    #[default]
    Absent,
    /// It checks the outbox before it sleeps.
    Awake,
    /// It sleeps until there is work.
    Asleep,
    /// It sleeps for a moment, then reads replies for which no thread waits.
    Napping,
}

/// The calls to be written.
#[derive(Default)]
pub(super) struct Outbox {
    /// Calls that are sent before the others.
    urgent: VecDeque<Command>,
    other: VecDeque<Command>,
    pub(super) pump: Pump,
    /// True if a thread sleeps and relies on the pump. If false, waiting threads read for themselves.
    pub(super) is_relied_on: bool,
    /// Set by a thread that found another one writing. The other thread must check the outbox again.
    pub(super) was_missed: bool,
    /// The connection is closed.
    pub(super) is_closed: bool,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.other.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.other.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Command> {
        self.urgent.iter().chain(&self.other)
    }

    pub(super) fn enqueue(&mut self, command: Command) {
        if command.is_urgent() { self.urgent.push_back(command) } else { self.other.push_back(command) }
    }

    /// True if a call can be written now.
    pub(super) fn has_next(&self, in_flight: &InFlight) -> bool {
        self.all().any(|command| in_flight.accepts(command))
    }

    fn next(&mut self, in_flight: &InFlight) -> Option<Command> {
        let first = |calls: &mut VecDeque<Command>| {
            let at = calls.iter().position(|command| in_flight.accepts(command))?;
            calls.remove(at)
        };
        first(&mut self.urgent).or_else(|| first(&mut self.other))
    }

    /// Removes a command that was given up. Returns 0 if it was not in the outbox any more.
    pub(super) fn remove(&mut self, outcomes: &Arc<Outcomes>, index: usize) -> usize {
        let before = self.len();
        self.urgent.retain(|command| !command.is_of(outcomes, index));
        self.other.retain(|command| !command.is_of(outcomes, index));
        before - self.len()
    }

    /// Moves the next packet to the calls in flight. Returns how many calls were dropped because their threads gave
    /// them up.
    pub(super) fn pack(&mut self, in_flight: &mut InFlight, packet: &mut Vec<u8>, now: Tick) -> usize {
        let (mut calls, mut refused) = (0, 0);
        while packet.len() < MAX_PACKET_BYTES
            && calls < MAX_PACKET_CALLS
            && let Some(command) = self.next(in_flight)
        {
            if in_flight.append(command, packet, now) { calls += 1 } else { refused += 1 }
        }
        in_flight.complete(packet, now);
        refused
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.is_closed = true;
        let urgent = std::mem::take(&mut self.urgent);
        urgent.into_iter().chain(std::mem::take(&mut self.other))
    }
}

/// The calls whose replies are due, in the order of the replies.
#[derive(Default)]
pub(super) struct InFlight {
    calls: VecDeque<InFlightCall>,
    /// True if the reply to `ASKING` before the first call has arrived.
    asking_was_answered: bool,
    /// The encoded `WAIT` command. Empty if replicas are not asked.
    wait: Vec<u8>,
    /// True if a call in the current packet needs replicas.
    asks_replicas: bool,
    /// True if a `WAIT` is unanswered.
    is_waiting: bool,
    /// Calls with a reply, for which the reply to the `WAIT` is still due.
    unacknowledged: Vec<(Command, WireReply)>,
}

struct InFlightCall {
    /// `None` for the `WAIT` command.
    command: Option<Command>,
    written: Tick,
}

/// The calls that a reply completes: mostly one.
type Completed = SmallVec<[(Command, Outcome); 1]>;

/// Whether threads wait for the next replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// No reply is due.
    None,
    /// No thread waits for the calls in flight.
    Unattended,
    Awaited,
}

impl InFlight {
    /// `wait` is the encoded `WAIT` command, or empty.
    pub(super) fn new(wait: Vec<u8>) -> InFlight {
        InFlight { wait, ..InFlight::default() }
    }

    /// True if the call can be written now. A call that needs a `WAIT` is not written behind another `WAIT`. If
    /// replicas hang, the server executes one `WAIT` after the other, and those of many threads would take longer than
    /// a node timeout.
    ///
    /// A release can overtake a call that waits here, but not a call of its own token. That release is sent once the
    /// thread of the call has its outcome, or has given it up.
    pub(super) fn accepts(&self, command: &Command) -> bool {
        !self.is_waiting || !command.is_for_replicas()
    }

    /// Appends a call to the packet. Afterwards the packet must be completed and written. Returns false if the call
    /// need not be sent.
    pub(super) fn append(&mut self, mut command: Command, packet: &mut Vec<u8>, written: Tick) -> bool {
        let is_sent = command.begin();
        if is_sent {
            command.write_to(packet);
            self.asks_replicas |= !self.wait.is_empty() && command.is_for_replicas();
            self.calls.push_back(InFlightCall { command: Some(command), written });
        }
        is_sent
    }

    /// Completes a packet. One `WAIT` suffices for all its calls: replicas apply writes in order, so a replica with the
    /// last write has all of them.
    pub(super) fn complete(&mut self, packet: &mut Vec<u8>, written: Tick) {
        if std::mem::take(&mut self.asks_replicas) {
            packet.extend_from_slice(&self.wait);
            self.calls.push_back(InFlightCall { command: None, written });
            self.is_waiting = true;
        }
    }

    /// Assigns the next reply to its call. Returns the calls that it completes, and when its call was written. A call
    /// may have another reply to come, and a `WAIT` can complete several calls. `None` if no reply is due.
    pub(super) fn assign(&mut self, reply: WireReply) -> Option<(Completed, Tick)> {
        let InFlightCall { command, written } = self.calls.pop_front()?;
        let mut completed = Completed::new();
        let Some(command) = command else {
            self.is_waiting = false;
            let of = |(command, said)| (command, Outcome::Acknowledged { reply: said, replicas: reply.clone() });
            completed.extend(self.unacknowledged.drain(..).map(of));
            return Some((completed, written));
        };
        if command.payload.asks && !self.asking_was_answered {
            self.asking_was_answered = true;
            self.calls.push_front(InFlightCall { command: Some(command), written });
            return Some((completed, written));
        }
        self.asking_was_answered = false;
        if !self.wait.is_empty() && command.is_for_replicas() && !reply.is_error() {
            command.mark_unacknowledged();
            self.unacknowledged.push((command, reply));
        } else {
            completed.push((command, Outcome::Replied(reply)));
        }
        Some((completed, written))
    }

    /// The calls without a reply, in the order in which they were written.
    pub(super) fn unanswered(&self) -> impl DoubleEndedIterator<Item = &Command> {
        self.calls.iter().filter_map(|call| call.command.as_ref())
    }

    /// All calls without an outcome.
    pub(super) fn all(&self) -> impl Iterator<Item = &Command> {
        self.unanswered().chain(self.unacknowledged.iter().map(|(command, _)| command))
    }

    /// Tells callbacks that calls written until then are late. Their replies are still read.
    pub(super) fn complete_late(&self, until: Tick) -> Vec<Wakeup> {
        let late = self.calls.iter().take_while(|call| call.written <= until);
        late.filter_map(|call| call.command.as_ref()?.complete_late()).collect()
    }

    /// Awaited calls are mostly the first ones, so this is fast.
    pub(super) fn interest(&self) -> Interest {
        match self.all().any(Command::is_awaited) {
            true => Interest::Awaited,
            false if self.calls.is_empty() => Interest::None,
            false => Interest::Unattended,
        }
    }

    /// When the oldest call was written. For a `WAIT`, its limit is added: a server that waits for replicas is not
    /// late. An idle server looks at that limit ten times a second (`hz`).
    pub(super) fn oldest(&self, node_timeout: Duration) -> Option<Tick> {
        let InFlightCall { command, written } = self.calls.front()?;
        let limit = time_for_replicas(node_timeout) + Duration::from_millis(100);
        Some(if command.is_some() { *written } else { written.after(limit) })
    }

    /// True if a release follows each acquire, among calls about keys of this group, or among all if `group` is `None`.
    pub(super) fn is_released(&self, group: Option<usize>) -> bool {
        let mut released = HashSet::new();
        self.unanswered().rev().filter(|command| command.is_about(group)).all(|command| {
            released.extend(command.token(Purpose::Release));
            command.token(Purpose::Acquire).is_none_or(|token| released.contains(token))
        })
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Command> + use<> {
        let unacknowledged = std::mem::take(&mut self.unacknowledged).into_iter().map(|(command, _)| command);
        unacknowledged.chain(std::mem::take(&mut self.calls).into_iter().filter_map(|call| call.command))
    }
}
