//! Order of arrival: on one node, where nothing goes wrong, no wait gets the lock before one that came earlier.

use super::plan::Time;
use super::scripts;
use super::server::Execution;
use super::world::{World, with};
use crate::node::{Failure, Value};

/// A wait that the node has entered in its queue.
#[derive(Debug)]
pub(super) struct Arrival {
    lock: String,
    task: usize,
    turn: u32,
    at: Time,
    /// The lock was not got, or is about to be held.
    is_over: bool,
}

impl World {
    /// A script has run: it may have entered a wait, or given the lock to one that is in no queue.
    pub(super) fn note_place(&mut self, call: &Execution, reply: &Result<Value, Failure>) {
        if self.plan.nodes > 1 || scripts::name(call.script) != "acquire" {
            return;
        }
        match reply {
            Ok(Value::List(said)) if matches!(said[..], [_, _, _, Value::Int(1)]) => {}
            Ok(Value::List(said)) if said.len() > 2 => return,
            _ => {
                self.invariants.taken.insert(call.args[0].clone(), self.now);
                return;
            }
        }
        let Some((task, turn)) = self.invariants.tokens.wait_of(&call.args[3]) else { return };
        let arrival = Arrival { lock: call.keys[0].clone(), task, turn, at: self.now, is_over: false };
        self.invariants.arrivals.push(arrival);
    }

    /// The current task has got a lock: handed to it in its process, or by the node.
    pub(super) fn check_order(&mut self, lock: &str, token: &str, was_handed: bool) {
        let (task, turn) = (self.current, self.tasks[self.current].turn);
        let given = self.invariants.taken.get(token).copied().unwrap_or(Time::MAX);
        let arrivals = &mut self.invariants.arrivals;
        let is_own = |a: &Arrival| a.task == task && a.turn == turn;
        let own = arrivals.iter().filter(|a| is_own(a)).map(|a| a.at).min().unwrap_or(given);
        arrivals.retain(|a| a.task != task);
        let earlier = arrivals.iter().filter(|a| a.lock == lock && !a.is_over && a.at < own).count();
        if earlier > 0 && self.plan.is_calm && !was_handed {
            self.violate(format!("out of order: `{lock}` was given to task {task} before {earlier} that came earlier"));
        }
    }
    /// The waits of these tasks are over: no later one passes them.
    pub(super) fn end_arrivals(&mut self, of: impl Fn(&World, usize) -> bool) {
        let mut arrivals = std::mem::take(&mut self.invariants.arrivals);
        arrivals.iter_mut().filter(|a| of(self, a.task)).for_each(|a| a.is_over = true);
        self.invariants.arrivals = arrivals;
    }
}

/// The current task waits no more.
pub(super) fn is_over() {
    with(|world| {
        let current = world.current;
        world.end_arrivals(|_, task| task == current);
    });
}
