//! The way from the threads to the nodes: rounds travel together on a few lines.

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::batch::Batch;
use super::bodies::Extra;
use super::depot::Op;
use super::direct::Direct;
use super::line::{self, LinePool};
use super::members::{Members, Node};
use super::round::{Round, RoundOp, Rounds};
use super::{Answers, Ask, Background, Executed, Failure, Lane};
use crate::clock::Tick;
use crate::protocol::script::{Call, Purpose};

/// All nodes of a client with the lines to them.
pub(crate) struct Wire {
    pub(super) members: Members,
    rounds: Rounds,
    lines: OnceLock<LinePool>,
    /// Held while they are made.
    making: Mutex<()>,
    background: Background,
}

impl Wire {
    pub(super) fn new(members: Members, background: Background) -> Wire {
        let most = usize::try_from(members.settings.connections).unwrap_or(usize::MAX);
        let rounds = Rounds::new(Arc::clone(&members.clock), most);
        Wire { members, rounds, lines: OnceLock::new(), making: Mutex::new(()), background }
    }

    /// One round: to every node that `ask` names, and back. `need` nodes are a majority.
    pub(crate) fn round(&self, call: &Arc<Call>, lane: Lane, by: Tick, ask: Ask<'_>, need: usize) -> Answers {
        let now = self.members.clock.now();
        if let Some(extra) = self.members.bodies.extra(call, now) {
            return self.round_alone(call, by, ask, need, extra);
        }
        let lines = match self.lines() {
            Ok(lines) => lines,
            Err(failure) => {
                return Answers {
                    results: vec![Err(failure); self.members.nodes.len()],
                    started: now,
                    duplicate: false,
                };
            }
        };
        // First of all: behind a late call there is order, on another connection there is none.
        let behind = self.send_behind(call, ask);
        if behind.is_empty()
            && let [Node::Server(server)] = &*self.members.nodes
            && ask(0)
            && let Some(mut led) = self.rounds.lead_alone(lane == Lane::Reserved, || lines.try_get())
            && let Some(line) = led.line()
            && let Some(answers) = (Direct { members: &self.members, server, call, started: now, by }).run(line)
        {
            return answers;
        }
        let op = Op::new(Round::new(Arc::clone(call), self.members.nodes.len(), ask, now), lane == Lane::Reserved, by);
        let led = self.rounds.enter(&op, || lines.try_get()).or_else(|| self.rounds.follow(&op, leave));
        if let Some(mut led) = led {
            let ops = self.rounds.collect(&op);
            if let Some(line) = led.line() {
                Batch::new(&self.members, line, ops, need).run();
            }
        }
        answered(&op, &behind)
    }

    /// The round of a call that carries a body.
    fn round_alone(&self, call: &Arc<Call>, by: Tick, ask: Ask<'_>, need: usize, extra: Extra) -> Answers {
        let now = self.members.clock.now();
        let by = by.after(extra.sent.saturating_add(extra.waits));
        let mut round = Round::new(Arc::clone(call), self.members.nodes.len(), ask, now);
        let Some(mut line) = self.members.bodies.line.try_lock_for(by.since(now)) else {
            round.leave(false);
            return round.take_answers();
        };
        let op = Op::new(round, false, by);
        Batch::alone(&self.members, &mut line, Arc::clone(&op), need, extra.sent).run();
        op.read(Round::take_answers)
    }

    /// One round for each call, to every node that `ask` names, all in one packet to each. `None` if no line is idle.
    pub(crate) fn rounds(
        &self,
        calls: &[Arc<Call>],
        lane: Lane,
        by: Tick,
        ask: Ask<'_>,
        need: usize,
    ) -> Option<Vec<Answers>> {
        let (lines, now) = (self.lines().ok()?, self.members.clock.now());
        let round = |call| Round::new(call, self.members.nodes.len(), ask, now);
        let op = |call: &Arc<Call>| Op::new(round(Arc::clone(call)), lane == Lane::Reserved, by);
        let ops: Vec<_> = calls.iter().map(op).collect();
        let mut led = self.rounds.lead_now(&ops, || lines.try_get())?;
        let behind: Vec<_> = calls.iter().map(|call| self.send_behind(call, ask)).collect();
        Batch::new(&self.members, led.line()?, ops.clone(), need).run();
        Some(ops.iter().zip(&behind).map(|(op, behind)| answered(op, behind)).collect())
    }

    /// Writes a release behind the late calls for its token; returns the nodes where there were any.
    fn send_behind(&self, call: &Call, ask: Ask<'_>) -> Vec<usize> {
        if call.purpose != Purpose::Release {
            return Vec::new();
        }
        let is_behind = |&(i, node): &(usize, &Node)| ask(i) && node.send_behind(call);
        self.members.nodes.iter().enumerate().filter(is_behind).map(|(i, _)| i).collect()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> String {
        format!("{:?}", self.rounds)
    }

    fn lines(&self) -> Result<&LinePool, Failure> {
        if let Some(lines) = self.lines.get() {
            return Ok(lines);
        }
        let _making = self.making.lock();
        if let Some(lines) = self.lines.get() {
            return Ok(lines);
        }
        // One in reserve: releases find a line although attempts fill the others.
        let made = line::pool(self.members.settings.connections.saturating_add(1), &self.background)?;
        Ok(self.lines.get_or_init(|| made))
    }
}

/// Files what its thread leaves behind, before the thread knows: under the round's lock, so that no leader has read the
/// reply yet.
fn leave(round: &mut Round, in_batch: bool) {
    let call = round.call();
    for left in round.leave(in_batch) {
        left.late.file_out(left.link, &call, left.asks);
    }
}

/// The answers of a round that is over, and that was written behind late calls at these nodes.
fn answered(op: &RoundOp, behind: &[usize]) -> Answers {
    let mut answers = op.read(Round::take_answers);
    for node in behind {
        if let Some(Err(failure)) = answers.results.get_mut(*node)
            && failure.executed == Executed::No
        {
            failure.executed = Executed::Maybe;
            failure.message.push_str("; the release was written behind the late call");
        }
    }
    answers
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.members.nodes).finish()
    }
}
