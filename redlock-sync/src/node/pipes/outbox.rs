//! The calls of a connection that are not written, and those that are written and not answered.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::command::{Command, Outcome, Outcomes, Sending, Wakeup};
use super::framer::Reply;
use crate::clock::Tick;
use crate::protocol::script::Call;

/// One packet has at most so many bytes, but for its last call, and so many calls.
const MAX_PACKET_BYTES: usize = 128 << 10;
const MAX_PACKET_CALLS: usize = 512;

/// What the pump does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pump {
    /// There is no such thread.
    #[default]
    Absent,
    /// It looks at the outbox before it sleeps.
    Awake,
    /// Until there is work for it.
    Asleep,
    /// For a moment: then it reads replies for which no thread waits.
    Napping,
}

/// Calls that are not written.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Releases and renewals, which go before attempts.
    urgent: VecDeque<Command>,
    ordinary: VecDeque<Command>,
    pub(super) pump: Pump,
    /// A thread sleeps that waits for a call. While none does, threads that wait read for themselves.
    pub(super) is_relied_on: bool,
    /// A thread that wanted to write this found another one at it, which has to look here once more.
    pub(super) was_missed: bool,
    /// The connection is of no more use.
    pub(super) is_closed: bool,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.ordinary.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.ordinary.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Command> {
        self.urgent.iter().chain(&self.ordinary)
    }

    /// A call about a key of that group is not written.
    pub(super) fn has(&self, group: Option<usize>) -> bool {
        self.all().any(|command| group.is_none() || command.group() == group)
    }

    /// A call that may set this token is not written.
    pub(super) fn may_set(&self, token: &str) -> bool {
        self.all().any(|command| command.acquires() == Some(token))
    }

    /// A call with the same words is not written.
    pub(super) fn has_like(&self, call: &Call) -> bool {
        self.all().any(|command| command.is_like(call))
    }

    pub(super) fn enqueue(&mut self, command: Command) {
        if command.is_urgent { self.urgent.push_back(command) } else { self.ordinary.push_back(command) }
    }

    fn next(&mut self) -> Option<Command> {
        self.urgent.pop_front().or_else(|| self.ordinary.pop_front())
    }

    /// The thread of this command has gone, and it is not to be written. Zero if it was taken out before.
    pub(super) fn remove(&mut self, outcomes: &Arc<Outcomes>, index: usize) -> usize {
        let before = self.len();
        self.urgent.retain(|command| !command.is_of(outcomes, index));
        self.ordinary.retain(|command| !command.is_of(outcomes, index));
        before - self.len()
    }

    /// Moves the next packet to those that are in_flight. Returns how many calls are not written, since their threads have gone.
    pub(super) fn pack(&mut self, in_flight: &mut InFlight, packet: &mut Vec<u8>, now: Tick) -> usize {
        let (mut calls, mut refused) = (0, 0);
        while packet.len() < MAX_PACKET_BYTES
            && calls < MAX_PACKET_CALLS
            && let Some(command) = self.next()
        {
            match in_flight.append(command, packet, now) {
                Sending::Refused => refused += 1,
                Sending::Awaited | Sending::Unattended => calls += 1,
            }
        }
        in_flight.complete(packet, now);
        refused
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.is_closed = true;
        let urgent = std::mem::take(&mut self.urgent);
        urgent.into_iter().chain(std::mem::take(&mut self.ordinary))
    }
}

/// Calls whose replies are call, in their order.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    calls: VecDeque<InFlightCall>,
    /// What stood before the first of them was answered.
    asking_was_answered: bool,
    /// Asks the server for its replicas; empty if they are not asked.
    wait: Vec<u8>,
    /// A call of the packet that is being made is for replicas.
    asks_replicas: bool,
    /// Calls that are answered, and wait for what the server says of its replicas.
    unacknowledged: Vec<(Command, Reply)>,
}

#[derive(Debug)]
struct InFlightCall {
    /// Nothing for the question about replicas.
    command: Option<Command>,
    written: Tick,
}

/// What a reply was for.
#[derive(Debug)]
pub(super) enum Answered {
    /// It was the last one of a call.
    Call(Command, Reply),
    /// For these, it tells of the replicas.
    Acknowledged(Vec<(Command, Outcome)>),
    /// More follows for its call.
    Nothing,
}

/// What the next replies are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// No call is in_flight a reply.
    None,
    /// Calls for which no thread waits.
    Unattended,
    Awaited,
}

impl InFlight {
    /// With the command that asks for replicas, if they are asked.
    pub(super) fn new(wait: Vec<u8>) -> InFlight {
        InFlight { wait, ..InFlight::default() }
    }

    /// Appends a call to the packet. The packet has to be completed and written next.
    pub(super) fn append(&mut self, mut command: Command, packet: &mut Vec<u8>, written: Tick) -> Sending {
        let sending = command.begin();
        if sending != Sending::Refused {
            command.write_to(packet);
            self.asks_replicas |= !self.wait.is_empty() && command.is_for_replicas();
            self.calls.push_back(InFlightCall { command: Some(command), written });
        }
        sending
    }

    /// Once behind all calls of a packet: the replicas get all writes in one order, so what they have of the last one they have of all.
    pub(super) fn complete(&mut self, packet: &mut Vec<u8>, written: Tick) {
        if std::mem::take(&mut self.asks_replicas) {
            packet.extend_from_slice(&self.wait);
            self.calls.push_back(InFlightCall { command: None, written });
        }
    }

    /// What the next reply is for, with the moment at which its call was written. `None` if no reply is call.
    pub(super) fn answer(&mut self, reply: Reply) -> Option<(Answered, Tick)> {
        let InFlightCall { command, written } = self.calls.pop_front()?;
        let Some(command) = command else {
            let of = |(command, said)| (command, Outcome::Acknowledged { reply: said, replicas: reply.clone() });
            let unacknowledged = std::mem::take(&mut self.unacknowledged).into_iter().map(of).collect();
            return Some((Answered::Acknowledged(unacknowledged), written));
        };
        if command.asks() && !self.asking_was_answered {
            self.asking_was_answered = true;
            self.calls.push_front(InFlightCall { command: Some(command), written });
            return Some((Answered::Nothing, written));
        }
        self.asking_was_answered = false;
        if !self.wait.is_empty() && command.is_for_replicas() && !reply.is_error() {
            command.mark_unacknowledged();
            self.unacknowledged.push((command, reply));
            return Some((Answered::Nothing, written));
        }
        Some((Answered::Call(command, reply), written))
    }

    /// Those whose outcome is not known.
    pub(super) fn all(&self) -> impl Iterator<Item = &Command> {
        let unacknowledged = self.unacknowledged.iter().map(|(command, _)| command);
        self.calls.iter().filter_map(|call| call.command.as_ref()).chain(unacknowledged)
    }

    /// Those that were written until then, and whose outcome is call to a callback, are late from now on. They are read as before.
    pub(super) fn complete_late(&self, until: Tick) -> Vec<Wakeup> {
        let late = self.calls.iter().take_while(|call| call.written <= until);
        late.filter_map(|call| call.command.as_ref()?.complete_late()).collect()
    }

    /// The awaited ones mostly are the first.
    pub(super) fn interest(&self) -> Interest {
        match self.all().any(Command::is_awaited) {
            true => Interest::Awaited,
            false if self.calls.is_empty() => Interest::None,
            false => Interest::Unattended,
        }
    }

    /// A call that may set this token is not answered.
    pub(super) fn may_set(&self, token: &str) -> bool {
        self.calls.iter().filter_map(|call| call.command.as_ref()).any(|command| command.acquires() == Some(token))
    }

    /// A call with the same words is not answered.
    pub(super) fn has_like(&self, call: &Call) -> bool {
        self.calls.iter().filter_map(|call| call.command.as_ref()).any(|command| command.is_like(call))
    }

    /// When the oldest call was written.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.calls.front().map(|call| call.written)
    }

    /// Behind each call that may set a token stands one that takes it away. Of calls about keys of that group, if one is
    /// given.
    pub(super) fn is_released(&self, group: Option<usize>) -> bool {
        let mut released = HashSet::new();
        let about = |command: &&Command| group.is_none() || command.group() == group;
        self.calls.iter().rev().filter_map(|call| call.command.as_ref()).filter(about).all(|command| {
            released.extend(command.releases());
            command.acquires().is_none_or(|token| released.contains(token))
        })
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Command> + use<> {
        let unacknowledged = std::mem::take(&mut self.unacknowledged).into_iter().map(|(command, _)| command);
        unacknowledged.chain(std::mem::take(&mut self.calls).into_iter().filter_map(|call| call.command))
    }
}
