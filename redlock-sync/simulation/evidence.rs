//! What a client sends about a mutex, and that it relies on it, is allowed to the clients of the models in
//! `tests/proof`. [`known::Evidence`](super::known::Evidence) has what the replies that reached the client tell it.
//!
//! - A client relies on a lock until the moment at which fewer than a majority of the nodes surely keep its token, as
//!   the models count that: from the send of a call that got a yes, less the drift. A server that restarted within the
//!   longest lease does not count with its yes to an attempt. A refill raises no vote.
//! - It relies on a grant only if each attempt of the wait had a definite no, in the right order.
//! - It attempts with fresh tokens, extends only what it holds and has not released, and releases only what is its own.
//!   It takes the lock over from no token of a living guard.
//!
//! What a client still has to do is not checked here, but by the rules of the simulation: that it rolls back, repeats
//! what is not confirmed, and leaves the queue. A loss that the client has heard of is not either: the evidence only
//! grows.

use std::time::Duration;

use redlock_proof::evidence;
use redlock_proof::scripts::Reply;

use super::kinds::{DrawnKind, id_of};
use super::known::{Evidence, TokenEvidence, Vote, WaitEvidence};
use super::model::{args, meaning, wait_of};
use super::scripts::{self, Execution};
use super::server::{Command, Told, short};
use super::settings::milliseconds;
use super::world::World;
use crate::clock::Tick;
use crate::node::memory;

// The library has these two as well. A mistake there must not be repeated here.

fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What is subtracted from a lease, since clocks run at different speeds.
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// The wait that an attempt names.
fn named_wait<'a>(script: &str, args: &'a [String]) -> Option<&'a str> {
    args.get(3).map(|wait| id_of(wait)).filter(|wait| script == "acquire" && !wait.is_empty())
}

/// The length of a random part.
const RANDOM: usize = 32;

impl WaitEvidence {
    fn record(&mut self, reply: Option<Reply>, sent: Tick) {
        self.is_certain &= evidence::stays_certain(reply, false, self.queued.is_some(), |_| true);
        if matches!(reply, Some(Reply::New | Reply::Kept)) {
            self.queued = Some(sent);
        }
    }
}

/// Until when a lease of this length lasts that was asked for at this time. The call names whole milliseconds, rounded up
/// from what the client counts.
fn mark(sent: Tick, lease: Duration) -> Tick {
    sent.after(lease).before(drift(lease))
}

impl World {
    fn evidence(&mut self) -> &mut Evidence {
        &mut self.invariants.evidence
    }

    /// The node of the lock that a server is.
    fn node_of(&self, server: usize) -> usize {
        if self.plan.has_replica { 0 } else { server }
    }

    // --- what a client sends -----------------------------------------------------------------------------------------

    /// Records commands that were written to a server, or that found the connection broken.
    pub(super) fn note_sent(&mut self, client: usize, commands: &[Command], is_written: bool) {
        for command in commands {
            if let Command::Script { execution, .. } = command
                && let Some(key) = self.mutex_of(execution)
            {
                let name = scripts::name(execution.script);
                if let Err(what) = self.note_call(client, name, execution, is_written) {
                    self.refuse(&format!("client {client} sends {name} for `{key}`: {what}"));
                }
            }
        }
    }

    fn note_call(&mut self, client: usize, script: &str, call: &Execution, is_written: bool) -> Result<(), String> {
        match script {
            "acquire" | "native_set" | "adopt" => self.attempts(client, script, call, is_written),
            "extend" => self.extends(client, &call.args[0]),
            "release" => self.releases(client, args(call)),
            _ => Ok(()),
        }
    }

    fn attempts(&mut self, client: usize, script: &str, call: &Execution, is_written: bool) -> Result<(), String> {
        let (args, token) = (args(call), &call.args[0]);
        let known = self.evidence().tokens.entry(token.clone()).or_insert_with(|| TokenEvidence::of(client));
        if known.client != client || known.is_released {
            return Err(format!("{} is not fresh", short(token)));
        }
        if let Some(wait) = named_wait(script, args).filter(|_| is_written) {
            let known = self.evidence().waits.entry(wait.to_owned()).or_insert_with(|| WaitEvidence::of(client));
            // An earlier attempt has no answer yet.
            if known.open > 0 {
                known.record(None, call.sent);
            }
            known.open += 1;
        }
        let take_over = if script == "acquire" { args.get(8..).unwrap_or_default() } else { &[] };
        let held = take_over.iter().find(|from| self.invariants.is_held(from));
        held.map_or(Ok(()), |held| Err(format!("a guard has {}", short(held))))
    }

    fn extends(&mut self, client: usize, token: &str) -> Result<(), String> {
        self.note_grant_held(token);
        let need = majority(self.plan.nodes);
        let is_held = |known: &TokenEvidence| known.client == client && known.yes() >= need && !known.is_released;
        if self.evidence().tokens.get(token).is_some_and(is_held) {
            return Ok(());
        }
        Err(format!("it does not hold it by {}", short(token)))
    }

    fn releases(&mut self, client: usize, args: &[String]) -> Result<(), String> {
        let token = &args[0];
        let Evidence { tokens, waits, .. } = self.evidence();
        let named = [wait_of(token), args.get(2).map(|wait| id_of(wait))].into_iter().flatten();
        if let Some(wait) = named.into_iter().find(|wait| waits.get(*wait).is_some_and(|known| known.client != client))
        {
            return Err(format!("{wait} is a wait of another client"));
        }
        match tokens.get_mut(token) {
            _ if token.is_empty() => {}
            Some(known) if known.client == client => known.is_released = true,
            None if wait_of(token).is_some() => {
                tokens.insert(token.clone(), TokenEvidence { is_released: true, ..TokenEvidence::of(client) });
            }
            _ => return Err(format!("{} is not its own", short(token))),
        }
        Ok(())
    }

    // --- what it hears -----------------------------------------------------------------------------------------------

    /// Records replies that have arrived at a client.
    pub(super) fn note_heard(&mut self, server: usize, all: &[Told]) {
        for told in all {
            if self.mutex_of(&told.execution).is_some() {
                self.note_reply(self.node_of(server), server, told);
            }
        }
    }

    fn note_reply(&mut self, node: usize, server: usize, told: &Told) {
        let call = &told.execution;
        let script = scripts::name(call.script);
        let (args, reply) = (args(call), meaning(script, &memory::outcome(&told.reply)).map(|(reply, _)| reply));
        if let Some(wait) = named_wait(script, args).and_then(|wait| self.evidence().waits.get_mut(wait)) {
            wait.open = wait.open.saturating_sub(1);
            // A server that does not know the script has not executed it.
            if reply.is_some() {
                wait.record(reply, call.sent);
            }
        }
        let [token, lease, ..] = args else { return };
        let Some(known) = self.evidence().tokens.get_mut(token).filter(|_| reply == Some(Reply::Yes)) else { return };
        let votes = &mut known.votes;
        match script {
            // Later ones are refills.
            "acquire" | "native_set" | "adopt" if known.held.is_none_or(|held| call.sent <= held) => {
                votes.retain(|vote| vote.node != node || vote.started.is_none());
                let until = mark(call.sent, milliseconds(lease));
                votes.push(Vote { node, until, started: Some((server, told.started)) });
            }
            "extend" => {
                let until = mark(call.sent, milliseconds(lease));
                votes.push(Vote { node, until, started: None });
            }
            _ => {}
        }
    }

    /// Records the span of the grant with this random part.
    pub(super) fn note_span(&mut self, random: &str, span: Duration) {
        self.evidence().spans.insert(random.to_owned(), span);
    }

    /// A token that was granted is held from the last attempt on that found its wait in the queue, if all is certain.
    fn note_grant_held(&mut self, token: &str) {
        let Evidence { tokens, waits, spans } = &mut self.invariants.evidence;
        let Some(wait) = wait_of(token).and_then(|wait| waits.get(wait)) else { return };
        let (Some(queued), Some(span)) = (wait.queued, spans.get(&token[..RANDOM])) else { return };
        if self.plan.nodes == 1 && wait.is_certain && wait.open == 0 && !tokens.contains_key(token) {
            let votes = vec![Vote { node: 0, until: mark(queued, *span), started: None }];
            let held = TokenEvidence { votes, ..TokenEvidence::of(wait.client) };
            tokens.insert(token.to_owned(), held);
        }
    }

    // --- what it believes --------------------------------------------------------------------------------------------

    /// Checks that the models allow a client to rely on a lock for this time.
    pub(super) fn check_belief(&mut self, client: usize, name: &str, token: &str, remaining: Duration) {
        let is_mutex = |(known, kind): (&&str, &DrawnKind)| *known == name && *kind == DrawnKind::Mutex;
        if remaining.is_zero() || !self.plan.names.iter().zip(&self.plan.kinds).any(is_mutex) {
            return;
        }
        self.counts.beliefs += 1;
        self.note_grant_held(token);
        let now = self.tick(client);
        let until = now.after(remaining);
        let allowed = self.allowed(client, token);
        if let Some(known) = self.evidence().tokens.get_mut(token) {
            known.held.get_or_insert(now);
        }
        if allowed.is_none_or(|allowed| until > allowed) {
            let over = allowed.map(|allowed| until.since(allowed));
            let over = over.map_or("it does not hold it".to_owned(), |over| format!("{over:?} longer than a majority"));
            let heard = self.invariants.evidence.tokens.get(token);
            self.refuse(&format!(
                "client {client} relies on {} for `{name}` for {remaining:?}: {over}; heard: {heard:?} at {until:?}",
                short(token)
            ));
        }
    }

    /// Until when a client may rely on this token, by what it has heard. `None`: not at all.
    fn allowed(&self, client: usize, token: &str) -> Option<Tick> {
        let known = self.invariants.evidence.tokens.get(token)?;
        if known.client != client || known.is_released {
            return None;
        }
        let (nodes, longest) = (self.plan.nodes, self.plan.longest());
        let young = longest.saturating_sub(drift(longest)).as_secs_f64();
        // In seconds, as servers say it.
        let uptime =
            |server: usize, started: u64| (self.servers[server].clock(self.now) as f64 / 1e6 - started as f64).max(0.0);
        let is_old = |server: usize, started: u64| uptime(server, started) >= young;
        let has_guard = nodes > 1 && self.servers.iter().enumerate().any(|(i, server)| is_old(i, server.started));
        let counts = |vote: &&Vote| !has_guard || vote.started.is_none_or(|(server, started)| is_old(server, started));
        let mut marks = vec![Tick::ZERO; nodes];
        for vote in known.votes.iter().filter(counts) {
            marks[vote.node] = marks[vote.node].max(vote.until);
        }
        evidence::deadline(&mut marks, majority(nodes)).filter(|until| *until > Tick::ZERO)
    }
}
