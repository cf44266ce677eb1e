//! Sends a release for which no thread waits, such as that of a dropped guard.
//!
//! The release is written to each server like any other call. The next thread that reads on that connection reads the
//! reply, or the pump does ([`pump`](super::pipes)). Nothing is sent again from here: the callback learns what failed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::pipes::command::{Form, Outcome, Outcomes, Payload};
use super::pipes::connections::PooledPipe;
use super::server::{Server, Transmission};
use super::set::Nodes;
use super::target::{executed, timed_out};
use super::{Answers, Executed, Failure, FailureKind, Few, Value, redis_reply};
use crate::clock::Tick;
use crate::protocol::script::Call;

type OnAnswers = Box<dyn FnOnce(Answers) + Send>;

/// Collects the replies of the nodes to one release.
struct PostedRelease {
    call: Arc<Call>,
    started: Tick,
    state: Mutex<PostState>,
}

struct PostState {
    /// For each node, the server and what is needed to judge its reply, until the reply is known. So a call that is
    /// never answered does not keep its server alive.
    pending: Few<Option<(Arc<Server>, Transmission)>>,
    /// `None` for a node that has not replied yet.
    results: Few<Option<Result<Value, Failure>>>,
    /// The number of results that are not known yet.
    outstanding: usize,
    on_answers: Option<OnAnswers>,
}

impl Nodes {
    /// Sends a release to all nodes and does not wait for the answers. `on_answers` is called once with them, by a
    /// thread that reads or by this thread. It must neither wait nor send anything.
    pub(crate) fn post(&self, call: &Arc<Call>, on_answers: OnAnswers) {
        let started = self.context.clock.now();
        let (mut pending, mut sends, mut results) = (Few::new(), Few::new(), Few::new());
        for (i, node) in self.all.iter().enumerate() {
            let server = node.server_for(call);
            let found = server.as_ref().and_then(|server| server.connections(call).choose(call, false, None, started));
            results.push(if found.is_some() { None } else { Some(Err(unsent(server.as_deref()))) });
            pending.push(server.zip(found).map(|(server, (unanswered, PooledPipe { pipe, generation, .. }))| {
                let sent = server.transmission(call, generation, false);
                let form = if server.needs_source(call, &pipe) { Form::Source } else { Form::Digest };
                let payload = Payload { call: Arc::clone(call), checks: sent.checks, form, asks: false };
                sends.push((i, pipe, unanswered, payload));
                (server, sent)
            }));
        }
        let state = PostState { pending, results, outstanding: sends.len(), on_answers: Some(on_answers) };
        let replies = PostedRelease { call: Arc::clone(call), started, state: Mutex::new(state) };
        if sends.is_empty() {
            return replies.finish();
        }
        // All results have a place before the first call is sent, because its reply may come at once.
        let callback = move |i, outcome| replies.record(i, outcome);
        let outcomes = Outcomes::new(self.all.len(), Some(Arc::new(callback)));
        for (i, pipe, unanswered, payload) in sends {
            pipe.send(outcomes.command(i, payload, Some(unanswered)).unattended());
        }
    }
}

/// Why the release was not sent to a node.
fn unsent(server: Option<&Server>) -> Failure {
    match server {
        None => Failure::unsent(FailureKind::LeftOut, "not asked"),
        Some(server) => {
            let none = || Failure::unsent(FailureKind::Unreachable, "no connection at the moment");
            server.host.with_server(server.outage().unwrap_or_else(none))
        }
    }
}

impl PostedRelease {
    fn result(&self, server: &Server, sent: &Transmission, outcome: Outcome) -> Result<Value, Failure> {
        match outcome {
            Outcome::Replied(said) | Outcome::Acknowledged { reply: said, .. } => {
                server.record_reply(&self.call, sent, redis_reply::read(&said))
            }
            Outcome::Disconnected { was_written, why } => {
                server.connection_broke(sent.generation);
                let failure = Failure::new(FailureKind::Unreachable, executed(was_written), why.words());
                Err(server.host.with_server(failure))
            }
        }
    }

    fn finish(&self) {
        let ready = {
            let mut state = self.state.lock();
            let results = std::mem::take(&mut state.results);
            state.on_answers.take().map(|on_answers| (on_answers, results))
        };
        if let Some((on_answers, results)) = ready {
            let silent = || Err(timed_out(Executed::Maybe, "not answered in time"));
            let results = results.into_iter().map(|result| result.unwrap_or_else(silent)).collect();
            on_answers(Answers { results, started: self.started, duplicate: false });
        }
    }

    fn record(&self, index: usize, outcome: Option<Outcome>) {
        let pending = self.state.lock().pending.get_mut(index).and_then(Option::take);
        let result = pending.zip(outcome).map(|((server, sent), outcome)| self.result(&server, &sent, outcome));
        let is_last = {
            let mut state = self.state.lock();
            if let Some(known) = state.results.get_mut(index) {
                *known = result;
            }
            state.outstanding = state.outstanding.saturating_sub(1);
            state.outstanding == 0
        };
        if is_last {
            self.finish();
        }
    }
}
