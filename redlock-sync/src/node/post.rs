//! A release for which no thread waits: that of a guard which is dropped.
//!
//! The release is written to each server as any other call. The next thread that reads there reads the reply, or the pump does ([`pump`](super::pipes)).
//! Nothing is sent again from here: the caller is told what failed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::members::Members;
use super::pipes::command::{Callback, Form, Load, Outcome, Outcomes};
use super::pipes::connections::{Found, Wish};
use super::server::Server;
use super::{Answers, Executed, Failure, FailureKind, Value, redis_reply};
use crate::protocol::script::{Call, Note};

type Tell = Box<dyn FnOnce(Answers) + Send>;

/// What the nodes say to the release.
struct Replies {
    call: Arc<Call>,
    state: Mutex<State>,
}

struct Asked {
    server: Arc<Server>,
    note: Note,
    permissions: u64,
    generation: u64,
}

struct State {
    /// For each node the server that is asked, with what its reply is judged by, until the reply is known. So a call that is never answered does not keep
    /// its server alive.
    asked: Vec<Option<Asked>>,
    answers: Answers,
    /// So many are not known.
    missing: usize,
    tell: Option<Tell>,
}

pub(super) fn post(members: &Members, call: &Arc<Call>, tell: Tell) {
    let started = members.clock.now();
    let (mut asked, mut sends, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for (i, node) in members.nodes.iter().enumerate() {
        let server = node.server_for(call);
        let found =
            server.as_ref().and_then(|server| server.claim(call, &Wish { is_release: true, ..Wish::default() }));
        results.push(Err(missing(server.as_deref(), found.is_some())));
        asked.push(server.zip(found).map(|(server, Found { claim, pipe, generation })| {
            let permissions = server.host.permissions();
            let note = server.note(call, permissions);
            let form = if server.needs_source(call) { Form::Source } else { Form::Digest };
            let load = Load::Script { call: Arc::clone(call), note, form, asks: false };
            sends.push((i, pipe, claim, load));
            Asked { server, note, permissions, generation }
        }));
    }
    let answers = Answers { results, started, duplicate: false };
    let state = State { asked, answers, missing: sends.len(), tell: Some(tell) };
    let replies = Arc::new(Replies { call: Arc::clone(call), state: Mutex::new(state) });
    if sends.is_empty() {
        return replies.tell_all();
    }
    // All of it is there before the first call is sent: its reply may come at once.
    let callback = Arc::clone(&replies) as Arc<dyn Callback>;
    let outcomes = Outcomes::new(members.nodes.len(), Some(callback));
    for (i, pipe, claim, load) in sends {
        pipe.send(outcomes.command(i, load, true, Some(claim)).unattended());
    }
}

/// What is said for a node until it is known better.
fn missing(server: Option<&Server>, is_sent: bool) -> Failure {
    match server {
        None => Failure::unsent(FailureKind::LeftOut, "not asked"),
        Some(_) if is_sent => Failure::new(FailureKind::TimedOut, Executed::Maybe, "not answered in time"),
        Some(server) => {
            let none = || Failure::unsent(FailureKind::Unreachable, "no connection at the moment");
            server.host.named(server.outage().unwrap_or_else(none))
        }
    }
}

impl Replies {
    fn result(&self, asked: &Asked, outcome: Outcome) -> Result<Value, Failure> {
        let Asked { server, note, permissions, generation } = asked;
        let result = match outcome {
            Outcome::Replied(said) | Outcome::Acknowledged { reply: said, .. } => {
                server.judged(&self.call, *note, *permissions, redis_reply::read(said))
            }
            Outcome::Cut { was_written, why } => {
                server.connection_broke(*generation);
                let executed = if was_written { Executed::Maybe } else { Executed::No };
                Err(Failure::new(FailureKind::Unreachable, executed, why.words()))
            }
        };
        result.map_err(|failure| server.host.named(failure))
    }

    fn tell_all(&self) {
        let told = {
            let mut state = self.state.lock();
            let started = state.answers.started;
            let none = Answers { results: Vec::new(), started, duplicate: false };
            let answers = std::mem::replace(&mut state.answers, none);
            state.tell.take().map(|tell| (tell, answers))
        };
        if let Some((tell, answers)) = told {
            tell(answers);
        }
    }
}

impl Callback for Replies {
    fn call(&self, index: usize, outcome: Option<Outcome>) {
        let asked = self.state.lock().asked.get_mut(index).and_then(Option::take);
        let result = asked.zip(outcome).map(|(asked, outcome)| self.result(&asked, outcome));
        let is_last = {
            let mut state = self.state.lock();
            if let (Some(known), Some(result)) = (state.answers.results.get_mut(index), result) {
                *known = result;
            }
            state.missing = state.missing.saturating_sub(1);
            state.missing == 0
        };
        if is_last {
            self.tell_all();
        }
    }
}
