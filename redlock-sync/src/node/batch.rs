//! A batch: the rounds of many threads, led over one line by one of them.
//!
//! Everything that can be written at once is written, a packet to each node. Then the replies are read, node by node, until a common deadline: so it
//! costs the slowest round trip, not the sum. A round whose last reply is read is over at once, and its thread goes on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::condition::During;
use super::host::Host;
use super::line::Line;
use super::link::{Broken, Link};
use super::round::RoundOp;
use super::server::{Members, Node};
use super::{Executed, Failure, FailureKind, Value, reply};
use crate::clock::Tick;
use crate::protocol::script::{Call, Note, Purpose};

/// How long a round waits for a connection to a node that is left out but needed for a majority: waiting longer for one that is silent would cost each
/// round all of its time.
const GLANCE: Duration = Duration::from_millis(2);

/// One batch on its way.
pub(super) struct Batch<'a> {
    members: &'a Members,
    line: &'a mut Line,
    riders: Vec<Rider>,
    /// The nodes that failed just now are left out: the others are a majority.
    spares: bool,
    /// The moment before the first byte.
    started: Tick,
    deadline: Tick,
}

/// A round in the batch.
struct Rider {
    op: RoundOp,
    call: Arc<Call>,
}

/// The calls that go to one node, in the order in which they are written.
struct Stop {
    node: usize,
    riders: Vec<usize>,
}

/// A call that was written, and whose reply is due.
struct Due {
    rider: usize,
    note: Note,
    sent_at: Tick,
    /// The host's count of permissions when it was written.
    permissions: u64,
}

/// A packet that broke off.
struct Cut {
    why: String,
    /// The server has some of it, or may have.
    arrived: bool,
    /// By a signal, which says nothing of the server.
    is_signal: bool,
    unanswered: Vec<Due>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(members: &'a Members, line: &'a mut Line, ops: Vec<RoundOp>, need: usize) -> Batch<'a> {
        let started = members.clock.now();
        // No rider's time ends later than the leader's.
        let latest = ops.first().map_or(started, |op| op.by);
        let ride = |op: RoundOp| {
            let call = op.note(|round| {
                round.start(started);
                (round.call(), false)
            });
            call.map(|call| Rider { op, call })
        };
        Batch {
            spares: members.nodes.iter().filter(|node| node.outage().is_none()).count() >= need,
            riders: ops.into_iter().filter_map(ride).collect(),
            deadline: latest.min(started.after(members.settings.node_timeout)),
            members,
            line,
            started,
        }
    }

    pub(super) fn run(mut self) {
        let members = self.members;
        let (mut written, mut cold) = (Vec::new(), Vec::new());
        for (node, server) in members.nodes.iter().enumerate() {
            let stop = Stop { node, riders: self.riders_to(node) };
            match server.outage().filter(|_| self.spares) {
                Some(outage) => self.leave_out(&stop, &outage),
                None if self.has_link(node) => written.push((node, self.write(&stop))),
                None => cold.push(stop),
            }
        }
        cold.retain(|stop| !stop.riders.is_empty());
        for stop in &cold {
            self.order(stop.node);
        }
        // Nodes to which a connection is made are waited for first, a little, then the replies of the others are read.
        while !cold.is_empty() || !written.is_empty() {
            self.warm_up(&mut cold, &mut written);
            for (node, sent) in std::mem::take(&mut written) {
                self.bring_home(node, sent);
            }
        }
    }

    /// The rounds that ask this node.
    fn riders_to(&self, node: usize) -> Vec<usize> {
        let asks = |rider: &Rider| rider.op.note(|round| (round.is_open(node), false)) == Some(true);
        self.riders.iter().enumerate().filter(|(_, rider)| asks(rider)).map(|(i, _)| i).collect()
    }

    fn server(&self, node: usize) -> Option<&'a Node> {
        self.members.nodes.get(node)
    }

    fn host(&self, node: usize) -> Option<&'a Host> {
        self.server(node).map(|server| &*server.host)
    }

    /// The line has a good connection to that node, or one has come for it.
    fn has_link(&mut self, node: usize) -> bool {
        let Some(host) = self.host(node) else { return false };
        let Some(seat) = self.line.links.get_mut(node) else { return false };
        if seat.as_ref().is_some_and(|link| host.is_stale(link)) {
            *seat = None;
        }
        if seat.is_none() {
            let come = self.line.posts.take(node);
            *seat = come.and_then(Result::ok).filter(|link| !host.is_stale(link));
        }
        seat.is_some()
    }

    /// A node that is left out says why. A release is written all the same where that takes no time, and not waited for: it may have to go behind
    /// something late.
    fn leave_out(&mut self, stop: &Stop, outage: &Failure) {
        let is_release = |&i: &usize| self.riders.get(i).is_some_and(|rider| rider.call.purpose == Purpose::Release);
        let (releases, others): (Vec<usize>, Vec<usize>) = stop.riders.iter().copied().partition(is_release);
        for rider in others {
            self.answer(stop.node, rider, Err(outage.clone()));
        }
        if releases.is_empty() {
            return;
        }
        let releases = Stop { node: stop.node, riders: releases };
        let may_arrive = self.has_link(stop.node)
            && match self.write(&releases) {
                Ok(due) => {
                    self.shelve(stop.node, &due, due.len());
                    true
                }
                Err(cut) => cut.arrived,
            };
        let executed = if may_arrive { Executed::Maybe } else { Executed::No };
        for rider in releases.riders {
            self.answer(stop.node, rider, Err(Failure { executed, ..outage.clone() }));
        }
    }

    /// Waits for connections to nodes to which the line has none, and writes on each that comes. Once something was
    /// written, they are waited for no longer than an eighth of a node timeout from the start.
    fn warm_up(&mut self, cold: &mut Vec<Stop>, written: &mut Vec<(usize, Result<Vec<Due>, Cut>)>) {
        let a_little = self.started.after(self.members.settings.node_timeout / 8);
        while !cold.is_empty() {
            let until = if written.is_empty() { self.deadline } else { a_little.min(self.deadline) };
            let until = cold.iter().map(|stop| self.connect_by(stop.node)).fold(until, Tick::min);
            let nodes: Vec<usize> = cold.iter().map(|stop| stop.node).collect();
            self.line.posts.wait(&nodes, until, &*self.members.clock);
            let now = self.members.clock.now();
            for stop in std::mem::take(cold) {
                match self.line.posts.take(stop.node) {
                    Some(Ok(link)) => {
                        self.seat(stop.node, Some(link));
                        written.push((stop.node, self.write(&stop)));
                    }
                    Some(Err(failure)) => self.answer_all(&stop, &failure),
                    None if now >= self.connect_by(stop.node) => self.answer_all(&stop, &self.no_connection(stop.node)),
                    None => cold.push(stop),
                }
            }
            if !written.is_empty() && now >= a_little {
                return;
            }
        }
    }

    fn order(&self, node: usize) {
        if let Some(host) = self.host(node) {
            host.order(&self.line.posts);
        }
    }

    /// Until when a connection to that node is waited for.
    fn connect_by(&self, node: usize) -> Tick {
        let is_out = self.server(node).is_some_and(|server| server.outage().is_some());
        if is_out { self.deadline.min(self.started.after(GLANCE)) } else { self.deadline }
    }

    fn no_connection(&self, node: usize) -> Failure {
        let Some(host) = self.host(node) else { return super::round::not_asked() };
        if let Some(outage) = host.breaker.outage() {
            return outage;
        }
        let failure = Failure::unsent(FailureKind::TimedOut, "no connection in time");
        if self.members.clock.now().since(self.started) >= self.members.settings.node_timeout / 2 {
            host.note(&failure, During::Connect);
        }
        failure
    }

    fn seat(&mut self, node: usize, link: Option<Link>) {
        if let Some(seat) = self.line.links.get_mut(node) {
            *seat = link;
        }
    }

    /// One packet to one node. A round that its thread has left by now is skipped: nothing is sent for a thread that has gone.
    fn write(&mut self, stop: &Stop) -> Result<Vec<Due>, Cut> {
        let (Some(host), Some(Some(link))) = (self.host(stop.node), self.line.links.get_mut(stop.node)) else {
            return Err(Cut {
                why: "connection is gone".into(),
                arrived: false,
                is_signal: false,
                unanswered: Vec::new(),
            });
        };
        let (permissions, sent_at) = (host.permissions(), self.members.clock.now());
        let (mut packet, mut due) = (Vec::new(), Vec::with_capacity(stop.riders.len()));
        for &i in &stop.riders {
            let Some(rider) = self.riders.get(i) else { continue };
            if rider.op.note(|round| (round.write_on(stop.node, link.id()), false)).is_some() {
                let note = note(&rider.call, link, permissions);
                rider.call.write_to(&mut packet, note);
                due.push(Due { rider: i, note, sent_at, permissions });
            }
        }
        match if due.is_empty() { Ok(()) } else { link.send(&packet) } {
            Ok(()) => Ok(due),
            // The server cannot execute a part of a call; of several calls it may have some.
            Err(broken) => Err(self.cut(stop.node, broken, due.len() > 1, due)),
        }
    }

    fn cut(&mut self, node: usize, broken: Broken, arrived: bool, unanswered: Vec<Due>) -> Cut {
        let why = match broken {
            Broken::TimedOut => "timed out while writing".to_owned(),
            Broken::Interrupted => "interrupted by a signal".to_owned(),
            Broken::Cut(why) | Broken::Distrusted(why) => why,
        };
        let link = self.line.links.get_mut(node).and_then(Option::take);
        if let (Some(host), Some(mut link)) = (self.host(node), link) {
            host.put_out_of_use(&mut link);
        }
        Cut { why, arrived, is_signal: false, unanswered }
    }

    /// Reads the replies of one node. What broke off is sent once more, on another connection.
    fn bring_home(&mut self, node: usize, sent: Result<Vec<Due>, Cut>) {
        let cut = match sent.and_then(|due| self.read_all(node, due)) {
            Ok(()) => return self.put_back(node),
            Err(cut) => cut,
        };
        match self.send_again(node, &cut).and_then(|due| self.read_all(node, due)) {
            Ok(()) => self.put_back(node),
            // Not the server's doing: once more, as long as there is time.
            Err(signal) if signal.is_signal && self.members.clock.now() < self.deadline => {
                self.bring_home(node, Err(signal));
            }
            Err(second) => self.give_up(node, &cut, second),
        }
    }

    /// The call broke off twice.
    fn give_up(&self, node: usize, first: &Cut, second: Cut) {
        let executed = if first.arrived || second.arrived { Executed::Maybe } else { Executed::No };
        let failure = Failure::new(FailureKind::Unreachable, executed, both(&first.why, &second.why));
        if let Some(host) = self.host(node).filter(|_| !second.is_signal) {
            host.note(&failure, During::Call);
        }
        for due in second.unanswered {
            self.answer(node, due.rider, Err(failure.clone()));
        }
    }

    /// Sends what broke off a second time: the scripts may be executed twice for the same token. If a fresh connection breaks as well, it was not
    /// staleness.
    fn send_again(&mut self, node: usize, cut: &Cut) -> Result<Vec<Due>, Cut> {
        if cut.arrived {
            for due in &cut.unanswered {
                if let Some(rider) = self.riders.get(due.rider) {
                    rider.op.note(|round| (round.note_duplicate(), false));
                }
            }
        }
        let stop = Stop { node, riders: cut.unanswered.iter().map(|due| due.rider).collect() };
        if self.has_link(node) {
            return self.write(&stop);
        }
        self.order(node);
        self.line.posts.wait(&[node], self.connect_by(node), &*self.members.clock);
        let failure = match self.line.posts.take(node) {
            Some(Ok(link)) => {
                self.seat(node, Some(link));
                return self.write(&stop);
            }
            Some(Err(failure)) => failure,
            None => self.no_connection(node),
        };
        let executed = if cut.arrived { Executed::Maybe } else { failure.executed };
        let message = both(&cut.why, &failure.message);
        self.answer_all(&stop, &Failure { kind: failure.kind, executed, message });
        Ok(Vec::new())
    }

    /// Exactly one read for each command that was written. Calls whose script the server does not know are sent again with their sources.
    fn read_all(&mut self, node: usize, due: Vec<Due>) -> Result<(), Cut> {
        let unknown = self.read(node, due)?;
        if unknown.is_empty() {
            return Ok(());
        }
        let due = self.write_sources(node, unknown)?;
        for due in self.read(node, due)? {
            let failure = Failure::new(FailureKind::Refused, Executed::No, "NOSCRIPT in spite of the source");
            self.answer(node, due.rider, Err(failure));
        }
        Ok(())
    }

    /// Reads as many replies as are due; returns the calls that met NOSCRIPT. Those that are not answered in time are failed here.
    fn read(&mut self, node: usize, due: Vec<Due>) -> Result<Vec<Due>, Cut> {
        let mut unknown = Vec::new();
        let mut due = due.into_iter();
        while let Some(next) = due.next() {
            let reply = match self.receive(node) {
                Ok(reply) => reply,
                Err(broken) => {
                    let unanswered: Vec<_> = std::iter::once(next).chain(due).collect();
                    // One read was made for the first of them, and ended too early.
                    let owed = unanswered.len() - 1;
                    return self.not_read(node, broken, unanswered.into_iter().chain(unknown).collect(), owed);
                }
            };
            if reply::is_noscript(&reply) {
                unknown.push(next);
            } else {
                self.judge(node, &next, reply);
            }
        }
        Ok(unknown)
    }

    fn receive(&mut self, node: usize) -> Result<redis::Value, Broken> {
        let Some(Some(link)) = self.line.links.get_mut(node) else {
            return Err(Broken::Cut("connection is gone".into()));
        };
        loop {
            let left = self.deadline.since(self.members.clock.now());
            let reply = link.receive(left)?;
            if link.owed == 0 {
                return Ok(reply);
            }
            link.owed -= 1;
        }
    }

    fn not_read(&mut self, node: usize, broken: Broken, unanswered: Vec<Due>, owed: usize) -> Result<Vec<Due>, Cut> {
        if matches!(broken, Broken::Interrupted) {
            // As after a break, but the other connections are good.
            self.seat(node, None);
            return Err(Cut { why: "interrupted by a signal".into(), arrived: true, is_signal: true, unanswered });
        }
        if !matches!(broken, Broken::TimedOut) {
            return Err(self.cut(node, broken, true, unanswered));
        }
        // Not from the start of the batch: a connection that came late is not the node's silence.
        let waited = unanswered.first().map_or(Duration::ZERO, |due| self.members.clock.now().since(due.sent_at));
        let message = format!("timed out after {} ms", waited.as_millis());
        let failure = Failure::new(FailureKind::TimedOut, Executed::Maybe, message);
        // A short one, of callers in a hurry, says nothing about the node.
        if waited >= self.members.settings.node_timeout * 3 / 4
            && let Some(host) = self.host(node)
        {
            host.note(&failure, During::Call);
        }
        // Filed before the threads know: a release finds the late call from then on.
        self.shelve(node, &unanswered, owed);
        for due in unanswered {
            self.answer(node, due.rider, Err(failure.clone()));
        }
        Ok(Vec::new())
    }

    /// Keeps the connection for what is late on it. `owed` replies have not been read for.
    fn shelve(&mut self, node: usize, late: &[Due], owed: usize) {
        let link = self.line.links.get_mut(node).and_then(Option::take);
        if let (Some(server), Some(mut link)) = (self.server(node), link) {
            let calls = late.iter().filter_map(|due| self.riders.get(due.rider)).map(|rider| &*rider.call);
            let owed = owed + link.owed;
            server.late.keep(&mut link, calls, owed);
        }
    }

    /// The first call of each script brings the source, which the others then find.
    fn write_sources(&mut self, node: usize, unknown: Vec<Due>) -> Result<Vec<Due>, Cut> {
        let (mut packet, mut brought, mut due) = (Vec::new(), HashSet::new(), Vec::new());
        for next in unknown {
            let Some(rider) = self.riders.get(next.rider) else { continue };
            if rider.op.note(|_| ((), false)).is_none() {
                continue;
            }
            if brought.insert(&rider.call.script.sha) {
                rider.call.write_source_to(&mut packet, next.note);
            } else {
                rider.call.write_to(&mut packet, next.note);
            }
            due.push(next);
        }
        let Some(Some(link)) = self.line.links.get_mut(node) else { return Ok(Vec::new()) };
        match if due.is_empty() { Ok(()) } else { link.send(&packet) } {
            Ok(()) => Ok(due),
            Err(broken) => Err(self.cut(node, broken, due.len() > 1, due)),
        }
    }

    /// What a reply says of the call, the link and the node.
    fn judge(&mut self, node: usize, due: &Due, reply: redis::Value) {
        let (Some(host), Some(rider)) = (self.host(node), self.riders.get(due.rider)) else { return };
        let result = reply::value(reply);
        if let Some(Some(link)) = self.line.links.get_mut(node) {
            match &result {
                Ok(_) if due.note == Note::Check => link.permit(rider.call.script.needs, due.permissions),
                Ok(_) => {}
                Err(failure) => host.was_refused(link, failure),
            }
        }
        host.replied(&rider.call, &result);
        self.answer(node, due.rider, result);
    }

    fn answer(&self, node: usize, rider: usize, result: Result<Value, Failure>) {
        if let Some(rider) = self.riders.get(rider) {
            rider.op.note(|round| ((), round.answer(node, result)));
        }
    }

    fn answer_all(&self, stop: &Stop, failure: &Failure) {
        for &rider in &stop.riders {
            self.answer(stop.node, rider, Err(failure.clone()));
        }
    }

    /// All replies were read. What has to go behind calls that their threads have left is written now.
    fn put_back(&mut self, node: usize) {
        if let (Some(server), Some(Some(link))) = (self.server(node), self.line.links.get_mut(node)) {
            server.late.settle(link);
        }
    }
}

fn both(first: &str, second: &str) -> String {
    if first == second { first.to_owned() } else { format!("{first}, then {second}") }
}

/// What a transmission of a call tells the script. Those that set something have the user's permissions checked, until the check of one of their kind was
/// passed, so that nothing is set before.
fn note(call: &Call, link: &Link, permissions: u64) -> Note {
    let is_unknown = call.script.needs.is_some_and(|needs| !link.is_permitted(needs, permissions));
    if is_unknown { Note::Check } else { Note::Nothing }
}
