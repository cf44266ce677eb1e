//! The calls of a connection that are not written, and those that are written and not answered.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::flight::{Boarding, Flight, Trip};
use crate::clock::Tick;

/// One packet has at most so many bytes, but for its last call, and so many calls.
const MOST_BYTES: usize = 128 << 10;
const MOST_CALLS: usize = 512;

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
    Naps,
}

/// Calls that are not written.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Releases and renewals, which go before attempts.
    urgent: VecDeque<Flight>,
    ordinary: VecDeque<Flight>,
    pub(super) pump: Pump,
    /// A thread that wanted to write this found another one at it, which has to look here once more.
    pub(super) was_missed: bool,
    /// The connection is of no more use.
    pub(super) is_over: bool,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.ordinary.is_empty()
    }

    fn len(&self) -> usize {
        self.urgent.len() + self.ordinary.len()
    }

    /// A call about a key of that group is not written.
    pub(super) fn has(&self, group: Option<usize>) -> bool {
        self.urgent.iter().chain(&self.ordinary).any(|flight| group.is_none() || flight.group() == group)
    }

    pub(super) fn put(&mut self, flight: Flight) {
        if flight.is_urgent { self.urgent.push_back(flight) } else { self.ordinary.push_back(flight) }
    }

    fn next(&mut self) -> Option<Flight> {
        self.urgent.pop_front().or_else(|| self.ordinary.pop_front())
    }

    /// The thread of this flight has gone, and it is not to be written. Zero if it was taken out before.
    pub(super) fn remove(&mut self, trip: &Arc<Trip>, seat: usize) -> usize {
        let before = self.len();
        self.urgent.retain(|flight| !flight.is_of(trip, seat));
        self.ordinary.retain(|flight| !flight.is_of(trip, seat));
        before - self.len()
    }

    /// Moves the next packet to those that are owed. Returns how many calls are not written, since their threads have gone.
    pub(super) fn pack(&mut self, owed: &mut Owed, packet: &mut Vec<u8>, now: Tick) -> usize {
        let (mut calls, mut refused) = (0, 0);
        while packet.len() < MOST_BYTES
            && calls < MOST_CALLS
            && let Some(flight) = self.next()
        {
            match owed.board(flight, packet, now) {
                Boarding::Refused => refused += 1,
                Boarding::Awaited | Boarding::Unattended => calls += 1,
            }
        }
        refused
    }

    pub(super) fn end(&mut self) -> impl Iterator<Item = Flight> + use<> {
        self.is_over = true;
        let urgent = std::mem::take(&mut self.urgent);
        urgent.into_iter().chain(std::mem::take(&mut self.ordinary))
    }
}

/// Calls whose replies are due, in their order.
#[derive(Debug, Default)]
pub(super) struct Owed {
    due: VecDeque<Due>,
    /// What stood before the first of them was answered.
    was_let_in: bool,
}

#[derive(Debug)]
struct Due {
    flight: Flight,
    written: Tick,
}

/// What the next replies are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// No call is owed a reply.
    None,
    /// Calls for which no thread waits.
    Unattended,
    Awaited,
}

impl Owed {
    /// Appends a call to the packet. The packet has to be written next.
    pub(super) fn board(&mut self, mut flight: Flight, packet: &mut Vec<u8>, written: Tick) -> Boarding {
        let boarding = flight.board();
        if boarding != Boarding::Refused {
            flight.write_to(packet);
            self.due.push_back(Due { flight, written });
        }
        boarding
    }

    /// The call to which the next reply belongs, with the moment at which it was written; the call itself only if this reply is the last one of it.
    /// `None` if no reply is due.
    pub(super) fn answer(&mut self) -> Option<(Option<Flight>, Tick)> {
        let due = self.due.pop_front()?;
        if due.flight.asks() && !self.was_let_in {
            self.was_let_in = true;
            let written = due.written;
            self.due.push_front(due);
            return Some((None, written));
        }
        self.was_let_in = false;
        Some((Some(due.flight), due.written))
    }

    /// The awaited ones mostly are the first.
    pub(super) fn interest(&self) -> Interest {
        match self.due.iter().any(|due| due.flight.is_awaited()) {
            true => Interest::Awaited,
            false if self.due.is_empty() => Interest::None,
            false => Interest::Unattended,
        }
    }

    /// When the oldest call was written.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.due.front().map(|due| due.written)
    }

    /// Behind each call that may set a token stands one that takes it away. Of calls about keys of that group, if one is
    /// given.
    pub(super) fn is_undone(&self, group: Option<usize>) -> bool {
        let mut released = HashSet::new();
        let about = |due: &&Due| group.is_none() || due.flight.group() == group;
        self.due.iter().rev().filter(about).all(|Due { flight, .. }| {
            released.extend(flight.releases());
            flight.acquires().is_none_or(|token| released.contains(token))
        })
    }

    pub(super) fn end(&mut self) -> impl Iterator<Item = Flight> + use<> {
        std::mem::take(&mut self.due).into_iter().map(|due| due.flight)
    }
}
