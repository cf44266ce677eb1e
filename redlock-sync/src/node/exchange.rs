//! One exchange: the calls of one thread, each to every server that is asked. They are written to all servers, then the replies are read. Only this thread
//! looks at what they say.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::redirect::Route;
use super::condition::During;
use super::members::{Members, Node};
use super::pipes::arrivals::Arrivals;
use super::pipes::command::{Abandoned, Form, Load, Outcome, Outcomes, Wait};
use super::pipes::connections::{Found, Wish};
use super::pipes::ends::Broken;
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
    Unattended(Failure),
    Sent {
        pipe: Arc<Pipe>,
        generation: u64,
        note: Note,
        permissions: u64,
    },
    Over(Result<Value, Failure>),
}

/// One call to one node.
struct Target {
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

impl Target {
    fn new(call: &Arc<Call>, node: usize, member: &Node, is_asked: bool, spares: bool) -> Target {
        let not_asked = || State::Over(Err(Failure::unsent(FailureKind::LeftOut, "not asked")));
        let server = if is_asked { member.server_for(call) } else { None };
        let state = match &server {
            None => not_asked(),
            Some(server) => {
                // A server of a cluster has no others that could do without it, and is not waited for either: another one may serve its slots by now.
                let leaves_out = spares || server.host.is_of_cluster();
                match leaves_out.then(|| server.outage()).flatten() {
                    // It may have to go behind what is unanswered there.
                    Some(outage) if call.purpose == Purpose::Release => State::Unattended(outage),
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
        Target { node, call, server, route, state, with_source, first_cut: None, duplicate, has_read: 0 }
    }

    /// It was not sent before, and goes to the server that is asked first.
    fn is_first(&self) -> bool {
        self.first_cut.is_none() && self.route == Route::default()
    }

    /// The connection over which it goes to that server.
    fn pipe_to(&self, server: &Server) -> Option<&Arc<Pipe>> {
        let is_there = self.server.as_ref().is_some_and(|own| own.number() == server.number());
        match &self.state {
            State::Sent { pipe, .. } if is_there => Some(pipe),
            _ => None,
        }
    }
}

struct Progress<'a> {
    exchange: &'a Exchange<'a>,
    clock: &'a dyn Clock,
    outcomes: Arc<Outcomes>,
    targets: Vec<Target>,
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
        let targets: Vec<Target> = calls
            .iter()
            .flat_map(|call| self.members.nodes.iter().enumerate().map(move |(i, node)| (call, i, node)))
            .map(|(call, i, node)| Target::new(call, i, node, ask(i), spares))
            .collect();
        let longest = calls.iter().map(|call| time_for(call)).max().unwrap_or_default();
        // What takes no time cannot come too late, however far a test advances the clock.
        let is_instant = self.members.nodes.iter().all(Node::is_instant);
        let deadline = if is_instant { Tick::NEVER } else { self.by.min(started.after(patience)).after(longest) };
        let outcomes = Outcomes::new(targets.len(), None);
        let mut progress = Progress { exchange: self, clock, outcomes, targets, started, deadline, patience };
        progress.run();
        let mut targets = progress.targets.into_iter();
        calls.iter().map(|_| answers(targets.by_ref().take(nodes).collect(), started)).collect()
    }
}

fn answers(targets: Vec<Target>, started: Tick) -> Answers {
    let duplicate = targets.iter().any(|target| target.duplicate);
    let result = |target: Target| match target.state {
        State::Over(result) => result,
        _ => Err(timed_out(Executed::Maybe, "was not answered")),
    };
    Answers { results: targets.into_iter().map(result).collect(), started, duplicate }
}

/// The time of a call beyond that of others, for the body that it sends, and as much for one that is before it on the connection: as long as that takes at
/// the lowest rate at which a server counts as well.
fn time_for(call: &Call) -> Duration {
    if call.script.takes_bodies() { super::link::at_the_floor(call.len()) * 2 } else { Duration::ZERO }
}

impl Progress<'_> {
    fn run(&mut self) {
        self.send_unattended();
        loop {
            self.send_waiting();
            // Before the second look: what comes after it ends the wait.
            let seen = if self.waiting().is_empty() { 0 } else { self.exchange.arrivals.news() };
            if seen > 0 {
                self.send_waiting();
            }
            let sent: Vec<(usize, Arc<Pipe>)> = self.sent().collect();
            let waiting = self.waiting();
            if sent.is_empty() && waiting.is_empty() {
                return;
            }
            let until = self.until(!waiting.is_empty(), !sent.is_empty());
            if sent.is_empty() {
                self.exchange.arrivals.wait(&waiting, seen, until, self.clock);
            } else if wait(&self.outcomes, &sent, until, self.clock) != Wait::Goes {
                self.take_outcomes();
                continue;
            }
            if self.clock.now() >= self.deadline && !self.still_moves() {
                return self.leave();
            }
        }
    }

    /// While some wait for connections, those are looked for from time to time.
    fn until(&self, waits: bool, sent: bool) -> Tick {
        if !waits {
            return self.deadline;
        }
        let now = self.clock.now();
        let prompt = self.prompt();
        let deadline = if now < prompt { self.deadline.min(prompt) } else { self.deadline };
        let is_out = |target: &Target| {
            let out = |server: &Arc<Server>| self.why_out(target, server).is_some();
            matches!(target.state, State::Waits) && target.server.as_ref().is_some_and(out)
        };
        if self.targets.iter().any(is_out) {
            return deadline.min(now.after(GLANCE));
        }
        if sent { deadline.min(now.after(self.patience / 8)) } else { deadline }
    }

    /// Why a connection to the server is not waited for any longer than [`GLANCE`].
    fn why_out(&self, target: &Target, server: &Server) -> Option<Failure> {
        self.exchange.arrivals.failure(server.connections(&target.call).place()).or_else(|| server.outage())
    }

    /// Until then a connection that answers slowly is not taken: another one may come.
    fn prompt(&self) -> Tick {
        self.started.after(self.patience / 4)
    }

    fn sent(&self) -> impl Iterator<Item = (usize, Arc<Pipe>)> {
        self.targets.iter().enumerate().filter_map(|(i, target)| match &target.state {
            State::Sent { pipe, .. } => Some((i, Arc::clone(pipe))),
            _ => None,
        })
    }

    /// Where connections are waited for.
    fn waiting(&self) -> Vec<usize> {
        let place = |target: &Target| Some(target.server.as_ref()?.connections(&target.call).place());
        self.targets.iter().filter(|target| matches!(target.state, State::Waits)).filter_map(place).collect()
    }

    /// Writes where it does not wait for an answer.
    fn send_unattended(&mut self) {
        for i in 0..self.targets.len() {
            let Some(target) = self.targets.get(i) else { continue };
            let (State::Unattended(outage), Some(server)) = (&target.state, &target.server) else { continue };
            let mut failure = server.host.named(outage.clone());
            if let Some(State::Sent { pipe, .. }) =
                self.send(i, target, server, &Wish { is_release: true, ..Wish::default() })
            {
                pipe.flush();
                pipe.leave(&self.outcomes, i, true);
                // Its connection can have broken just then, which shall not end the wait for the others.
                drop(self.outcomes.take(i));
                failure.executed = Executed::Maybe;
                failure.message.push_str("; the release was written all the same");
            }
            self.put(i, State::Over(Err(failure)));
        }
    }

    /// There is one call, which needs not wait for others to be written with.
    fn is_single(&self) -> bool {
        self.targets.len() <= self.exchange.members.nodes.len()
    }

    /// Writes wherever there is a connection.
    fn send_waiting(&mut self) {
        self.put_waiting();
        if !self.is_single() {
            self.sent().for_each(|(_, pipe)| pipe.flush());
        }
    }

    fn put_waiting(&mut self) {
        for i in 0..self.targets.len() {
            let Some(target) = self.targets.get(i) else { continue };
            let (State::Waits, Some(server)) = (&target.state, &target.server) else { continue };
            let is_release = target.call.purpose == Purpose::Release;
            let prompt = self.clock.now() < self.prompt() || !is_release && server.outage().is_some();
            let beside = self.targets.iter().find_map(|other| other.pipe_to(server));
            let sent = self.send(i, target, server, &Wish { prompt, is_release, beside });
            let is_over = || self.clock.now() >= self.started.after(GLANCE);
            let failure = || self.why_out(target, server).filter(|_| is_over());
            let state = sent.or_else(|| Some(State::Over(Err(after_connect(target, server, failure()?)))));
            if let Some(state) = state {
                self.put(i, state);
            }
        }
    }

    /// Sends the call over a connection, if there is one.
    fn send(&self, i: usize, target: &Target, server: &Server, wish: &Wish<'_>) -> Option<State> {
        let call = &target.call;
        let Found { claim, pipe, generation } = server.claim(call, wish)?;
        // A very slow server has enough to do without the same release again and again.
        if call.purpose == Purpose::Release && pipe.is_late(self.patience / 2) && pipe.has_like(call) {
            let failure = timed_out(Executed::Maybe, "does not answer the same release, which was sent before");
            return Some(State::Over(Err(server.host.named(failure))));
        }
        let permissions = server.host.permissions();
        let note = if target.route.is_alone { Note::Nothing } else { server.note(call, permissions) };
        let form = match () {
            () if target.with_source || server.needs_source(call) => Form::Source,
            () if call.is_native && note == Note::Nothing && target.is_first() => Form::Native,
            () => Form::Digest,
        };
        let load = Load::Script { call: Arc::clone(call), note, form, asks: target.route.asks };
        let command = self.outcomes.command(i, load, self.exchange.lane == Lane::Reserved, Some(claim));
        if self.is_single() {
            pipe.send(command);
        } else {
            pipe.put(command);
        }
        Some(State::Sent { pipe, generation, note, permissions })
    }

    fn put(&mut self, i: usize, state: State) {
        if let Some(target) = self.targets.get_mut(i) {
            if let State::Sent { pipe, .. } = &state {
                target.has_read = pipe.has_read();
            }
            target.state = state;
        }
    }

    /// What has become of the calls that have an outcome.
    fn take_outcomes(&mut self) {
        for i in 0..self.targets.len() {
            let sent = |target: &&mut Target| matches!(target.state, State::Sent { .. });
            let Some(target) = self.targets.get_mut(i).filter(sent) else { continue };
            let Some(outcome) = self.outcomes.take(i) else { continue };
            let State::Sent { generation, note, permissions, .. } = std::mem::replace(&mut target.state, State::Waits)
            else {
                continue;
            };
            let Some(server) = target.server.clone() else { continue };
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
        let Some(target) = self.targets.get(i) else { return State::Over(result) };
        let result = server.judged(&target.call, note, permissions, result);
        State::Over(result.map_err(|failure| server.host.named(failure)))
    }

    /// A script that is unknown is sent with its source, and a call that a server of a cluster sends elsewhere goes on there. `None`: as soon as there is a connection.
    fn after_reply(&mut self, i: usize, server: &Arc<Server>, sent: (Note, u64), said: Reply) -> Option<State> {
        if reply::is_noscript(&said) {
            self.targets.get_mut(i)?.with_source = true;
            self.deadline = self.deadline.after(time_for(&self.targets.get(i)?.call));
            let is_release = self.targets.get(i)?.call.purpose == Purpose::Release;
            return self.send(i, self.targets.get(i)?, server, &Wish { is_release, ..Wish::default() });
        }
        if said.is_error()
            && let Some(target) = self.targets.get_mut(i)
            && let Some(Node::Cluster(cluster)) = self.exchange.members.nodes.get(target.node)
            && let Some((next, route)) = cluster.redirect(&reply::parsed(&said), server, &target.call, target.route)
        {
            if route.is_alone
                && !target.route.is_alone
                && let Some(alone) = target.call.with_min_keys()
            {
                target.call = Arc::new(alone);
            }
            (target.server, target.route) = (Some(next), route);
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
        let target = self.targets.get_mut(i)?;
        target.duplicate |= was_written;
        let executed = executed(target.duplicate);
        if let Broken::Unfit(why) = why {
            return Some(State::Over(Err(Failure::unsent(FailureKind::Misuse, why.clone()))));
        }
        let why = why.words();
        let Some(first) = &target.first_cut else {
            target.first_cut = Some(why);
            return None;
        };
        let failure = Failure::new(FailureKind::Unreachable, executed, both(first, &why));
        server.was_silent(&target.call, &failure);
        Some(State::Over(Err(server.host.named(failure))))
    }

    /// The reply to a call that brings bodies is on its way, no slower than at an eighth of the lowest rate: it gets as much time again.
    fn still_moves(&mut self) -> bool {
        let least = usize::try_from(self.patience.as_micros() / 64).unwrap_or(usize::MAX).max(1);
        let moves = |target: &mut Target| {
            let State::Sent { pipe, .. } = &target.state else { return false };
            let has_read = pipe.has_read();
            let moved = has_read.saturating_sub(std::mem::replace(&mut target.has_read, has_read));
            target.call.script.brings_bodies() && moved >= least
        };
        let moves = self.targets.iter_mut().filter_map(|target| moves(target).then_some(())).count() > 0;
        if moves {
            self.deadline = self.deadline.after(self.patience);
        }
        moves
    }

    /// The time is up.
    fn leave(&mut self) {
        let waited = self.clock.now().since(self.started);
        for i in 0..self.targets.len() {
            // What is answered just then can be on its way once more: with its source, or to another server.
            while !self.has_left(i, waited) {}
        }
    }

    fn has_left(&mut self, i: usize, waited: Duration) -> bool {
        let Some(target) = self.targets.get(i) else { return true };
        let Some(server) = target.server.clone() else { return true };
        let failure = match &target.state {
            State::Sent { pipe, .. } => {
                let (pipe, is_release) = (Arc::clone(pipe), target.call.purpose == Purpose::Release);
                let abandoned = pipe.leave(&self.outcomes, i, is_release);
                if abandoned == Abandoned::Answered {
                    self.take_outcomes();
                    return false;
                }
                server.host.named(self.left(i, &server, abandoned, waited))
            }
            State::Waits => {
                let failure = after_connect(target, &server, timed_out(Executed::No, "no connection in time"));
                if waited >= self.patience / 2 {
                    server.host.note(&failure, During::Connect);
                }
                failure
            }
            State::Unattended(_) | State::Over(_) => return true,
        };
        self.put(i, State::Over(Err(failure)));
        true
    }

    /// The failure of a call that its thread leaves.
    fn left(&self, i: usize, server: &Server, abandoned: Abandoned, waited: Duration) -> Failure {
        let Some(target) = self.targets.get(i) else { return timed_out(Executed::Maybe, "timed out") };
        let message = format!("timed out after {} ms", waited.as_millis());
        let failure = match abandoned {
            Abandoned::Unsent => Failure::new(
                FailureKind::Overloaded,
                executed(target.duplicate),
                "not sent: other calls to this server were not written or answered in that time",
            ),
            Abandoned::Unacknowledged => replicas::silent(self.exchange.members.settings.min_replicas_ack, waited),
            Abandoned::Answered | Abandoned::Sent => timed_out(Executed::Maybe, &message),
            Abandoned::WillBeSent => timed_out(Executed::Maybe, &format!("{message}; it will be written")),
        };
        // A call with little time says nothing of the server, and one behind others that are answered neither.
        let connections = server.connections(&target.call);
        if failure.kind == FailureKind::TimedOut
            && waited >= self.patience * 3 / 4
            && !connections.has_answered_since(self.started)
            && !target.call.script.brings_bodies()
        {
            server.was_silent(&target.call, &failure);
        }
        failure
    }
}

/// No connection can be had.
fn after_connect(target: &Target, server: &Server, failure: Failure) -> Failure {
    let executed = if target.duplicate { Executed::Maybe } else { failure.executed };
    let message = match &target.first_cut {
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
