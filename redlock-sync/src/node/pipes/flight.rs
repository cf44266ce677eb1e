//! One call of one thread, to one server or several. A [`Trip`] is what its thread waits for; a [`Flight`] is the call on its way to one of the servers.
//!
//! All that is known of a trip is under one mutex. Its thread looks at it and begins to wait under that mutex, and each outcome is noted under it: so none
//! is noted between the look and the wait. The mutex is the last in the order of locks: nothing is locked under it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::ends::Broken;
use super::framer::Reply;
use super::table::Claim;
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Note, Purpose};
use crate::sync::{Condvar, Mutex};
use crate::token::LockId;

/// What a call became at one server.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Replied(Reply),
    /// The reply, and what the server said of its replicas behind it.
    Acknowledged {
        reply: Reply,
        replicas: Reply,
    },
    /// The connection is of no more use.
    Cut {
        /// The server may have the call.
        was_written: bool,
        why: Arc<Broken>,
    },
}

/// How far a call has come at one server.
#[derive(Debug)]
enum Seat {
    /// The server is not asked, or the outcome was taken.
    Empty,
    /// In an outbox.
    Unsent,
    /// The server may have it.
    Sent,
    /// The server has answered it, and has not said which replicas have it.
    Unacknowledged,
    Done(Outcome),
    /// Its thread has gone. The reply is read and told to the heir.
    Left,
}

impl Seat {
    fn is_awaited(&self) -> bool {
        matches!(self, Seat::Unsent | Seat::Sent | Seat::Unacknowledged)
    }
}

/// How a thread left a call whose time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// It was answered before.
    Answered,
    /// It is not written any more.
    Unsent,
    /// The server may have executed it, or may still do so.
    Sent,
    /// The server has executed it, and has not said which replicas have it.
    Unacknowledged,
    /// It will be written: a release gets through.
    WillBeSent,
}

/// Is told what becomes of calls for which no thread waits. Called by the thread that reads: it must neither wait nor call the pipe.
pub(crate) trait Heir: Send + Sync {
    fn told(&self, seat: usize, outcome: Outcome);
}

/// One call of one thread: a seat for each server.
pub(crate) struct Trip {
    seats: Mutex<Vec<Seat>>,
    /// Notified when an outcome is noted that ends the wait.
    moved: Arc<Condvar>,
    heir: Option<Arc<dyn Heir>>,
}

/// What is left to wait for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Each server that was asked has an outcome.
    Over,
    /// A connection broke: the thread may send the call again.
    Cut,
    Goes,
}

impl Trip {
    /// With seats for so many servers.
    pub(crate) fn new(servers: usize, heir: Option<Arc<dyn Heir>>) -> Arc<Trip> {
        let seats = (0..servers).map(|_| Seat::Empty).collect();
        Arc::new(Trip { seats: Mutex::new(seats), moved: Arc::new(Condvar::new()), heir })
    }

    /// The call on its way to one of the servers. A seat has one flight at a time.
    pub(crate) fn flight(self: &Arc<Self>, seat: usize, load: Load, is_urgent: bool, claim: Option<Claim>) -> Flight {
        self.set(seat, Seat::Unsent);
        Flight { trip: Arc::clone(self), seat, load, is_urgent, claim }
    }

    fn set(&self, seat: usize, new: Seat) {
        if let Some(seat) = self.seats.lock().get_mut(seat) {
            *seat = new;
        }
    }

    /// It has neither an outcome nor was it left.
    pub(crate) fn is_awaited(&self, seat: usize) -> bool {
        self.seats.lock().get(seat).is_some_and(Seat::is_awaited)
    }

    /// The outcome, once.
    pub(crate) fn take(&self, seat: usize) -> Option<Outcome> {
        let mut seats = self.seats.lock();
        let seat = seats.get_mut(seat).filter(|seat| matches!(seat, Seat::Done(_)))?;
        match std::mem::replace(seat, Seat::Empty) {
            Seat::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// What is left to wait for.
    pub(crate) fn wait(&self) -> Wait {
        wait(&self.seats.lock())
    }

    /// Sleeps until there is an outcome that ends the wait, at most until then.
    pub(crate) fn sleep(&self, until: Tick, clock: &dyn Clock) {
        let mut seats = self.seats.lock();
        if wait(&seats) == Wait::Goes && clock.now() < until {
            clock.wait_until(&self.moved, &mut seats, until);
        }
    }

    /// The thread goes. What is in an outbox is not written any more, but for a release.
    pub(crate) fn leave(&self, seat: usize, is_release: bool) -> Parting {
        let mut seats = self.seats.lock();
        let Some(seat) = seats.get_mut(seat) else { return Parting::Answered };
        let parting = match seat {
            Seat::Empty | Seat::Done(_) | Seat::Left => return Parting::Answered,
            Seat::Unsent if is_release => Parting::WillBeSent,
            Seat::Unsent => Parting::Unsent,
            Seat::Sent => Parting::Sent,
            Seat::Unacknowledged => Parting::Unacknowledged,
        };
        *seat = Seat::Left;
        parting
    }
}

fn wait(seats: &[Seat]) -> Wait {
    if seats.iter().any(|seat| matches!(seat, Seat::Done(Outcome::Cut { .. }))) {
        return Wait::Cut;
    }
    if seats.iter().any(Seat::is_awaited) { Wait::Goes } else { Wait::Over }
}

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// What is written for a call.
#[derive(Clone)]
pub(crate) enum Load {
    Script {
        call: Arc<Call>,
        note: Note,
        /// For a server that does not know the script.
        with_source: bool,
        /// Behind `ASKING`, which lets the call in for a slot that is on its way to that server.
        asks: bool,
    },
    #[cfg_attr(not(test), allow(dead_code, reason = "for first attempts without a script, which come next"))]
    /// A command that is no script, in the form of the protocol, with one reply.
    Command(Cow<'static, [u8]>),
}

/// Whether a flight is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boarding {
    Awaited,
    /// No thread waits for its reply.
    Unattended,
    /// Its thread has gone, and it need not be written.
    Refused,
}

/// A thread to be woken, or an heir to be told, once nothing is locked.
#[must_use = "the thread sleeps until then"]
pub(super) struct News {
    trip: Arc<Trip>,
    /// For the heir.
    left: Option<(usize, Outcome)>,
}

/// A call on its way to one server.
pub(crate) struct Flight {
    trip: Arc<Trip>,
    seat: usize,
    load: Load,
    /// Releases and renewals go before attempts.
    pub(super) is_urgent: bool,
    /// Until it is answered, calls about the same key go over the same connection.
    claim: Option<Claim>,
}

impl Flight {
    /// The call of a trip that no thread waits for.
    #[cfg_attr(not(test), allow(dead_code, reason = "for drops that do not wait, which come next"))]
    pub(crate) fn unattended(self) -> Flight {
        self.trip.set(self.seat, Seat::Left);
        self
    }

    /// To be called before its first byte goes out.
    pub(super) fn board(&mut self) -> Boarding {
        let mut seats = self.trip.seats.lock();
        if let Some(seat @ Seat::Unsent) = seats.get_mut(self.seat) {
            *seat = Seat::Sent;
            return Boarding::Awaited;
        }
        drop(seats);
        if !self.is_release() && self.trip.heir.is_none() {
            return Boarding::Refused;
        }
        // No thread will be there to answer a NOSCRIPT.
        if let Load::Script { with_source, .. } = &mut self.load {
            *with_source |= self.trip.heir.is_none();
        }
        Boarding::Unattended
    }

    /// Appends what is written.
    pub(super) fn write_to(&self, packet: &mut Vec<u8>) {
        if self.asks() {
            packet.extend_from_slice(ASKING);
        }
        match &self.load {
            Load::Script { call, note, with_source: false, .. } => call.write_to(packet, *note),
            Load::Script { call, note, with_source: true, .. } => call.write_source_to(packet, *note),
            Load::Command(command) => packet.extend_from_slice(command),
        }
    }

    /// One reply comes before its own.
    pub(super) fn asks(&self) -> bool {
        matches!(self.load, Load::Script { asks: true, .. })
    }

    fn call(&self) -> Option<&Arc<Call>> {
        match &self.load {
            Load::Script { call, .. } => Some(call),
            Load::Command(_) => None,
        }
    }

    pub(super) fn is_like(&self, call: &Call) -> bool {
        self.call().is_some_and(|own| own.is_like(call))
    }

    /// It takes a token away, and has to get through.
    pub(super) fn is_release(&self) -> bool {
        self.call().is_some_and(|call| call.purpose == Purpose::Release)
    }

    /// Its yes counts only once replicas have what it wrote.
    pub(super) fn is_for_replicas(&self) -> bool {
        self.call().is_some_and(|call| call.script.is_for_replicas())
    }

    /// It was answered, and what the server says of its replicas follows.
    pub(super) fn note_unacknowledged(&self) {
        if let Some(seat @ Seat::Sent) = self.trip.seats.lock().get_mut(self.seat) {
            *seat = Seat::Unacknowledged;
        }
    }

    /// The token that it may set.
    pub(super) fn acquires(&self) -> Option<&str> {
        let call = self.call().filter(|call| call.purpose == Purpose::Acquire)?;
        call.token.as_ref().map(LockId::as_str)
    }

    /// The token that it takes away.
    pub(super) fn releases(&self) -> Option<&str> {
        let call = self.call().filter(|call| call.purpose == Purpose::Release)?;
        call.token.as_ref().map(LockId::as_str)
    }

    /// The group of its key.
    pub(super) fn group(&self) -> Option<usize> {
        self.claim.as_ref().map(Claim::group)
    }

    /// A thread waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.trip.is_awaited(self.seat)
    }

    pub(super) fn is_of(&self, trip: &Arc<Trip>, seat: usize) -> bool {
        self.seat == seat && Arc::ptr_eq(&self.trip, trip)
    }

    /// Notes the outcome. Its thread is not woken before the [`News`] is told.
    pub(super) fn end(self, outcome: Outcome) -> Option<News> {
        let mut seats = self.trip.seats.lock();
        let seat = seats.get_mut(self.seat)?;
        let left = match seat {
            Seat::Unsent | Seat::Sent | Seat::Unacknowledged => {
                *seat = Seat::Done(outcome);
                if wait(&seats) == Wait::Goes {
                    return None;
                }
                None
            }
            Seat::Left if self.trip.heir.is_some() => Some((self.seat, outcome)),
            _ => return None,
        };
        drop(seats);
        Some(News { trip: self.trip, left })
    }
}

impl News {
    pub(super) fn tell(self) {
        if let (Some((seat, outcome)), Some(heir)) = (self.left, &self.trip.heir) {
            heir.told(seat, outcome);
        } else {
            self.trip.moved.notify_one();
        }
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight")
            .field("seat", &self.seat)
            .field("is_release", &self.is_release())
            .finish_non_exhaustive()
    }
}
