//! What a batch carries: calls on their way to a server, and those whose replies are due.

use std::sync::Arc;

use super::host::Host;
use super::late::ASKING;
use super::link::{Broken, Link};
use super::round::RoundOp;
use super::server::Server;
use super::{Failure, Value};
use crate::clock::Tick;
use crate::protocol::script::{Call, Note};

/// A round in the batch.
pub(super) struct Rider {
    pub(super) op: RoundOp,
    pub(super) call: Arc<Call>,
    /// The call with its first keys alone, once it is needed.
    pub(super) alone: Option<Call>,
}

/// The server that is asked for a node.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) node: usize,
    pub(super) server: Arc<Server>,
}

/// The calls that go to one server, in the order in which they are written.
pub(super) struct Stop {
    pub(super) way: Way,
    pub(super) rides: Vec<Ride>,
}

/// A call that was written, and whose reply is due.
pub(super) struct Due {
    pub(super) ride: Ride,
    pub(super) note: Note,
    pub(super) sent_at: Tick,
    /// The host's count of permissions when it was written.
    pub(super) permissions: u64,
}

/// A packet that broke off.
pub(super) struct Cut {
    pub(super) why: String,
    /// The server has some of it, or may have.
    pub(super) arrived: bool,
    /// A body took too long.
    pub(super) is_slow: bool,
    pub(super) unanswered: Vec<Due>,
}

/// What became of a call that was sent alone, where no answer came.
pub(super) enum Outcome {
    Unsent(Broken),
    Unread(Broken),
    /// The server does not know the script.
    Unknown,
}

/// What was written to a server.
pub(super) type Sent = (Way, Result<Vec<Due>, Cut>);

impl Way {
    pub(super) fn host(&self) -> &Host {
        &self.server.host
    }
}

/// How one transmission of a call is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ride {
    /// Its place in the batch.
    pub(super) rider: usize,
    /// `ASKING` stands before it.
    pub(super) asks: bool,
    /// It names its first keys alone.
    pub(super) is_alone: bool,
    /// How often it was sent elsewhere.
    pub(super) redirects: u8,
}

impl Ride {
    pub(super) fn of(rider: usize) -> Ride {
        Ride { rider, ..Ride::default() }
    }

    /// How many replies it brings.
    pub(super) fn replies(self) -> usize {
        1 + usize::from(self.asks)
    }
}

impl Rider {
    /// Appends the call by its digest.
    pub(super) fn write(&mut self, packet: &mut Vec<u8>, ride: Ride, note: Note) {
        self.on(packet, ride).write_to(packet, note);
    }

    pub(super) fn write_source(&mut self, packet: &mut Vec<u8>, ride: Ride, note: Note) {
        self.on(packet, ride).write_source_to(packet, note);
    }

    /// The call for this ride, behind what has to stand before it.
    fn on(&mut self, packet: &mut Vec<u8>, ride: Ride) -> &Call {
        if ride.asks {
            packet.extend_from_slice(ASKING);
        }
        if ride.is_alone && self.alone.is_none() {
            self.alone = self.call.alone();
        }
        self.alone.as_ref().filter(|_| ride.is_alone).unwrap_or(&self.call)
    }
}

impl Cut {
    pub(super) fn unlinked() -> Cut {
        Cut { why: "connection is gone".into(), arrived: false, is_slow: false, unanswered: Vec::new() }
    }
}

/// Adds rides to the same server to its stop.
pub(super) fn add(stops: &mut Vec<Stop>, way: Way, rides: impl IntoIterator<Item = Ride>) {
    match stops.iter_mut().find(|stop| stop.way.server.number == way.server.number) {
        Some(stop) => stop.rides.extend(rides),
        None => stops.push(Stop { way, rides: rides.into_iter().collect() }),
    }
}

/// How many replies these bring.
pub(super) fn replies(due: &[Due]) -> usize {
    due.iter().map(|due| due.ride.replies()).sum()
}

/// What a transmission of a call tells the script. Those that set something have the user's permissions checked, until
/// the check of one of their kind was passed, so that nothing is set before.
pub(super) fn note(call: &Call, link: &Link, permissions: u64) -> Note {
    let is_unknown = call.script.needs.is_some_and(|needs| !link.is_permitted(needs, permissions));
    if is_unknown { Note::Check } else { Note::Nothing }
}

/// What a reply says of the call, once it was noted of the link and the host.
pub(super) fn judged(
    host: &Host,
    link: Option<&mut Link>,
    call: &Call,
    due: &Due,
    result: Result<Value, Failure>,
) -> Result<Value, Failure> {
    match (&result, link) {
        (Ok(_), Some(link)) if due.note == Note::Check => link.permit(call.script.needs, due.permissions),
        (Err(failure), Some(link)) => host.was_refused(link, failure),
        _ => {}
    }
    host.replied(call, &result);
    result.map_err(|failure| host.meant(failure))
}
