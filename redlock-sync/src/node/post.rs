//! Sends a release for which no thread waits, such as that of a dropped guard.
//!
//! The release is sent to each server like any other call. The thread that reads the reply calls a callback. If the
//! connection broke, or the server does not know the script, the callback sends the release once more. If that fails
//! too, the answers say so.

use std::sync::Arc;

use parking_lot::Mutex;

use super::known_scripts::PermissionCheck;
use super::server::Server;
use super::set::Nodes;
use super::target::{both, executed, timed_out};
use super::transport::call_queue::{Form, Payload};
use super::transport::halves::Broken;
use super::transport::round::{Outcome, Recipient};
use super::{Answers, Executed, Failure, FailureKind, PerNode, Value, redis_reply};
use crate::clock::Tick;
use crate::protocol::script::Call;

type OnAnswers = Box<dyn FnOnce(Answers) + Send>;

/// Collects the results of the nodes to one release.
struct PostedRelease {
    call: Arc<Call>,
    started: Tick,
    state: Mutex<PostState>,
}

struct PostState {
    /// `None` for a node whose result is not known yet.
    results: PerNode<Option<Result<Value, Failure>>>,
    duplicate: bool,
    on_answers: Option<OnAnswers>,
}

/// What went wrong with the first transmission to a node.
enum FirstEnd {
    Broken { at: Tick, was_written: bool, why: Arc<Broken> },
    UnknownScript,
}

impl Nodes {
    /// Sends a release to all nodes and does not wait for the answers. `on_answers` is called once with them, by a
    /// thread that reads or by this thread. It must neither wait nor run code of users.
    pub(crate) fn post(&self, call: &Arc<Call>, on_answers: OnAnswers) {
        let results = self.all.iter().map(|_| None).collect();
        let state = PostState { results, duplicate: false, on_answers: Some(on_answers) };
        let started = self.context.clock.now();
        let posted = Arc::new(PostedRelease { call: Arc::clone(call), started, state: Mutex::new(state) });
        for (node, member) in self.all.iter().enumerate() {
            match member.server_for(&posted.call) {
                Some(server) => posted.send(node, &server, None),
                None => posted.record(node, Err(Failure::unsent(FailureKind::LeftOut, "not asked"))),
            }
        }
    }
}

impl PostedRelease {
    fn send(self: &Arc<Self>, node: usize, server: &Arc<Server>, first: Option<FirstEnd>) {
        let now = server.host.context.clock.now();
        let Some(connection) = server.connections(&self.call).choose(&self.call, false, now, None) else {
            return self.record(node, Err(unsent(server, first)));
        };
        let check = server.host.scripts.needs_check(self.call.script);
        let needs_source = first.is_some() || server.needs_source(&self.call, &connection);
        let form = if needs_source { Form::Source } else { Form::Digest };
        let payload = Payload { call: Arc::clone(&self.call), checks: check.is_some(), form, asks: false };
        let posted = Arc::clone(self);
        let server = Arc::clone(server);
        let made = connection.made();
        let callback = move |outcome| posted.ended(node, &server, made, check, first, outcome);
        connection.send(&payload, Recipient::Callback(Box::new(callback)), false);
    }

    fn ended(
        self: &Arc<Self>,
        node: usize,
        server: &Arc<Server>,
        made: Tick,
        check: Option<PermissionCheck>,
        first: Option<FirstEnd>,
        outcome: Option<Outcome>,
    ) {
        let result = match outcome {
            None => Err(server.host.with_server(timed_out(Executed::Maybe, "not answered in time"))),
            Some(Outcome::Replied(said)) if first.is_none() && redis_reply::is_noscript(&said) => {
                server.host.scripts.lacks(self.call.script);
                return self.send(node, server, Some(FirstEnd::UnknownScript));
            }
            Some(Outcome::Replied(said) | Outcome::Acknowledged { reply: said, .. }) => {
                let result = server.note_reply(&self.call, check, redis_reply::read(&said));
                // This thread must not run code of users, such as a logger.
                server.host.tell_health_soon();
                result
            }
            Some(Outcome::Disconnected { was_written, why }) => {
                self.state.lock().duplicate |= was_written;
                // Connections may break for one reason. Those that were made before the first break do not count.
                let at = match &first {
                    None => Some(server.host.context.clock.now()),
                    Some(FirstEnd::Broken { at, .. }) => Some(*at).filter(|at| made <= *at),
                    Some(FirstEnd::UnknownScript) => None,
                };
                if let Some(at) = at {
                    return self.send(node, server, Some(FirstEnd::Broken { at, was_written, why }));
                }
                let failure = Failure::new(FailureKind::Unreachable, executed(was_written), why.words());
                Err(server.host.with_server(after(first, failure)))
            }
        };
        self.record(node, result);
    }

    /// Records the result of a node. The last one ends the call.
    fn record(&self, node: usize, result: Result<Value, Failure>) {
        let mut state = self.state.lock();
        if let Some(known) = state.results.get_mut(node) {
            *known = Some(result);
        }
        if state.results.iter().any(Option::is_none) {
            return;
        }
        let results = std::mem::take(&mut state.results).into_iter().flatten().collect();
        let answers = Answers { results, started: self.started, duplicate: state.duplicate };
        let on_answers = state.on_answers.take();
        drop(state);
        if let Some(on_answers) = on_answers {
            on_answers(answers);
        }
    }
}

/// Why the release was not sent to a server.
fn unsent(server: &Server, first: Option<FirstEnd>) -> Failure {
    let none = || Failure::unsent(FailureKind::Unreachable, "no connection at the moment");
    server.host.with_server(after(first, server.outage().unwrap_or_else(none)))
}

/// The failure of a second transmission, with what is known of the first one.
fn after(first: Option<FirstEnd>, second: Failure) -> Failure {
    match first {
        Some(FirstEnd::Broken { was_written, why, .. }) => {
            let executed = if was_written { Executed::Maybe } else { second.executed };
            Failure { executed, message: both(&why.words(), &second.message), ..second }
        }
        Some(FirstEnd::UnknownScript) | None => second,
    }
}
