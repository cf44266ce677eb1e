//! A batch: the rounds of many threads, led over one line by one of them.
//!
//! Everything that can be written at once is written, a packet to each node. Then the replies are read, node by node,
//! until a common deadline: so it costs the slowest round trip, not the sum. A round whose last reply is read is over
//! at once, and its thread goes on.

mod alone;
mod replicas;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::condition::During;
use super::line::Line;
use super::link::Broken;
use super::members::{Members, Node};
use super::ride::{Cut, Due, Outcome, Ride, Rider, Sent, Stop, Way, add, judged, note, replies};
use super::round::{LeftBehind, RoundOp};
use super::{Executed, Failure, FailureKind, Value, reply};
use crate::clock::Tick;
use crate::protocol::script::{Note, Purpose};

/// How long a round waits for a connection to a node that is left out but needed for a majority: waiting longer for one
/// that is silent would cost each round all of its time.
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
    /// Until when replies are read. Of several nodes one that hangs is given up an eighth of a node timeout earlier:
    /// rounds that began just after this one wait for the line, and have that much time left when they get it, to ask
    /// the others.
    read_by: Tick,
    /// What servers of a cluster sent elsewhere.
    redirected: Vec<Stop>,
    /// The extra time for what it sends, if it is one call that carries a body: see `bodies.rs`.
    body: Option<Duration>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(members: &'a Members, line: &'a mut Line, ops: Vec<RoundOp>, need: usize) -> Batch<'a> {
        Batch::begun(members, line, ops, need, members.clock.now())
    }

    /// One whose first byte may have been written since then.
    pub(super) fn begun(
        members: &'a Members,
        line: &'a mut Line,
        ops: Vec<RoundOp>,
        need: usize,
        started: Tick,
    ) -> Batch<'a> {
        // No rider's time ends later than the leader's.
        let latest = ops.first().map_or(started, |op| op.by);
        let ride = |op: RoundOp| {
            let call = op.note(|round| {
                round.start(started);
                (round.call(), false)
            });
            call.map(|call| Rider { op, call, alone: None })
        };
        let timeout = members.settings.node_timeout;
        let patience = if members.nodes.len() > 1 { timeout.saturating_sub(timeout / 8) } else { timeout };
        Batch {
            spares: members.nodes.iter().filter(|node| node.outage().is_none()).count() >= need,
            riders: ops.into_iter().filter_map(ride).collect(),
            deadline: latest.min(started.after(timeout)),
            read_by: latest.min(started.after(patience)),
            members,
            line,
            started,
            redirected: Vec::new(),
            body: None,
        }
    }

    /// Goes on with a call that was sent without a batch, and not answered in the usual way.
    pub(super) fn resume(mut self, way: &Way, due: Due, outcome: Outcome) {
        let sent = match outcome {
            Outcome::Unsent(broken) => Err(self.cut(way, broken, false, vec![due])),
            Outcome::Unread(broken) => self.not_read(way, broken, vec![due], 0),
            Outcome::Unknown => self.write_sources(way, vec![due]),
        };
        self.bring_home(way, sent);
    }

    pub(super) fn run(mut self) {
        let (mut written, mut cold) = (Vec::new(), Vec::new());
        for stop in self.stops() {
            self.set_out(stop, &mut cold, &mut written);
        }
        // Servers to which a connection is made are waited for first, a little, then the replies of the others are read.
        while !cold.is_empty() || !written.is_empty() {
            self.warm_up(&mut cold, &mut written);
            for (way, sent) in std::mem::take(&mut written) {
                self.bring_home(&way, sent);
            }
            for stop in std::mem::take(&mut self.redirected) {
                self.set_out(stop, &mut cold, &mut written);
            }
        }
    }

    /// Which rounds go where.
    fn stops(&self) -> Vec<Stop> {
        let mut stops = Vec::new();
        for (node, member) in self.members.nodes.iter().enumerate() {
            for (i, rider) in self.riders.iter().enumerate() {
                let asks = rider.op.note(|round| (round.is_open(node), false)) == Some(true);
                if asks && let Some(server) = member.server_for(&rider.call) {
                    add(&mut stops, Way { node, server }, [Ride::of(i)]);
                }
            }
        }
        stops
    }

    /// Writes where there is a connection, and orders one where there is none. A server of a cluster that is left out
    /// has no others that could do without it, and is not waited for either: a probe finds it again, or another one
    /// that serves its slots.
    fn set_out(&mut self, stop: Stop, cold: &mut Vec<Stop>, written: &mut Vec<Sent>) {
        let leaves_out = self.spares || stop.way.host().is_of_cluster();
        match stop.way.server.outage().filter(|_| leaves_out) {
            Some(outage) => self.leave_out(&stop, &outage),
            None if self.has_link(&stop.way) => written.push((stop.way.clone(), self.write(&stop))),
            None => {
                stop.way.host().order(&self.line.posts);
                add(cold, stop.way, stop.rides);
            }
        }
    }

    /// The line has a good connection to that server, or one has come for it.
    fn has_link(&mut self, way: &Way) -> bool {
        let (host, number) = (way.host(), way.server.number);
        if self.line.link(number).is_some_and(|link| host.is_stale(link)) {
            self.line.take(number);
        }
        if self.line.link(number).is_none_or(|link| host.runs_out(link)) {
            let come = self.line.posts.take(number);
            match (come, self.line.link(number)) {
                (Some(Ok(come)), _) if !host.is_stale(&come) => self.line.seat(number, come),
                (Some(Err(failure)), Some(link)) => host.keeps(link, &failure),
                (_, Some(_)) => host.order(&self.line.posts),
                (_, None) => {}
            }
        }
        self.line.link(number).is_some()
    }

    /// A server that is left out says why. A release is written all the same where that takes no time, and not waited
    /// for: it may have to go behind something late.
    fn leave_out(&mut self, stop: &Stop, outage: &Failure) {
        let is_release = |ride: &Ride| self.riders.get(ride.rider).is_some_and(|r| r.call.purpose == Purpose::Release);
        let (releases, others): (Vec<Ride>, Vec<Ride>) = stop.rides.iter().copied().partition(is_release);
        for ride in others {
            self.answer(&stop.way, ride, Err(outage.clone()));
        }
        if releases.is_empty() {
            return;
        }
        let releases = Stop { way: stop.way.clone(), rides: releases };
        let may_arrive = self.has_link(&stop.way)
            && match self.write(&releases) {
                Ok(due) => {
                    self.shelve(&stop.way, &due, replies(&due));
                    true
                }
                Err(cut) => cut.arrived,
            };
        let executed = if may_arrive { Executed::Maybe } else { Executed::No };
        self.answer_all(&releases, &Failure { executed, ..outage.clone() });
    }

    /// Waits for connections to servers to which the line has none, and writes on each that comes. Once something was
    /// written, they are waited for no longer than an eighth of a node timeout from the start.
    fn warm_up(&mut self, cold: &mut Vec<Stop>, written: &mut Vec<Sent>) {
        let a_little = self.started.after(self.members.settings.node_timeout / 8);
        while !cold.is_empty() {
            let until = if written.is_empty() { self.deadline } else { a_little.min(self.deadline) };
            let until = cold.iter().map(|stop| self.connect_by(&stop.way)).fold(until, Tick::min);
            let servers: Vec<usize> = cold.iter().map(|stop| stop.way.server.number).collect();
            self.line.posts.wait(&servers, until, &*self.members.clock);
            let now = self.members.clock.now();
            for stop in std::mem::take(cold) {
                match self.line.posts.take(stop.way.server.number) {
                    Some(Ok(link)) => {
                        self.line.seat(stop.way.server.number, link);
                        written.push((stop.way.clone(), self.write(&stop)));
                    }
                    Some(Err(failure)) => self.answer_all(&stop, &failure),
                    None if now >= self.connect_by(&stop.way) => {
                        self.answer_all(&stop, &self.no_connection(&stop.way));
                    }
                    None => cold.push(stop),
                }
            }
            if !written.is_empty() && now >= a_little {
                return;
            }
        }
    }

    /// Until when a connection to that server is waited for.
    fn connect_by(&self, way: &Way) -> Tick {
        let is_out = way.server.outage().is_some();
        if is_out { self.deadline.min(self.started.after(GLANCE)) } else { self.deadline }
    }

    fn no_connection(&self, way: &Way) -> Failure {
        if let Some(outage) = way.server.outage() {
            return outage;
        }
        let failure = Failure::unsent(FailureKind::TimedOut, "no connection in time");
        if self.members.clock.now().since(self.started) >= self.members.settings.node_timeout / 2 {
            way.host().note(&failure, During::Connect);
        }
        failure
    }

    /// One packet to one server. A round that its thread has left by now is skipped: nothing is sent for a thread that
    /// has gone.
    fn write(&mut self, stop: &Stop) -> Result<Vec<Due>, Cut> {
        let (server, now) = (&stop.way.server, self.members.clock.now());
        let Some(link) = self.line.link(server.number) else { return Err(Cut::unlinked()) };
        let permissions = server.host.permissions();
        let (mut packet, mut due) = (Vec::new(), Vec::with_capacity(stop.rides.len()));
        for &ride in &stop.rides {
            let Some(rider) = self.riders.get_mut(ride.rider) else { continue };
            let id = link.id;
            let written = LeftBehind { late: Arc::clone(&server.late), link: id, asks: ride.asks };
            if rider.op.note(|round| (round.write_on(stop.way.node, written), false)).is_some() {
                let note = if ride.is_alone { Note::Nothing } else { note(&rider.call, link, permissions) };
                rider.write(&mut packet, ride, note);
                due.push(Due { ride, note, sent_at: now, permissions });
            }
        }
        replicas::ask(&mut packet, self.members, self.deadline, &self.riders, &due);
        if let Some(extra) = self.body {
            link.grow(self.members.settings.node_timeout.saturating_add(extra));
        }
        match if due.is_empty() { Ok(()) } else { link.send(&packet) } {
            Ok(()) => Ok(due),
            // The server cannot execute a part of a call; of several calls it may have some.
            Err(broken) => Err(self.cut(&stop.way, broken, due.len() > 1, due)),
        }
    }

    fn cut(&mut self, way: &Way, broken: Broken, arrived: bool, unanswered: Vec<Due>) -> Cut {
        // How long a body takes says nothing of the other connections.
        let is_slow = self.body.is_some() && matches!(broken, Broken::TimedOut | Broken::Slow);
        let why = match broken {
            Broken::TimedOut | Broken::Slow => "timed out while writing".to_owned(),
            Broken::Cut(why) | Broken::Unfit(why) => why,
        };
        if let Some(mut link) = self.line.take(way.server.number).filter(|_| !is_slow) {
            way.host().put_out_of_use(&mut link);
        }
        Cut { why, arrived, is_slow, unanswered }
    }

    /// Reads the replies of one server. What broke off is sent once more, on another connection.
    fn bring_home(&mut self, way: &Way, sent: Result<Vec<Due>, Cut>) {
        let cut = match sent.and_then(|due| self.read_all(way, due)) {
            Ok(()) => return self.put_back(way),
            Err(cut) => cut,
        };
        match self.send_again(way, &cut).and_then(|due| self.read_all(way, due)) {
            Ok(()) => self.put_back(way),
            Err(second) => self.give_up(way, &cut, second),
        }
    }

    /// The call broke off twice.
    fn give_up(&self, way: &Way, first: &Cut, second: Cut) {
        let executed = if first.arrived || second.arrived { Executed::Maybe } else { Executed::No };
        let failure = Failure::new(FailureKind::Unreachable, executed, both(&first.why, &second.why));
        if !second.is_slow {
            way.host().note(&failure, During::Call);
        }
        for due in second.unanswered {
            self.answer(way, due.ride, Err(failure.clone()));
        }
    }

    /// Sends what broke off a second time: the scripts may be executed twice for the same token. If a fresh connection
    /// breaks as well, it was not staleness.
    fn send_again(&mut self, way: &Way, cut: &Cut) -> Result<Vec<Due>, Cut> {
        if cut.arrived {
            for due in &cut.unanswered {
                if let Some(rider) = self.riders.get(due.ride.rider) {
                    rider.op.note(|round| (round.note_duplicate(), false));
                }
            }
        }
        self.extend();
        let stop = Stop { way: way.clone(), rides: cut.unanswered.iter().map(|due| due.ride).collect() };
        if self.has_link(way) {
            return self.write(&stop);
        }
        way.host().order(&self.line.posts);
        self.line.posts.wait(&[way.server.number], self.connect_by(way), &*self.members.clock);
        let failure = match self.line.posts.take(way.server.number) {
            Some(Ok(link)) => {
                self.line.seat(way.server.number, link);
                return self.write(&stop);
            }
            Some(Err(failure)) => failure,
            None => self.no_connection(way),
        };
        let executed = if cut.arrived { Executed::Maybe } else { failure.executed };
        let message = both(&cut.why, &failure.message);
        self.answer_all(&stop, &Failure { kind: failure.kind, executed, message });
        Ok(Vec::new())
    }

    /// Exactly one read for each command that was written. Calls whose script the server does not know are sent again
    /// with their sources.
    fn read_all(&mut self, way: &Way, due: Vec<Due>) -> Result<(), Cut> {
        let unknown = self.read(way, due)?;
        if unknown.is_empty() {
            return Ok(());
        }
        let due = self.write_sources(way, unknown)?;
        for due in self.read(way, due)? {
            let failure = Failure::new(FailureKind::Refused, Executed::No, "NOSCRIPT in spite of the source");
            self.answer(way, due.ride, Err(failure));
        }
        Ok(())
    }

    /// Reads as many replies as are due; returns the calls that met NOSCRIPT. Those that are not answered in time are
    /// failed here.
    fn read(&mut self, way: &Way, due: Vec<Due>) -> Result<Vec<Due>, Cut> {
        let is_for_replicas = replicas::are_asked(self.members, &self.riders, &due);
        let (mut unknown, mut held) = (Vec::new(), Vec::new());
        let mut owed = replies(&due) + usize::from(is_for_replicas);
        let mut due = due.into_iter();
        while let Some(next) = due.next() {
            match self.receive(way, next.ride, &mut owed) {
                Ok(reply) if reply::is_noscript(&reply) => unknown.push(next),
                Ok(reply) if self.is_sent_on(way, &next, &reply) => {}
                Ok(reply) => match reply::value(reply) {
                    Ok(yes) if replicas::must_have(self.members, &self.riders, &next, &yes) => held.push((next, yes)),
                    result => self.judge(way, &next, result),
                },
                Err(broken) => {
                    let held = held.into_iter().map(|(due, _)| due);
                    let unanswered = std::iter::once(next).chain(due).chain(held).chain(unknown).collect();
                    return self.not_read(way, broken, unanswered, owed);
                }
            }
        }
        if is_for_replicas { self.read_acknowledgements(way, held, unknown) } else { Ok(unknown) }
    }

    /// The reply to a call, behind that to its `ASKING`. Counts the reads that are still to be made.
    fn receive(&mut self, way: &Way, ride: Ride, owed: &mut usize) -> Result<redis::Value, Broken> {
        for _ in 1..ride.replies() {
            *owed -= 1;
            self.receive_one(way)?;
        }
        *owed -= 1;
        self.receive_one(way)
    }

    fn receive_one(&mut self, way: &Way) -> Result<redis::Value, Broken> {
        let Some(link) = self.line.link(way.server.number) else {
            return Err(Broken::Cut("connection is gone".into()));
        };
        loop {
            let left = self.read_by.since(self.members.clock.now());
            let reply = link.receive(left)?;
            if link.owed == 0 {
                return Ok(reply);
            }
            link.owed -= 1;
        }
    }

    /// True for a reply that is no answer, but sends the call elsewhere.
    fn is_sent_on(&mut self, way: &Way, due: &Due, reply: &redis::Value) -> bool {
        let (Some(Node::Cluster(cluster)), Some(rider)) =
            (self.members.nodes.get(way.node), self.riders.get(due.ride.rider))
        else {
            return false;
        };
        let Some((server, ride)) = cluster.redirect(reply, &way.server, &rider.call, due.ride) else { return false };
        add(&mut self.redirected, Way { node: way.node, server }, [ride]);
        true
    }

    fn not_read(&mut self, way: &Way, broken: Broken, unanswered: Vec<Due>, owed: usize) -> Result<Vec<Due>, Cut> {
        let is_slow = self.body.is_some() || matches!(broken, Broken::Slow);
        if !matches!(broken, Broken::TimedOut | Broken::Slow) {
            return Err(self.cut(way, broken, true, unanswered));
        }
        // Not from the start of the batch: a connection that came late is not the node's silence.
        let waited = unanswered.first().map_or(Duration::ZERO, |due| self.members.clock.now().since(due.sent_at));
        let message = format!("timed out after {} ms", waited.as_millis());
        let failure = Failure::new(FailureKind::TimedOut, Executed::Maybe, message);
        self.note_time(unanswered.first(), is_slow);
        // A short one, of callers in a hurry, says nothing about the node, and a body nothing either.
        if waited >= self.members.settings.node_timeout * 3 / 4 && !is_slow {
            way.host().note(&failure, During::Call);
        }
        self.give_up_on(way, unanswered, owed, &failure);
        Ok(Vec::new())
    }

    /// They may be executed, or have been. Filed before the threads know: a release finds the late call from then on.
    fn give_up_on(&mut self, way: &Way, unanswered: Vec<Due>, owed: usize, failure: &Failure) {
        self.shelve(way, &unanswered, owed);
        for due in unanswered {
            self.answer(way, due.ride, Err(failure.clone()));
        }
    }

    /// Keeps the connection for what is late on it. `owed` replies have not been read for.
    fn shelve(&mut self, way: &Way, late: &[Due], owed: usize) {
        if let Some(mut link) = self.line.take(way.server.number) {
            let call = |due: &Due| Some((&*self.riders.get(due.ride.rider)?.call, due.ride.asks));
            let calls = late.iter().filter_map(call);
            let owed = owed + link.owed;
            way.server.late.keep(&mut link, calls, owed);
        }
    }

    /// The first call of each script brings the source, which the others then find.
    fn write_sources(&mut self, way: &Way, unknown: Vec<Due>) -> Result<Vec<Due>, Cut> {
        self.extend();
        let (mut packet, mut brought, mut due) = (Vec::new(), HashSet::new(), Vec::new());
        for next in unknown {
            let Some(rider) = self.riders.get_mut(next.ride.rider) else { continue };
            if rider.op.note(|_| ((), false)).is_none() {
                continue;
            }
            if brought.insert(&rider.call.script.sha) {
                rider.write_source(&mut packet, next.ride, next.note);
            } else {
                rider.write(&mut packet, next.ride, next.note);
            }
            due.push(next);
        }
        replicas::ask(&mut packet, self.members, self.deadline, &self.riders, &due);
        let Some(link) = self.line.link(way.server.number) else { return Ok(Vec::new()) };
        match if due.is_empty() { Ok(()) } else { link.send(&packet) } {
            Ok(()) => Ok(due),
            Err(broken) => Err(self.cut(way, broken, due.len() > 1, due)),
        }
    }

    /// What a reply says of the call, the link and the node.
    fn judge(&mut self, way: &Way, due: &Due, result: Result<Value, Failure>) {
        self.note_time(Some(due), self.body.is_some());
        let Some(rider) = self.riders.get(due.ride.rider) else { return };
        let link = self.line.link(way.server.number);
        let result = judged(way.host(), link, &rider.call, due, result);
        self.answer(way, due.ride, result);
    }

    fn answer(&self, way: &Way, ride: Ride, result: Result<Value, Failure>) {
        if let Some(rider) = self.riders.get(ride.rider) {
            let result = result.map_err(|failure| way.host().named(failure));
            rider.op.note(|round| ((), round.answer(way.node, result)));
        }
    }

    fn answer_all(&self, stop: &Stop, failure: &Failure) {
        for &ride in &stop.rides {
            self.answer(&stop.way, ride, Err(failure.clone()));
        }
    }

    /// All replies were read. What has to go behind calls that their threads have left is written now.
    fn put_back(&mut self, way: &Way) {
        if let Some(link) = self.line.link(way.server.number) {
            way.server.late.settle(link);
        }
    }
}

fn both(first: &str, second: &str) -> String {
    if first == second { first.to_owned() } else { format!("{first}, then {second}") }
}
