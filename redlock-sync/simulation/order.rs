//! Order of arrival: on one node, where nothing goes wrong, no wait gets the lock before one that came earlier.

use super::kinds::{Access, LockKind};
use super::known::{Arrival, Holder};
use super::plan::Time;
use super::scripts::{self, Execution};
use super::world::{World, with};
use crate::node::{Failure, Value};

/// The writer that held the lock when a reader came, and the next one: phases of readers and of writers take turns.
const MOST_PASSED: u32 = 2;

/// One side of a read-write lock.
fn side(letter: &str, name: &str) -> String {
    format!("{letter} {name}")
}

impl World {
    /// A script has run: it may have entered a wait, or given the lock to one that is in no queue.
    pub(super) fn note_place(&mut self, call: &Execution, reply: &Result<Value, Failure>) {
        // Of readers and of writers there is a queue each.
        let (lock, token, wait) = match (scripts::name(call.script), &call.args[..]) {
            _ if self.plan.nodes > 1 => return,
            // A bare attempt has a token and a lease, and no wait.
            ("acquire", [token, _, rest @ ..]) => (call.keys[0].clone(), token, rest.get(1).unwrap_or(token)),
            ("rw_acquire", [letter, token, _, rest @ ..]) => {
                (side(letter, &call.keys[0]), token, rest.get(1).unwrap_or(token))
            }
            _ => return,
        };
        match reply {
            Ok(Value::List(said)) if matches!(said[..], [_, _, _, Value::Int(1)]) => {}
            Ok(Value::List(said)) if said.len() > 2 => return,
            _ => {
                self.invariants.taken.insert(token.clone(), self.now);
                return;
            }
        }
        let Some((task, turn)) = self.invariants.tokens.wait_of(wait) else { return };
        let arrival = Arrival { lock, task, turn, at: self.now, is_over: false, passed: 0 };
        self.invariants.arrivals.push(arrival);
    }

    /// The current task has got a lock: handed to it in its process, or by the node.
    pub(super) fn check_order(&mut self, name: &str, holder: &Holder, was_handed: bool) {
        let (task, turn) = (self.current, self.tasks[self.current].turn);
        let is_mutex =
            self.plan.names.iter().zip(&self.plan.kinds).any(|(n, kind)| *n == name && *kind == LockKind::Mutex);
        let lock = match holder.access {
            Access::Alone if is_mutex => name.to_owned(),
            Access::Alone => side("w", name),
            // Readers are let in together.
            Access::Reads | Access::Shares { .. } => String::new(),
        };
        let given = self.invariants.taken.get(&holder.token).copied().unwrap_or(Time::MAX);
        let arrivals = &mut self.invariants.arrivals;
        // A multi-lock waits in several queues.
        let is_own = |a: &Arrival| a.task == task && a.turn == turn && a.lock == lock;
        let own = arrivals.iter().filter(|a| is_own(a)).map(|a| a.at).min().unwrap_or(given);
        arrivals.retain(|a| a.task != task || a.lock != lock);
        // What a multi-lock has by now is not known until it has all.
        let is_waiting = |a: &Arrival| !a.is_over && !self.tasks[a.task].takes_several;
        let earlier = arrivals.iter().filter(|a| a.lock == lock && is_waiting(a) && a.at < own).count();
        if earlier > 0 && self.plan.is_calm && !was_handed {
            self.violate(format!("out of order: `{lock}` was given to task {task} before {earlier} that came earlier"));
        }
        if holder.access == Access::Alone && !is_mutex && !was_handed {
            self.note_phase(&side("r", name));
        }
    }

    /// A writer has the lock now.
    fn note_phase(&mut self, readers: &str) {
        let passed = |a: &mut Arrival| {
            a.passed += u32::from(a.lock == readers && !a.is_over);
            a.passed
        };
        let most = self.invariants.arrivals.iter_mut().map(passed).max().unwrap_or(0);
        if most > MOST_PASSED && self.plan.is_calm {
            self.violate(format!("out of order: a reader of `{readers}` has waited for {most} writers"));
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
