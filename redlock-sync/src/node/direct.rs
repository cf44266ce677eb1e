//! The usual round, without a batch: one node that is one server, no other round that waits, and an idle line with a good connection.
//!
//! A batch is made for many rounds and many servers, and most of the processor time of an uncontended lock went into that. What does not go as usual here
//! goes on as a batch of this one round, from where it is.

use std::sync::Arc;

use super::batch::Batch;
use super::depot::Op;
use super::line::Line;
use super::link::{Broken, Link};
use super::members::Members;
use super::ride::{Due, Outcome, Ride, Way, judged, note};
use super::round::Round;
use super::server::Server;
use super::{Answers, reply};
use crate::clock::Tick;
use crate::protocol::script::{Call, Note};

/// One call to the only server, which has to end by then.
pub(super) struct Direct<'a> {
    pub(super) members: &'a Members,
    pub(super) server: &'a Arc<Server>,
    pub(super) call: &'a Arc<Call>,
    /// The moment before the first byte.
    pub(super) started: Tick,
    pub(super) by: Tick,
}

impl Direct<'_> {
    /// Sends the call and reads its reply. `None` if nothing was sent: then it is for a batch.
    pub(super) fn run(&self, via: &mut Line) -> Option<Answers> {
        let host = &*self.server.host;
        let for_replicas = self.members.settings.min_replicas_ack > 0 && self.call.script.is_for_replicas();
        let link = via.link(self.server.number)?;
        if for_replicas || host.breaker.is_open() || link.owed > 0 || host.is_stale(link) || host.runs_out(link) {
            return None;
        }
        let permissions = host.permissions();
        let note = note(self.call, link, permissions);
        let due = Due { ride: Ride::of(0), note, sent_at: self.started, permissions };
        let reply = match self.exchange(link, note) {
            Ok(reply) => reply,
            Err(outcome) => return Some(self.resume(via, due, outcome)),
        };
        let result = judged(host, Some(link), self.call, &due, reply::value(reply));
        self.server.late.settle(link);
        Some(Answers { results: vec![result], started: self.started, duplicate: false })
    }

    fn exchange(&self, link: &mut Link, note: Note) -> Result<redis::Value, Outcome> {
        self.send(link, note).map_err(Outcome::Unsent)?;
        let deadline = self.by.min(self.started.after(self.members.settings.node_timeout));
        let reply = link.receive(deadline.since(self.members.clock.now())).map_err(Outcome::Unread)?;
        if reply::is_noscript(&reply) { Err(Outcome::Unknown) } else { Ok(reply) }
    }

    fn send(&self, link: &mut Link, note: Note) -> Result<(), Broken> {
        if let Some(bytes) = self.call.packed(note) {
            return link.send(bytes);
        }
        let mut packet = Vec::new();
        self.call.write_to(&mut packet, note);
        link.send(&packet)
    }

    #[cold]
    fn resume(&self, via: &mut Line, due: Due, outcome: Outcome) -> Answers {
        let round = Round::new(Arc::clone(self.call), 1, &|_| true, self.started);
        let op = Op::new(round, true, self.by);
        let way = Way { node: 0, server: Arc::clone(self.server) };
        Batch::begun(self.members, via, vec![Arc::clone(&op)], 1, self.started).resume(&way, due, outcome);
        op.read(Round::take_answers)
    }
}
