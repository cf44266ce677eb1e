//! Order of arrival: on one node without faults, no wait gets the lock before a wait that arrived earlier. Readers and
//! writers of a read-write lock take turns. While readers hold the lock, a waiting writer keeps out readers that arrive
//! after it.

use super::kinds::{Access, DrawnKind};
use super::known::{Arrival, Holder, InvariantChecker, Key};
use super::plan::Time;
use super::scripts::{self, Execution};
use super::world::{World, with};
use crate::node::{Failure, Value};

/// The largest number of writers that a reader waits for: the writer that holds the lock when the reader arrives, and
/// the next one.
const MOST_PASSED: u32 = 2;

/// The name of one side of a read-write lock.
fn side(letter: &str, name: &str) -> String {
    format!("{letter} {name}")
}

impl World {
    /// Called after a script has run. The script may have added a wait to the queue, removed one, or given the lock to
    /// an attempt without a wait.
    pub(super) fn note_place(&mut self, call: &Execution, reply: &Result<Value, Failure>) {
        if self.plan.nodes > 1 || !self.plan.is_calm {
            return;
        }
        let script = scripts::name(call.script);
        if script.starts_with("rw_") {
            self.note_readers(&call.keys[0]);
        }
        // Readers and writers have one queue each. An attempt on the fast path has a token and a lease, but no wait.
        // The last attempt of a wait removes the wait from the queue, some time before the thread knows the result.
        let stays = |rest: &[String]| rest.get(2).is_none_or(|ms| ms != "0");
        let (lock, token, wait, stays) = match (script, &call.args[..]) {
            ("native_set", [token, _]) => {
                self.invariants.barged.native.insert(token.clone());
                (call.keys[0].clone(), token, None, true)
            }
            ("acquire", [token, _, rest @ ..]) => (call.keys[0].clone(), token, rest.get(1), stays(rest)),
            ("rw_acquire", [token, _, letter, rest @ ..]) => {
                (side(letter, &call.keys[0]), token, rest.get(1), stays(rest))
            }
            ("rw_release", [token, letter, _, wait, ..]) => (side(letter, &call.keys[0]), token, Some(wait), false),
            _ => return,
        };
        let own = wait.and_then(|wait| self.invariants.tokens.wait_of(wait));
        match reply {
            Ok(Value::Nil) => return,
            Ok(Value::List(said)) if matches!(said[..], [_, _, _, Value::Int(1)]) => {
                let Some((task, turn)) = own else { return };
                let is_over = self.clients[self.tasks[task].client].is_closed;
                let arrival = Arrival { lock, task, turn, at: self.now, is_over, passed: 0 };
                self.invariants.arrivals.push(arrival);
                return;
            }
            Ok(Value::List(said)) if said.len() > 2 && stays => return,
            Ok(Value::List(said)) if said.len() > 2 => {}
            _ if script == "rw_release" => {}
            _ => {
                self.invariants.taken.entry(token.clone()).or_insert(self.now);
                self.check_readers(&lock, token, own);
            }
        }
        let mine = self.invariants.arrivals.iter_mut().filter(|a| own == Some((a.task, a.turn)) && a.lock == lock);
        mine.for_each(|a| a.is_over = true);
    }

    /// Records which side holds a read-write lock now.
    fn note_readers(&mut self, name: &str) {
        let Some(key) = self.plan.names.iter().position(|known| *known == name) else { return };
        let held = self.servers[0].store.holders(name);
        let read_since = &mut self.invariants.keys[key].read_since;
        if held.iter().any(|holder| holder.starts_with('w')) {
            *read_since = None;
        } else if !held.is_empty() {
            read_since.get_or_insert(self.now);
        }
    }

    /// Checks a lock that was given to this token. The rule is broken if the token is a reader's that arrived while
    /// other readers held the lock, and an earlier writer still waits.
    fn check_readers(&mut self, lock: &str, token: &str, own: Option<(usize, u32)>) {
        let Some(name) = lock.strip_prefix("r ") else { return };
        let InvariantChecker { keys, arrivals, taken, .. } = &self.invariants;
        let is_own = |a: &&Arrival| own == Some((a.task, a.turn)) && a.lock == lock;
        let came = arrivals.iter().filter(is_own).map(|a| a.at).min().unwrap_or(taken[token]);
        let writers = side("w", name);
        let are_in = |(known, key): (&&str, &Key)| *known == name && key.read_since.is_some_and(|since| since < came);
        let waits = |a: &Arrival| a.lock == writers && !a.is_over && a.at < came;
        if self.plan.names.iter().zip(keys).any(are_in) && arrivals.iter().any(waits) {
            self.violate(format!("out of order: a reader of `{name}` passes a writer that came earlier"));
        }
    }

    /// Checks the order in which the current task acquired a lock, from another thread of its process or from the node.
    pub(super) fn check_order(&mut self, name: &str, holder: &Holder, was_handed: bool) {
        let (task, turn) = (self.current, self.tasks[self.current].turn);
        let is_mutex =
            self.plan.names.iter().zip(&self.plan.kinds).any(|(n, kind)| *n == name && *kind == DrawnKind::Mutex);
        let lock = match holder.access {
            Access::Alone if is_mutex => name.to_owned(),
            Access::Alone => side("w", name),
            // Several readers acquire the lock together.
            Access::Reads | Access::Shares { .. } => String::new(),
        };
        let given = self.invariants.taken.get(&holder.token).copied().unwrap_or(Time::MAX);
        let arrivals = &mut self.invariants.arrivals;
        // A multi-lock waits in several queues.
        let is_own = |a: &Arrival| a.task == task && a.turn == turn && a.lock == lock;
        let own = arrivals.iter().filter(|a| is_own(a)).map(|a| a.at).min().unwrap_or(given);
        arrivals.retain(|a| a.task != task || a.lock != lock);
        // While a multi-lock is being acquired, it is not known which of its locks it already has.
        let is_waiting = |a: &Arrival| !a.is_over && !self.tasks[a.task].takes_several;
        let earlier = arrivals.iter().filter(|a| a.lock == lock && is_waiting(a) && a.at < own).count();
        let is_excused = is_mutex && self.is_first_barger(name, &holder.token, earlier);
        if earlier > 0 && self.plan.is_calm && !was_handed && !is_excused {
            self.violate(format!("out of order: `{lock}` was given to task {task} before {earlier} that came earlier"));
        }
        if holder.access == Access::Alone && !is_mutex && !was_handed {
            self.note_phase(&side("r", name));
        }
    }

    /// Returns true for a permitted exception: `SET NX` acquires a lock that is free for a moment, even if other
    /// clients wait. That happens in a pause, or after the lease of a dead holder has ended. The client learns of the
    /// queue at its release. It may do this once until another kind of attempt acquires the lock.
    fn is_first_barger(&mut self, name: &str, token: &str, earlier: usize) -> bool {
        let (client, barged) = (self.client, &mut self.invariants.barged);
        if !barged.native.contains(token) {
            barged.last.remove(name);
            return false;
        }
        earlier == 0 || barged.last.insert(name.to_owned(), client) != Some(client)
    }

    /// Counts a writer that acquired the lock, for all readers that wait.
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

    /// Ends the waits of these tasks, so that later waits may pass them.
    pub(super) fn end_arrivals(&mut self, of: impl Fn(&World, usize) -> bool) {
        let mut arrivals = std::mem::take(&mut self.invariants.arrivals);
        arrivals.iter_mut().filter(|a| of(self, a.task)).for_each(|a| a.is_over = true);
        self.invariants.arrivals = arrivals;
    }
}

/// Ends the waits of the current task.
pub(super) fn is_over() {
    with(|world| {
        let current = world.current;
        world.end_arrivals(|_, task| task == current);
    });
}
