//! Which thread uses a line, and which rounds travel along: the rounds of all threads share a few lines. With a connection for each call, hundreds of
//! threads would need hundreds of connections, or a queue for them in which calls time out. A round has a whole line or none, so rounds never wait for
//! each other in a circle.
//!
//! A thread that finds a line leads: it takes the rounds of those that found none into its batch, and gives the line to the next of them when it is
//! done. The others follow: they sleep until their round was answered, until they are given a line, or until their time is up.
//!
//! A leader reads replies for all until its own time is up, so it is the round with the most time left that leads, and it takes along those that have
//! no more than itself: no thread works for others after its own time.
//!
//! No line is idle while a round waits that may lead. A thread that finds no line queues in the same critical section in which it looked, and a line
//! is given on, or put back, in one critical section with the look at the queue. At the limit for ordinary leaders a round stays in the queue only
//! while an ordinary leader is at work, which will look.
//!
//! Lock order: the queues, then a round.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::clock::{Clock, Tick};
use crate::sync::{Condvar, Mutex};

/// Most rounds in one batch. A packet of as many is some 25 kB.
pub(super) const MOST: usize = 64;
/// Places of a batch that urgent rounds leave to ordinary ones.
const FOR_ORDINARY: usize = 8;

/// One thread's round. `R` is what the batch notes of it.
pub(super) struct Op<L, R> {
    /// When its thread goes on without an answer.
    pub(super) by: Tick,
    /// Releases and renewals go before attempts.
    pub(super) is_urgent: bool,
    state: Mutex<State<L, R>>,
    moved: Arc<Condvar>,
}

struct State<L, R> {
    turn: Turn<L>,
    record: R,
}

enum Turn<L> {
    /// In the queue; nothing was sent.
    Queued,
    /// Was given a line.
    Leads(L),
    /// Part of a batch.
    Taken,
    /// Answered, or left by its thread.
    Over,
}

impl<L, R> Op<L, R> {
    pub(super) fn new(record: R, is_urgent: bool, by: Tick) -> Arc<Op<L, R>> {
        let state = State { turn: Turn::Queued, record };
        Arc::new(Op { by, is_urgent, state: Mutex::new(state), moved: Arc::new(Condvar::new()) })
    }

    /// Notes something while the round is in a batch; `None` if its thread has left it. `f` says whether the round is over now.
    pub(super) fn note<T>(&self, f: impl FnOnce(&mut R) -> (T, bool)) -> Option<T> {
        let mut state = self.state.lock();
        if matches!(state.turn, Turn::Over) {
            return None;
        }
        let (told, is_over) = f(&mut state.record);
        if is_over {
            state.turn = Turn::Over;
            drop(state);
            self.moved.notify_one();
        }
        Some(told)
    }

    /// What was noted, for its own thread, once it is over.
    pub(super) fn read<T>(&self, f: impl FnOnce(&mut R) -> T) -> T {
        f(&mut self.state.lock().record)
    }

    /// Puts the round into a batch; false if its thread has left it.
    fn take(&self) -> bool {
        let mut state = self.state.lock();
        let is_queued = matches!(state.turn, Turn::Queued);
        if is_queued {
            state.turn = Turn::Taken;
        }
        is_queued
    }

    /// Gives its thread a line to lead with, and leaves it to the caller to wake it; gives the line back if the thread has left.
    fn give(&self, line: L) -> Option<L> {
        let mut state = self.state.lock();
        if !matches!(state.turn, Turn::Queued) {
            return Some(line);
        }
        state.turn = Turn::Leads(line);
        None
    }
}

/// The queues of one client.
pub(super) struct Depot<L, R> {
    queues: Mutex<Queues<L, R>>,
    clock: Arc<dyn Clock>,
    /// So many lines at a time are led by ordinary rounds.
    most_ordinary: usize,
}

struct Queues<L, R> {
    urgent: VecDeque<Arc<Op<L, R>>>,
    ordinary: VecDeque<Arc<Op<L, R>>>,
    ordinary_leaders: usize,
    /// The line that became idle last: most rounds take that one, and need not ask the pool.
    idle: Option<L>,
}

/// A line in the hands of a leader, given on when it is dropped: also where a leader panics.
pub(super) struct Led<'a, L, R> {
    depot: &'a Depot<L, R>,
    line: Option<L>,
    is_urgent: bool,
}

impl<L, R> Depot<L, R> {
    pub(super) fn new(clock: Arc<dyn Clock>, most_ordinary: usize) -> Depot<L, R> {
        let (urgent, ordinary) = (VecDeque::new(), VecDeque::new());
        let queues = Queues { urgent, ordinary, ordinary_leaders: 0, idle: None };
        Depot { queues: Mutex::new(queues), clock, most_ordinary }
    }

    /// A line for the round, from those that are idle; without one it is in the queue.
    pub(super) fn enter(&self, op: &Arc<Op<L, R>>, idle: impl FnOnce() -> Option<L>) -> Option<Led<'_, L, R>> {
        let mut queues = self.queues.lock();
        let Some(led) = self.lead(&mut queues, op.is_urgent, idle) else {
            queues.of(op.is_urgent).push_back(Arc::clone(op));
            return None;
        };
        op.take();
        Some(led)
    }

    /// A line for several rounds of one thread, if one is idle; without one they are in no queue.
    pub(super) fn lead_now(&self, ops: &[Arc<Op<L, R>>], idle: impl FnOnce() -> Option<L>) -> Option<Led<'_, L, R>> {
        let led = self.lead(&mut self.queues.lock(), ops.iter().all(|op| op.is_urgent), idle)?;
        for op in ops {
            op.take();
        }
        Some(led)
    }

    /// A line for a round that no other round travels with: if one is idle and no round waits.
    pub(super) fn lead_alone(&self, is_urgent: bool, idle: impl FnOnce() -> Option<L>) -> Option<Led<'_, L, R>> {
        let mut queues = self.queues.lock();
        let is_alone = queues.urgent.is_empty() && queues.ordinary.is_empty();
        if is_alone { self.lead(&mut queues, is_urgent, idle) } else { None }
    }

    /// An idle line, if a round of this kind may lead one more.
    fn lead(
        &self,
        queues: &mut Queues<L, R>,
        is_urgent: bool,
        idle: impl FnOnce() -> Option<L>,
    ) -> Option<Led<'_, L, R>> {
        if !queues.may_lead(is_urgent, self.most_ordinary) {
            return None;
        }
        let line = queues.idle.take().or_else(idle)?;
        queues.count_leader(is_urgent);
        Some(self.led(line, is_urgent))
    }

    fn led(&self, line: L, is_urgent: bool) -> Led<'_, L, R> {
        Led { depot: self, line: Some(line), is_urgent }
    }

    /// Waits until the round leads, or is over: then there is no line. When its time is up its thread leaves it, after `leave` has noted how it ended; it is told
    /// whether the round was in a batch.
    pub(super) fn follow(&self, op: &Arc<Op<L, R>>, leave: impl FnOnce(&mut R, bool)) -> Option<Led<'_, L, R>> {
        let mut state = op.state.lock();
        loop {
            let left = op.by.since(self.clock.now());
            match std::mem::replace(&mut state.turn, Turn::Taken) {
                Turn::Leads(line) if !left.is_zero() => return Some(self.led(line, op.is_urgent)),
                Turn::Over => {
                    state.turn = Turn::Over;
                    return None;
                }
                turn if left.is_zero() => {
                    state.turn = Turn::Over;
                    leave(&mut state.record, matches!(turn, Turn::Taken));
                    drop(state);
                    self.left(op, turn);
                    return None;
                }
                turn => state.turn = turn,
            }
            self.clock.wait_until(&op.moved, &mut state, op.by);
        }
    }

    /// Gives on what a thread was given that has left, and forgets its round.
    fn left(&self, op: &Arc<Op<L, R>>, turn: Turn<L>) {
        match turn {
            Turn::Leads(line) => self.pass_on(line, op.is_urgent),
            Turn::Queued => self.queues.lock().of(op.is_urgent).retain(|other| !Arc::ptr_eq(other, op)),
            Turn::Taken | Turn::Over => {}
        }
    }

    /// The leader's own round and those that travel with it, urgent ones first: those whose time ends with the leader's, or before.
    pub(super) fn collect(&self, leader: &Arc<Op<L, R>>) -> Vec<Arc<Op<L, R>>> {
        let mut queues = self.queues.lock();
        let kept = FOR_ORDINARY.min(queues.ordinary.len());
        let mut batch = vec![Arc::clone(leader)];
        take_along(&mut queues.urgent, leader.by, MOST - kept, &mut batch);
        take_along(&mut queues.ordinary, leader.by, MOST, &mut batch);
        batch
    }

    /// Gives the line to a round that may lead. If there is none, the line becomes idle before another thread can look.
    fn pass_on(&self, mut line: L, was_urgent: bool) {
        let mut queues = self.queues.lock();
        if !was_urgent {
            queues.ordinary_leaders -= 1;
        }
        while let Some(op) = queues.next_leader(self.most_ordinary) {
            match op.give(line) {
                None => {
                    queues.count_leader(op.is_urgent);
                    drop(queues);
                    op.moved.notify_one();
                    return;
                }
                Some(back) => line = back,
            }
        }
        // In place of the one that was kept, which goes back to the pool.
        queues.idle = Some(line);
    }
}

impl<L, R> Queues<L, R> {
    fn of(&mut self, is_urgent: bool) -> &mut VecDeque<Arc<Op<L, R>>> {
        if is_urgent { &mut self.urgent } else { &mut self.ordinary }
    }

    fn may_lead(&self, is_urgent: bool, most_ordinary: usize) -> bool {
        is_urgent || self.ordinary_leaders < most_ordinary
    }

    fn count_leader(&mut self, is_urgent: bool) {
        self.ordinary_leaders += usize::from(!is_urgent);
    }

    fn next_leader(&mut self, most_ordinary: usize) -> Option<Arc<Op<L, R>>> {
        if !self.urgent.is_empty() {
            return take_latest(&mut self.urgent);
        }
        if self.may_lead(false, most_ordinary) { take_latest(&mut self.ordinary) } else { None }
    }
}

/// Takes the round that has the most time left out of a queue.
fn take_latest<L, R>(queue: &mut VecDeque<Arc<Op<L, R>>>) -> Option<Arc<Op<L, R>>> {
    let (latest, _) = queue.iter().enumerate().max_by_key(|(_, op)| op.by)?;
    queue.remove(latest)
}

/// Moves rounds from the front of a queue into a batch, until it has so many; those that end after `by` stay.
fn take_along<L, R>(queue: &mut VecDeque<Arc<Op<L, R>>>, by: Tick, up_to: usize, batch: &mut Vec<Arc<Op<L, R>>>) {
    let mut stay = VecDeque::new();
    while batch.len() < up_to
        && let Some(op) = queue.pop_front()
    {
        if op.by > by {
            stay.push_back(op);
        } else if op.take() {
            batch.push(op);
        }
    }
    while let Some(op) = stay.pop_back() {
        queue.push_front(op);
    }
}

impl<L, R> Led<'_, L, R> {
    pub(super) fn line(&mut self) -> Option<&mut L> {
        self.line.as_mut()
    }
}

impl<L, R> Drop for Led<'_, L, R> {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            self.depot.pass_on(line, self.is_urgent);
        }
    }
}

impl<L, R> fmt::Debug for Depot<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.queues.lock();
        write!(f, "{} urgent, {} ordinary rounds wait", queues.urgent.len(), queues.ordinary.len())
    }
}
