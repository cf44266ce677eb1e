//! One thread's round, as the depot and the batches know it.

use std::sync::Arc;

use super::depot::{Depot, Op};
use super::late::LateReplies;
use super::line::PooledLine;
use super::{Answers, Ask, Executed, Failure, FailureKind, Value};
use crate::clock::Tick;
use crate::protocol::script::Call;

pub(super) type Rounds = Depot<PooledLine, Round>;
pub(super) type RoundOp = Arc<Op<PooledLine, Round>>;

/// What is noted of a round: a seat for each node.
pub(super) struct Round {
    /// Shared with the batches, which write it without the round's lock.
    call: Arc<Call>,
    seats: Vec<Seat>,
    /// Seats without an answer.
    open: usize,
    started: Tick,
    duplicate: bool,
}

/// How far the call has come at one node.
enum Seat {
    /// Not written.
    Open,
    /// Written there.
    Written(LeftBehind),
    Answered(Result<Value, Failure>),
}

/// A call that was written on a link, and that its thread may leave there.
#[derive(Clone)]
pub(super) struct LeftBehind {
    pub(super) late: Arc<LateReplies>,
    pub(super) link: u64,
    /// Behind `ASKING`.
    pub(super) asks: bool,
}

impl Round {
    /// Asks those of so many nodes that `ask` names.
    pub(super) fn new(call: Arc<Call>, nodes: usize, ask: Ask<'_>, now: Tick) -> Round {
        let seat = |node| if ask(node) { Seat::Open } else { Seat::Answered(Err(not_asked())) };
        let seats: Vec<Seat> = (0..nodes).map(seat).collect();
        let open = seats.iter().filter(|seat| matches!(seat, Seat::Open)).count();
        Round { call, seats, open, started: now, duplicate: false }
    }

    pub(super) fn call(&self) -> Arc<Call> {
        Arc::clone(&self.call)
    }

    pub(super) fn start(&mut self, started: Tick) {
        self.started = started;
    }

    pub(super) fn is_open(&self, node: usize) -> bool {
        matches!(self.seats.get(node), Some(Seat::Open))
    }

    /// To be called before the call is written on a link, or written again.
    pub(super) fn write_on(&mut self, node: usize, written: LeftBehind) {
        if let Some(seat @ (Seat::Open | Seat::Written(_))) = self.seats.get_mut(node) {
            *seat = Seat::Written(written);
        }
    }

    /// A copy of the call may be executed besides.
    pub(super) fn note_duplicate(&mut self) {
        self.duplicate = true;
    }

    /// True if it was the last answer.
    pub(super) fn answer(&mut self, node: usize, result: Result<Value, Failure>) -> bool {
        if let Some(seat @ (Seat::Open | Seat::Written(_))) = self.seats.get_mut(node) {
            *seat = Seat::Answered(result);
            self.open -= 1;
        }
        self.open == 0
    }

    /// The thread's time is up, in a batch or in the queue. Returns where the call may still be executed.
    pub(super) fn leave(&mut self, in_batch: bool) -> Vec<LeftBehind> {
        let mut left = Vec::new();
        for seat in &mut self.seats {
            let failure = match seat {
                Seat::Answered(_) => continue,
                Seat::Open if in_batch => Failure::unsent(FailureKind::TimedOut, "no connection in time"),
                Seat::Open => overloaded(),
                Seat::Written(written) => {
                    left.push(written.clone());
                    Failure::new(FailureKind::TimedOut, Executed::Maybe, "timed out")
                }
            };
            *seat = Seat::Answered(Err(failure));
        }
        self.open = 0;
        left
    }

    pub(super) fn take_answers(&mut self) -> Answers {
        let result = |seat| match seat {
            Seat::Answered(result) => result,
            // A leader that panicked has left it so.
            Seat::Open | Seat::Written(_) => {
                Err(Failure::new(FailureKind::TimedOut, Executed::Maybe, "was not answered"))
            }
        };
        let results = std::mem::take(&mut self.seats).into_iter().map(result).collect();
        Answers { results, started: self.started, duplicate: self.duplicate }
    }
}

pub(super) fn not_asked() -> Failure {
    Failure::unsent(FailureKind::LeftOut, "not asked")
}

/// The thread's time passed before the call was written.
fn overloaded() -> Failure {
    Failure::unsent(
        FailureKind::Overloaded,
        "not sent: in that time all connections were busy, with more calls than they can carry (`Builder::connections`) or with a server that hangs",
    )
}
