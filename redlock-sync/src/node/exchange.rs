//! One exchange: the calls of one thread, each to every selected server. First all calls are written, then the replies
//! are read. Only the calling thread handles them.

use std::sync::Arc;
use std::time::Duration;

use super::health::Step;
use super::known_scripts::PermissionCheck;
use super::members::Node;
use super::server::{Server, carries_body};
use super::set::Nodes;
use super::target::{FirstBreak, Target, TargetState, both, executed, timed_out, without_connection};
use super::transport::call_queue::{Form, Payload, Progress};
use super::transport::connection::{Connection, time_at_lowest_rate};
use super::transport::framer::WireReply;
use super::transport::halves::Broken;
use super::transport::round::{Outcome, Recipient, Round};
use super::transport::waiting::{SentCall, wait};
use super::{Answers, Awaits, Executed, Failure, FailureKind, NodeFilter, PerNode, redis_reply, replicas};
use crate::clock::{Clock, Tick};
use crate::protocol::reply::is_no;
use crate::protocol::script::{Call, Purpose};

/// How long to wait for a connection to a server that is left out but needed for a majority. Nothing wakes the round
/// while the server is silent, and a longer wait would use up the time of each exchange.
const BRIEF_WAIT: Duration = Duration::from_millis(2);

/// After a majority has decided, a slow server gets at least this long.
const SHORTEST_GRACE: Duration = Duration::from_millis(1);

/// The calls of an exchange that is over.
pub(super) struct Exchanged {
    /// For each call, one for each node.
    targets: PerNode<Target>,
    started: Tick,
}

struct Exchange<'a> {
    nodes: &'a Nodes,
    clock: &'a dyn Clock,
    round: Arc<Round>,
    /// True for one call. Several calls are gathered, and written in one packet.
    is_single: bool,
    started: Tick,
    deadline: Tick,
    /// The deadline, unless a majority decides earlier.
    latest: Tick,
    node_timeout: Duration,
    /// The number of nodes that are a majority.
    need: usize,
    /// The nodes whose yes counts. `None` if all nodes are awaited.
    votes: Option<NodeFilter<'a>>,
    /// When a majority had said the same.
    decided: Option<Tick>,
}

impl Nodes {
    /// Like [`call`](Nodes::call), for several calls at the same time. Waits for all until `by`. The answers are in the
    /// order of the calls.
    pub(crate) fn calls(&self, calls: &[Arc<Call>], by: Tick, ask: NodeFilter<'_>, need: usize) -> PerNode<Answers> {
        self.exchange(calls, by, ask, need, Awaits::All).each(calls.len())
    }

    /// Like [`quick_call`](Nodes::quick_call), for several calls at the same time. Waits until a majority has said the
    /// same to each.
    pub(crate) fn quick_calls(&self, calls: &[Arc<Call>], by: Tick, need: usize) -> PerNode<Answers> {
        self.exchange(calls, by, &|_| true, need, Awaits::Majority(&|_| true)).each(calls.len())
    }

    /// Sends two calls at the same time, and waits for both until `by`. A node gets them in this order, unless a
    /// connection breaks or a script is unknown.
    pub(crate) fn two_calls(&self, first: &Arc<Call>, second: &Arc<Call>, by: Tick) -> (Answers, Answers) {
        self.exchange(&[Arc::clone(first), Arc::clone(second)], by, &|_| true, self.len(), Awaits::All).both()
    }

    /// Sends the calls and waits for the replies.
    pub(super) fn exchange(
        &self,
        calls: &[Arc<Call>],
        by: Tick,
        ask: NodeFilter<'_>,
        need: usize,
        awaits: Awaits<'_>,
    ) -> Exchanged {
        let clock = &*self.context.clock;
        let (started, node_timeout) = (clock.now(), self.context.settings.node_timeout);
        // A single node cannot be left out, so the number of nodes is checked first.
        let healthy = || self.all.iter().filter(|node| node.outage().is_none()).count();
        let can_leave_out = self.len() > 1 && healthy() >= need;
        let is_beside_body = calls.iter().any(|call| carries_body(call));
        let mut targets: PerNode<Target> = calls
            .iter()
            .flat_map(|call| self.all.iter().enumerate().map(move |(i, node)| (call, i, node)))
            .map(|(call, i, node)| Target::new(call, i, node, ask(i), can_leave_out, is_beside_body))
            .collect();
        let longest = calls.iter().map(|call| body_time(call)).max().unwrap_or_default();
        // Nodes in memory answer without waiting, so no answer is late, however far a test advances the clock.
        let is_instant = self.all.iter().all(Node::is_instant);
        let deadline = if is_instant { Tick::NEVER } else { by.min(started.after(node_timeout)).after(longest) };
        let votes = match awaits {
            Awaits::Majority(votes) if self.len() > 1 => Some(votes),
            _ => None,
        };
        let mut exchange = Exchange {
            nodes: self,
            clock,
            round: Round::new(targets.len()),
            is_single: calls.len() <= 1,
            started,
            deadline,
            latest: deadline,
            node_timeout,
            need,
            votes,
            decided: None,
        };
        exchange.run(&mut targets);
        Exchanged { targets, started }
    }
}

impl Exchanged {
    /// The answers to the only call.
    pub(super) fn only(self) -> Answers {
        answers(self.targets.into_iter(), self.started)
    }

    /// The answers to the first and to the second of two calls.
    fn both(self) -> (Answers, Answers) {
        let nodes = self.targets.len() / 2;
        let mut targets = self.targets.into_iter();
        (answers(targets.by_ref().take(nodes), self.started), answers(targets, self.started))
    }

    /// The answers to each of so many calls.
    fn each(self, calls: usize) -> PerNode<Answers> {
        let nodes = self.targets.len() / calls.max(1);
        let mut targets = self.targets.into_iter();
        (0..calls).map(|_| answers(targets.by_ref().take(nodes), self.started)).collect()
    }
}

fn answers(targets: impl Iterator<Item = Target>, started: Tick) -> Answers {
    let mut duplicate = false;
    let result = |target: Target| {
        duplicate |= target.duplicate;
        match target.state {
            TargetState::Done(result) => result,
            _ => Err(timed_out(Executed::Maybe, "was not answered")),
        }
    };
    let results = targets.map(result).collect();
    Answers { results, started, duplicate }
}

/// The extra time for a call whose arguments contain a body, and as much for one body ahead of it on the connection.
/// Computed with the lowest rate at which a server counts as healthy.
fn body_time(call: &Call) -> Duration {
    if call.script.takes_bodies { time_at_lowest_rate(call.len()) * 2 } else { Duration::ZERO }
}

fn sent(targets: &[Target]) -> impl Iterator<Item = SentCall> {
    targets.iter().enumerate().filter_map(|(index, target)| match &target.state {
        TargetState::Sent { connection, number, .. } => {
            Some(SentCall { index, connection: Arc::clone(connection), number: *number })
        }
        _ => None,
    })
}

/// The calls that wait for connections, and their servers.
fn unsent(targets: &[Target]) -> impl Iterator<Item = (&Target, &Arc<Server>)> {
    let unsent = targets.iter().filter(|target| matches!(target.state, TargetState::Unsent));
    unsent.filter_map(|target| Some((target, target.server.as_ref()?)))
}

impl Exchange<'_> {
    fn run(&mut self, targets: &mut [Target]) {
        self.send_unattended(targets);
        loop {
            let came = self.round.look();
            self.handle_outcomes(targets);
            self.send_waiting(targets);
            self.shorten(targets, came);
            let sent: PerNode<SentCall> = sent(targets).collect();
            let connects = unsent(targets).next().is_some();
            if sent.is_empty() && !connects {
                return;
            }
            let is_over = wait(&self.round, &sent, connects, self.until(targets), self.clock);
            // Connections may come and break again and again, so a thread that waits for one looks at its deadline.
            if is_over && !connects {
                continue;
            }
            if self.clock.now() >= self.deadline && !self.extend_while_moving(targets) {
                return self.give_up(targets);
            }
        }
    }

    /// Until when to wait. A connection that comes, or fails to, wakes the round; only the passing of time does not.
    fn until(&self, targets: &[Target]) -> Tick {
        let mut until = self.deadline;
        for (target, server) in unsent(targets) {
            let now = self.clock.now();
            until = until.min(target.connections(server).next_look(now));
            if now < self.prompt() {
                until = until.min(self.prompt());
            }
            if outage_of(target, server).is_some() {
                until = until.min(self.briefly().max(now));
            }
        }
        until
    }

    /// Until then, a call waits for a connection to a server that is left out.
    fn briefly(&self) -> Tick {
        self.started.after(BRIEF_WAIT)
    }

    /// Until then, a slow connection is not used, because a better one may arrive.
    fn prompt(&self) -> Tick {
        self.started.after(self.node_timeout / 4)
    }

    /// Writes the releases whose replies are not awaited.
    fn send_unattended(&self, targets: &mut [Target]) {
        for target in targets {
            let (TargetState::Unattended(outage), Some(server)) = (&target.state, &target.server) else { continue };
            let mut failure = server.host.with_server(outage.clone());
            if matches!(self.send(None, target, server, false), Some(TargetState::Sent { .. })) {
                failure.executed = Executed::Maybe;
                failure.message.push_str("; the release was sent nevertheless");
            }
            target.state = TargetState::Done(Err(failure));
        }
    }

    /// Sends all waiting calls for which there is a connection.
    fn send_waiting(&self, targets: &mut [Target]) {
        for i in 0..targets.len() {
            let Some(target) = targets.get(i) else { continue };
            let (TargetState::Unsent, Some(server)) = (&target.state, &target.server) else { continue };
            let is_release = target.call.script.purpose == Purpose::Release;
            let now = self.clock.now();
            let prompt = now < self.prompt() || !is_release && server.outage().is_some();
            let sent = self.send(Some(i), target, server, prompt);
            let is_over = || now >= self.briefly();
            let failure = || outage_of(target, server).filter(|_| is_over());
            let state = sent.or_else(|| Some(TargetState::Done(Err(without_connection(target, server, failure()?)))));
            if let Some(state) = state
                && let Some(target) = targets.get_mut(i)
            {
                target.set_state(state);
            }
        }
        if !self.is_single {
            sent(targets).for_each(|call| call.connection.flush());
        }
    }

    /// Sends the call if there is a connection for it. `index`: its place in the round, if its outcome is awaited.
    fn send(&self, index: Option<usize>, target: &Target, server: &Server, prompt: bool) -> Option<TargetState> {
        let call = &target.call;
        let now = self.clock.now();
        let waiting = index.map(|_| &self.round);
        let connection = target.connections(server).choose(call, prompt, now, waiting)?;
        // A slow server gets no second copy of a release that is still unanswered.
        let is_release = call.script.purpose == Purpose::Release;
        if is_release && connection.is_late(self.node_timeout / 8, now) && connection.has_like(call) {
            let failure = timed_out(Executed::Maybe, "has not answered the same release, which was sent earlier");
            return Some(TargetState::Done(Err(server.host.with_server(failure))));
        }
        // A call with only its first keys checks nothing.
        let may_check = !target.route.first_keys_only;
        let check = if may_check { server.host.scripts.needs_check(call.script) } else { None };
        let checks = check.is_some();
        let form = match call.set_nx {
            _ if target.needs_source || server.needs_source(call, &connection) => Form::Source,
            Some(lease) if !checks && target.is_first() => Form::SetNx { lease },
            _ => Form::Digest,
        };
        let payload = Payload { call: Arc::clone(call), checks, form, asks: target.route.asks };
        let to = index.map_or(Recipient::Nobody, |index| self.round.recipient(index));
        let number = connection.send(&payload, to, !self.is_single && index.is_some());
        Some(TargetState::Sent { connection, number, check })
    }

    /// Handles the calls that have an outcome.
    fn handle_outcomes(&mut self, targets: &mut [Target]) {
        let is_sent = |target: &Target| matches!(target.state, TargetState::Sent { .. });
        for (i, target) in targets.iter_mut().enumerate().filter(|(_, target)| is_sent(target)) {
            let Some(outcome) = self.round.take(i) else { continue };
            let TargetState::Sent { connection, check, .. } = std::mem::replace(&mut target.state, TargetState::Unsent)
            else {
                continue;
            };
            let Some(server) = target.server.clone() else { continue };
            let state = match outcome {
                Outcome::Replied(said) => self.after_reply(i, target, &server, check, &said),
                Outcome::Acknowledged { reply: said, replicas } => {
                    let waited = self.clock.now().since(self.started);
                    let least = self.nodes.context.settings.min_replicas_ack;
                    let result =
                        replicas::checked_result(redis_reply::read(&said), redis_reply::read(&replicas), least, waited);
                    Some(TargetState::Done(server.record_reply(&target.call, check, result)))
                }
                Outcome::Disconnected { was_written, why } => {
                    after_disconnect(target, &server, &connection, was_written, &why, self.clock.now())
                }
            };
            target.set_state(state.unwrap_or(TargetState::Unsent));
        }
    }

    /// Once a majority has said the same, the others get as long again as the round has taken, and an eighth of a node
    /// timeout at least. So a server that is late once keeps its vote. A server that an earlier round did not wait for
    /// gets a millisecond at least.
    ///
    /// A call that is not answered then may be executed. What is sent there later stands behind it, on the same
    /// connection. A call whose connection broke is sent once more, and awaited.
    ///
    /// `came`: the number of outcomes that had come before they were taken.
    fn shorten(&mut self, targets: &[Target], came: usize) {
        let Some(votes) = self.votes else { return };
        let need = self.need;
        let said = |call: &[Target], no: bool| {
            let is_it = |target: &&Target| match &target.state {
                TargetState::Done(Ok(value)) => is_no(value) == no && (no || votes(target.node)),
                _ => false,
            };
            call.iter().filter(is_it).count()
        };
        // Each call has one target for each node.
        let mut calls = targets.chunks(self.nodes.len().max(1));
        let open = || targets.iter().filter(|target| !matches!(target.state, TargetState::Done(_)));
        if self.decided.is_none() && calls.all(|call| said(call, true) >= need || said(call, false) >= need) {
            self.decided = Some(self.clock.now());
        }
        if open().any(|target| target.first_break.is_some()) {
            self.deadline = self.latest;
        } else if let Some(decided) = self.decided {
            let are_slow = open().filter_map(|target| target.server.as_ref()).all(|server| server.host.is_slow());
            let least = if are_slow { SHORTEST_GRACE } else { self.node_timeout / 8 };
            self.deadline = self.latest.min(decided.after(decided.since(self.started).max(least)));
        }
        let least = need.saturating_mul(targets.len()) / self.nodes.len().max(1);
        self.round.ends_after(least.max(came + 1));
    }

    /// Handles a reply. If the script is unknown, the call is sent again with its source. If the cluster redirects the
    /// call, it goes to the other server. Returns `None` if the call must wait for a connection.
    fn after_reply(
        &mut self,
        i: usize,
        target: &mut Target,
        server: &Arc<Server>,
        check: Option<PermissionCheck>,
        said: &WireReply,
    ) -> Option<TargetState> {
        if redis_reply::is_noscript(said) && !target.needs_source {
            server.host.scripts.lacks(target.call.script);
            target.needs_source = true;
            self.deadline = self.deadline.after(body_time(&target.call));
            return self.send(Some(i), target, server, false);
        }
        if said.is_error()
            && let Some(Node::Cluster(cluster)) = self.nodes.all.get(target.node)
            && let Some(error) = redis_reply::parsed(said)
            && let Some((next, route)) = cluster.redirect(&error, server, &target.call, target.route)
        {
            if route.first_keys_only
                && !target.route.first_keys_only
                && let Some(alone) = target.call.with_min_keys()
            {
                target.call = Arc::new(alone);
            }
            (target.server, target.route) = (Some(next), route);
            return None;
        }
        Some(TargetState::Done(server.record_reply(&target.call, check, redis_reply::read(said))))
    }

    /// Extends the deadline if a reply with bodies is arriving, at no less than an eighth of the lowest rate.
    fn extend_while_moving(&mut self, targets: &mut [Target]) -> bool {
        let least = usize::try_from(self.node_timeout.as_micros() / 64).unwrap_or(usize::MAX).max(1);
        let is_moving = |target: &mut Target| {
            let TargetState::Sent { connection, .. } = &target.state else { return false };
            let has_read = connection.has_read();
            let moved = has_read.saturating_sub(std::mem::replace(&mut target.has_read, has_read));
            target.call.script.brings_bodies && moved >= least
        };
        let is_moving = targets.iter_mut().filter_map(|target| is_moving(target).then_some(())).count() > 0;
        if is_moving {
            self.deadline = self.deadline.after(self.node_timeout);
        }
        is_moving
    }

    /// The deadline has passed.
    fn give_up(&mut self, targets: &mut [Target]) {
        let waited = self.clock.now().since(self.started);
        for i in 0..targets.len() {
            // A reply that arrives just now may cause another transmission: with the source, or to another server.
            while !self.give_up_target(targets, i, waited) {}
        }
    }

    fn give_up_target(&mut self, targets: &mut [Target], i: usize, waited: Duration) -> bool {
        let Some(target) = targets.get_mut(i) else { return true };
        let Some(server) = target.server.clone() else { return true };
        if self.decided.is_some() && matches!(target.state, TargetState::Sent { .. } | TargetState::Unsent) {
            server.host.mark_slow();
        }
        let failure = match &target.state {
            TargetState::Sent { connection, number, .. } => {
                if !self.round.give_up(i) {
                    self.handle_outcomes(targets);
                    return false;
                }
                let progress = connection.abandon(*number);
                server.host.with_server(self.failure_of_abandoned(target, &server, progress, waited))
            }
            TargetState::Unsent => {
                let failure = without_connection(target, &server, timed_out(Executed::No, "no connection in time"));
                if waited >= self.node_timeout / 2 {
                    server.host.record_failure(Step::LogIn, &failure);
                    server.host.tell_health();
                }
                failure
            }
            TargetState::Unattended(_) | TargetState::Done(_) => return true,
        };
        target.state = TargetState::Done(Err(failure));
        true
    }

    /// The failure of a call that is given up.
    fn failure_of_abandoned(&self, target: &Target, server: &Server, progress: Progress, waited: Duration) -> Failure {
        let message = match self.decided {
            Some(_) => format!("did not answer within {} ms, and the others had decided", waited.as_millis()),
            None => format!("timed out after {} ms", waited.as_millis()),
        };
        let failure = match progress {
            Progress::Unsent if target.call.script.purpose == Purpose::Release => {
                timed_out(Executed::Maybe, &format!("{message}; the call will still be sent"))
            }
            Progress::Unsent => Failure::new(
                FailureKind::Overloaded,
                executed(target.duplicate),
                "not sent: earlier calls to this server were not sent or answered in time",
            ),
            Progress::Unacknowledged => {
                let least = self.nodes.context.settings.min_replicas_ack;
                replicas::too_few(&format!("fewer than {least}"), waited)
            }
            Progress::Sent => timed_out(Executed::Maybe, &message),
        };
        // A short wait says nothing about the server. Neither does a wait behind other calls that are being answered.
        let connections = target.connections(server);
        if failure.kind == FailureKind::TimedOut
            && waited >= self.node_timeout * 3 / 4
            && !connections.has_answered_since(self.started)
            && !target.call.script.brings_bodies
        {
            server.record_timeout(connections, &failure);
        }
        failure
    }
}

/// A connection broke. The call is sent once more, over another connection. One that was made before may break too, for
/// the same reason, and does not count.
fn after_disconnect(
    target: &mut Target,
    server: &Server,
    connection: &Connection,
    was_written: bool,
    why: &Broken,
    now: Tick,
) -> Option<TargetState> {
    target.duplicate |= was_written;
    let why = why.words();
    let Some(first) = &target.first_break else {
        target.first_break = Some(FirstBreak { at: now, why });
        return None;
    };
    if connection.made() <= first.at {
        return None;
    }
    let failure = Failure::new(FailureKind::Unreachable, executed(target.duplicate), both(&first.why, &why));
    server.record_timeout(target.connections(server), &failure);
    Some(TargetState::Done(Err(server.host.with_server(failure))))
}

/// Why to wait for a connection to this server for no longer than [`BRIEF_WAIT`].
fn outage_of(target: &Target, server: &Server) -> Option<Failure> {
    target.connections(server).last_failure().or_else(|| server.outage())
}
