//! One exchange: the calls of one thread, each to every server that is asked. They are written to all servers, then the replies are read. Only this thread
//! looks at what they say.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::redirect::Route;
use super::condition::During;
use super::members::{Members, Node};
use super::pipes::arrivals::Arrivals;
use super::pipes::connections::{Found, Wish};
use super::pipes::ends::Broken;
use super::pipes::flight::{Load, Outcome, Parting, Trip, Wait};
use super::pipes::framer::Reply;
use super::pipes::pipe::Pipe;
use super::pipes::waiting::wait;
use super::server::Server;
use super::{Answers, Ask, Executed, Failure, FailureKind, Lane, Value, replicas, reply};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Note, Purpose};

/// How long a connection is waited for to a server that is left out but needed for a majority: waiting longer for one
/// that is silent would cost each exchange all of its time.
const GLANCE: Duration = Duration::from_millis(2);

/// The nodes, the deadline and the order in which an exchange sends its calls.
pub(super) struct Exchange<'a> {
    pub(super) members: &'a Members,
    pub(super) arrivals: &'a Arrivals,
    pub(super) lane: Lane,
    pub(super) by: Tick,
    /// How many nodes are a majority.
    pub(super) need: usize,
}

/// How far a call has come at one server.
enum State {
    /// Waits for a connection.
    Waits,
    /// A release for a server that is left out: it is written where that takes no time, and not waited for.
    Passes(Failure),
    Flies {
        pipe: Arc<Pipe>,
        generation: u64,
        note: Note,
        permissions: u64,
    },
    Over(Result<Value, Failure>),
}

/// One call to one node.
struct Leg {
    node: usize,
    call: Arc<Call>,
    /// The server that is asked for the node.
    server: Option<Arc<Server>>,
    route: Route,
    state: State,
    /// The server does not know the script.
    with_source: bool,
    /// Why its first connection broke.
    first_cut: Option<String>,
    /// The server may have a copy of it.
    duplicate: bool,
    /// How much its connection had read when its time was up last.
    has_read: usize,
}

impl Leg {
    fn new(call: &Arc<Call>, node: usize, member: &Node, is_asked: bool, spares: bool) -> Leg {
        let not_asked = || State::Over(Err(Failure::unsent(FailureKind::LeftOut, "not asked")));
        let server = if is_asked { member.server_for(call) } else { None };
        let state = match &server {
            None => not_asked(),
            Some(server) => {
                // A server of a cluster has no others that could do without it, and is not waited for either: another one may serve its slots by now.
                let leaves_out = spares || server.host.is_of_cluster();
                match leaves_out.then(|| server.outage()).flatten() {
                    // It may have to go behind what is unanswered there.
                    Some(outage) if call.purpose == Purpose::Release => State::Passes(outage),
                    Some(outage) => {
                        // The new connection finds out when the server is back.
                        server.connections(call).try_another();
                        State::Over(Err(server.host.named(outage)))
                    }
                    None => State::Waits,
                }
            }
        };
        let call = Arc::clone(call);
        let (route, with_source, duplicate) = (Route::default(), false, false);
        Leg { node, call, server, route, state, with_source, first_cut: None, duplicate, has_read: 0 }
    }

    /// The connection over which it goes to that server.
    fn pipe_to(&self, server: &Server) -> Option<&Arc<Pipe>> {
        let is_there = self.server.as_ref().is_some_and(|own| own.number() == server.number());
        match &self.state {
            State::Flies { pipe, .. } if is_there => Some(pipe),
            _ => None,
        }
    }
}

struct Course<'a> {
    exchange: &'a Exchange<'a>,
    clock: &'a dyn Clock,
    trip: Arc<Trip>,
    legs: Vec<Leg>,
    started: Tick,
    deadline: Tick,
    patience: Duration,
}

impl Exchange<'_> {
    /// Sends each call to the nodes that `ask` names.
    pub(super) fn run(&self, calls: &[Arc<Call>], ask: Ask<'_>) -> Vec<Answers> {
        let clock = &*self.members.clock;
        let (started, patience) = (clock.now(), self.members.settings.node_timeout);
        let nodes = self.members.nodes.len();
        // With one node nothing can be left out, and this is asked of all.
        let well = || self.members.nodes.iter().filter(|node| node.outage().is_none()).count();
        let spares = nodes > 1 && well() >= self.need;
        let legs: Vec<Leg> = calls
            .iter()
            .flat_map(|call| self.members.nodes.iter().enumerate().map(move |(i, node)| (call, i, node)))
            .map(|(call, i, node)| Leg::new(call, i, node, ask(i), spares))
            .collect();
        let longest = calls.iter().map(|call| time_for(call)).max().unwrap_or_default();
        // What takes no time cannot come too late, however far a test advances the clock.
        let is_instant = self.members.nodes.iter().all(Node::is_instant);
        let deadline = if is_instant { Tick::NEVER } else { self.by.min(started.after(patience)).after(longest) };
        let trip = Trip::new(legs.len(), None);
        let mut course = Course { exchange: self, clock, trip, legs, started, deadline, patience };
        course.run();
        let mut legs = course.legs.into_iter();
        calls.iter().map(|_| answers(legs.by_ref().take(nodes).collect(), started)).collect()
    }
}

fn answers(legs: Vec<Leg>, started: Tick) -> Answers {
    let duplicate = legs.iter().any(|leg| leg.duplicate);
    let result = |leg: Leg| match leg.state {
        State::Over(result) => result,
        _ => Err(timed_out(Executed::Maybe, "was not answered")),
    };
    Answers { results: legs.into_iter().map(result).collect(), started, duplicate }
}

/// The time of a call beyond that of others, for the body that it sends, and as much for one that is before it on the connection: as long as that takes at
/// the lowest rate at which a server counts as well.
fn time_for(call: &Call) -> Duration {
    if call.script.takes_bodies() { super::link::at_the_floor(call.len()) * 2 } else { Duration::ZERO }
}

impl Course<'_> {
    fn run(&mut self) {
        self.pass();
        loop {
            self.set_out();
            // Before the second look: what comes after it ends the wait.
            let seen = if self.waiting().is_empty() { 0 } else { self.exchange.arrivals.news() };
            if seen > 0 {
                self.set_out();
            }
            let flying: Vec<(usize, Arc<Pipe>)> = self.flying().collect();
            let waiting = self.waiting();
            if flying.is_empty() && waiting.is_empty() {
                return;
            }
            let until = self.until(!waiting.is_empty(), !flying.is_empty());
            if flying.is_empty() {
                self.exchange.arrivals.wait(&waiting, seen, until, self.clock);
            } else if wait(&self.trip, &flying, until, self.clock) != Wait::Goes {
                self.take_outcomes();
                continue;
            }
            if self.clock.now() >= self.deadline && !self.still_moves() {
                return self.leave();
            }
        }
    }

    /// While some wait for connections, those are looked for from time to time.
    fn until(&self, waits: bool, flies: bool) -> Tick {
        if !waits {
            return self.deadline;
        }
        let now = self.clock.now();
        let prompt = self.prompt();
        let deadline = if now < prompt { self.deadline.min(prompt) } else { self.deadline };
        let is_out = |leg: &Leg| {
            let out = |server: &Arc<Server>| self.why_out(leg, server).is_some();
            matches!(leg.state, State::Waits) && leg.server.as_ref().is_some_and(out)
        };
        if self.legs.iter().any(is_out) {
            return deadline.min(now.after(GLANCE));
        }
        if flies { deadline.min(now.after(self.patience / 8)) } else { deadline }
    }

    /// Why a connection to the server is not waited for any longer than [`GLANCE`].
    fn why_out(&self, leg: &Leg, server: &Server) -> Option<Failure> {
        self.exchange.arrivals.failure(server.connections(&leg.call).place()).or_else(|| server.outage())
    }

    /// Until then a connection that answers slowly is not taken: another one may come.
    fn prompt(&self) -> Tick {
        self.started.after(self.patience / 4)
    }

    fn flying(&self) -> impl Iterator<Item = (usize, Arc<Pipe>)> {
        self.legs.iter().enumerate().filter_map(|(i, leg)| match &leg.state {
            State::Flies { pipe, .. } => Some((i, Arc::clone(pipe))),
            _ => None,
        })
    }

    /// Where connections are waited for.
    fn waiting(&self) -> Vec<usize> {
        let place = |leg: &Leg| Some(leg.server.as_ref()?.connections(&leg.call).place());
        self.legs.iter().filter(|leg| matches!(leg.state, State::Waits)).filter_map(place).collect()
    }

    /// Writes where it does not wait for an answer.
    fn pass(&mut self) {
        for i in 0..self.legs.len() {
            let Some(leg) = self.legs.get(i) else { continue };
            let (State::Passes(outage), Some(server)) = (&leg.state, &leg.server) else { continue };
            let mut failure = server.host.named(outage.clone());
            if let Some(State::Flies { pipe, .. }) =
                self.fly(i, leg, server, &Wish { is_release: true, ..Wish::default() })
            {
                pipe.flush();
                pipe.leave(&self.trip, i, true);
                // Its connection can have broken just then, which shall not end the wait for the others.
                drop(self.trip.take(i));
                failure.executed = Executed::Maybe;
                failure.message.push_str("; the release was written all the same");
            }
            self.put(i, State::Over(Err(failure)));
        }
    }

    /// There is one call, which needs not wait for others to be written with.
    fn is_single(&self) -> bool {
        self.legs.len() <= self.exchange.members.nodes.len()
    }

    /// Writes wherever there is a connection.
    fn set_out(&mut self) {
        self.put_out();
        if !self.is_single() {
            self.flying().for_each(|(_, pipe)| pipe.flush());
        }
    }

    fn put_out(&mut self) {
        for i in 0..self.legs.len() {
            let Some(leg) = self.legs.get(i) else { continue };
            let (State::Waits, Some(server)) = (&leg.state, &leg.server) else { continue };
            let is_release = leg.call.purpose == Purpose::Release;
            let prompt = self.clock.now() < self.prompt() || !is_release && server.outage().is_some();
            let beside = self.legs.iter().find_map(|other| other.pipe_to(server));
            let flies = self.fly(i, leg, server, &Wish { prompt, is_release, beside });
            let is_over = || self.clock.now() >= self.started.after(GLANCE);
            let failure = || self.why_out(leg, server).filter(|_| is_over());
            let state = flies.or_else(|| Some(State::Over(Err(after_connect(leg, server, failure()?)))));
            if let Some(state) = state {
                self.put(i, state);
            }
        }
    }

    /// Sends the call over a connection, if there is one.
    fn fly(&self, i: usize, leg: &Leg, server: &Server, wish: &Wish<'_>) -> Option<State> {
        let call = &leg.call;
        let Found { claim, pipe, generation } = server.claim(call, wish)?;
        // A very slow server has enough to do without the same release again and again.
        if call.purpose == Purpose::Release && pipe.is_late(self.patience / 2) && pipe.has_like(call) {
            let failure = timed_out(Executed::Maybe, "does not answer the same release, which was sent before");
            return Some(State::Over(Err(server.host.named(failure))));
        }
        let permissions = server.host.permissions();
        let note = if leg.route.is_alone { Note::Nothing } else { server.note(call, permissions) };
        let with_source = leg.with_source || server.needs_source(call);
        let load = Load::Script { call: Arc::clone(call), note, with_source, asks: leg.route.asks };
        let flight = self.trip.flight(i, load, self.exchange.lane == Lane::Reserved, Some(claim));
        if self.is_single() {
            pipe.send(flight);
        } else {
            pipe.put(flight);
        }
        Some(State::Flies { pipe, generation, note, permissions })
    }

    fn put(&mut self, i: usize, state: State) {
        if let Some(leg) = self.legs.get_mut(i) {
            if let State::Flies { pipe, .. } = &state {
                leg.has_read = pipe.has_read();
            }
            leg.state = state;
        }
    }

    /// What has become of the calls that have an outcome.
    fn take_outcomes(&mut self) {
        for i in 0..self.legs.len() {
            let flies = |leg: &&mut Leg| matches!(leg.state, State::Flies { .. });
            let Some(leg) = self.legs.get_mut(i).filter(flies) else { continue };
            let Some(outcome) = self.trip.take(i) else { continue };
            let State::Flies { generation, note, permissions, .. } = std::mem::replace(&mut leg.state, State::Waits)
            else {
                continue;
            };
            let Some(server) = leg.server.clone() else { continue };
            let state = match outcome {
                Outcome::Replied(said) => self.after_reply(i, &server, (note, permissions), said),
                Outcome::Acknowledged { reply: said, replicas } => {
                    let waited = self.clock.now().since(self.started);
                    let least = self.exchange.members.settings.min_replicas_ack;
                    let result = replicas::judged(reply::read(said), reply::read(replicas), least, waited);
                    Some(self.over(i, &server, (note, permissions), result))
                }
                Outcome::Cut { was_written, why } => self.after_cut(i, &server, (generation, was_written), &why),
            };
            self.put(i, state.unwrap_or(State::Waits));
        }
    }

    fn over(
        &self,
        i: usize,
        server: &Server,
        (note, permissions): (Note, u64),
        result: Result<Value, Failure>,
    ) -> State {
        let Some(leg) = self.legs.get(i) else { return State::Over(result) };
        let result = server.judged(&leg.call, note, permissions, result);
        State::Over(result.map_err(|failure| server.host.named(failure)))
    }

    /// A script that is unknown is sent with its source, and a call that a server of a cluster sends elsewhere goes on there. `None`: as soon as there is a connection.
    fn after_reply(&mut self, i: usize, server: &Arc<Server>, sent: (Note, u64), said: Reply) -> Option<State> {
        if reply::is_noscript(&said) {
            self.legs.get_mut(i)?.with_source = true;
            self.deadline = self.deadline.after(time_for(&self.legs.get(i)?.call));
            let is_release = self.legs.get(i)?.call.purpose == Purpose::Release;
            return self.fly(i, self.legs.get(i)?, server, &Wish { is_release, ..Wish::default() });
        }
        if said.is_error()
            && let Some(leg) = self.legs.get_mut(i)
            && let Some(Node::Cluster(cluster)) = self.exchange.members.nodes.get(leg.node)
            && let Some((next, route)) = cluster.redirect(&reply::parsed(&said), server, &leg.call, leg.route)
        {
            if route.is_alone
                && !leg.route.is_alone
                && let Some(alone) = leg.call.alone()
            {
                leg.call = Arc::new(alone);
            }
            (leg.server, leg.route) = (Some(next), route);
            return None;
        }
        Some(self.over(i, server, sent, reply::read(said)))
    }

    /// A connection broke: the call is sent once more, on another one.
    fn after_cut(
        &mut self,
        i: usize,
        server: &Server,
        (generation, was_written): (u64, bool),
        why: &Broken,
    ) -> Option<State> {
        server.connection_broke(generation);
        let leg = self.legs.get_mut(i)?;
        leg.duplicate |= was_written;
        let executed = executed(leg.duplicate);
        let why = match why {
            Broken::Unfit(why) => return Some(State::Over(Err(Failure::unsent(FailureKind::Misuse, why.clone())))),
            Broken::Cut(why) => why.clone(),
            Broken::TimedOut | Broken::Slow => "timed out while writing".to_owned(),
        };
        let Some(first) = &leg.first_cut else {
            leg.first_cut = Some(why);
            return None;
        };
        let failure = Failure::new(FailureKind::Unreachable, executed, both(first, &why));
        server.was_silent(&leg.call, &failure);
        Some(State::Over(Err(server.host.named(failure))))
    }

    /// The reply to a call that brings bodies is on its way, no slower than at an eighth of the lowest rate: it gets as much time again.
    fn still_moves(&mut self) -> bool {
        let least = usize::try_from(self.patience.as_micros() / 64).unwrap_or(usize::MAX).max(1);
        let moves = |leg: &mut Leg| {
            let State::Flies { pipe, .. } = &leg.state else { return false };
            let has_read = pipe.has_read();
            let moved = has_read.saturating_sub(std::mem::replace(&mut leg.has_read, has_read));
            leg.call.script.brings_bodies() && moved >= least
        };
        let moves = self.legs.iter_mut().filter_map(|leg| moves(leg).then_some(())).count() > 0;
        if moves {
            self.deadline = self.deadline.after(self.patience);
        }
        moves
    }

    /// The time is up.
    fn leave(&mut self) {
        let waited = self.clock.now().since(self.started);
        for i in 0..self.legs.len() {
            // What is answered just then can be on its way once more: with its source, or to another server.
            while !self.has_left(i, waited) {}
        }
    }

    fn has_left(&mut self, i: usize, waited: Duration) -> bool {
        let Some(leg) = self.legs.get(i) else { return true };
        let Some(server) = leg.server.clone() else { return true };
        let failure = match &leg.state {
            State::Flies { pipe, .. } => {
                let (pipe, is_release) = (Arc::clone(pipe), leg.call.purpose == Purpose::Release);
                let parting = pipe.leave(&self.trip, i, is_release);
                if parting == Parting::Answered {
                    self.take_outcomes();
                    return false;
                }
                server.host.named(self.left(i, &server, parting, waited))
            }
            State::Waits => {
                let failure = after_connect(leg, &server, timed_out(Executed::No, "no connection in time"));
                if waited >= self.patience / 2 {
                    server.host.note(&failure, During::Connect);
                }
                failure
            }
            State::Passes(_) | State::Over(_) => return true,
        };
        self.put(i, State::Over(Err(failure)));
        true
    }

    /// The failure of a call that its thread leaves.
    fn left(&self, i: usize, server: &Server, parting: Parting, waited: Duration) -> Failure {
        let Some(leg) = self.legs.get(i) else { return timed_out(Executed::Maybe, "timed out") };
        let message = format!("timed out after {} ms", waited.as_millis());
        let failure = match parting {
            Parting::Unsent => Failure::new(
                FailureKind::Overloaded,
                executed(leg.duplicate),
                "not sent: other calls to this server were not written or answered in that time",
            ),
            Parting::Unacknowledged => replicas::silent(self.exchange.members.settings.min_replicas_ack, waited),
            Parting::Answered | Parting::Sent => timed_out(Executed::Maybe, &message),
            Parting::WillBeSent => timed_out(Executed::Maybe, &format!("{message}; it will be written")),
        };
        // A call with little time says nothing of the server, and one behind others that are answered neither.
        let connections = server.connections(&leg.call);
        if failure.kind == FailureKind::TimedOut
            && waited >= self.patience * 3 / 4
            && !connections.has_answered_since(self.started)
            && !leg.call.script.brings_bodies()
        {
            server.was_silent(&leg.call, &failure);
        }
        failure
    }
}

/// No connection can be had.
fn after_connect(leg: &Leg, server: &Server, failure: Failure) -> Failure {
    let executed = if leg.duplicate { Executed::Maybe } else { failure.executed };
    let message = match &leg.first_cut {
        Some(first) => both(first, &failure.message),
        None => failure.message,
    };
    server.host.named(Failure { kind: failure.kind, executed, message })
}

fn both(first: &str, second: &str) -> String {
    if first == second { first.to_owned() } else { format!("{first}, then {second}") }
}

fn executed(was_written: bool) -> Executed {
    if was_written { Executed::Maybe } else { Executed::No }
}

fn timed_out(executed: Executed, message: &str) -> Failure {
    Failure::new(FailureKind::TimedOut, executed, message)
}
