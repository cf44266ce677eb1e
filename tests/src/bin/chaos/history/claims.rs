//! The tasks of a history: their pushes, and the claims of workers.

use std::collections::{BTreeMap, BTreeSet};

use super::History;
use crate::event::{Event, Op, Outcome, Session, What};

/// A push of a task that the server confirmed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Push {
    pub(crate) task: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// True if the task was due at once and was not queued before.
    pub(crate) is_fresh: bool,
}

/// A claim of a task.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) session: Session,
    pub(crate) task: u64,
    pub(crate) fence: u64,
    pub(crate) attempt: u64,
    /// The span of the call that claimed the task.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The times at which the checks began that found the task claimed.
    pub(crate) looks: Vec<u64>,
    pub(crate) end: Option<EndOfClaim>,
}

/// A call that ends a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndOfClaim {
    pub(crate) op: Op,
    pub(crate) from: u64,
    /// The time at which the call returned, and its outcome. `None` if the call never returned.
    pub(crate) end: Option<(u64, Outcome)>,
}

impl EndOfClaim {
    /// True if the server accepted the end. A drop does not say it.
    pub(crate) fn is_accepted(&self) -> bool {
        self.op != Op::Drop && self.end.is_some_and(|(_, outcome)| outcome == Outcome::Ok)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.end.is_some_and(|(_, outcome)| outcome == Outcome::Lost)
    }

    /// The latest time at which the server may accept the end.
    pub(crate) fn until(&self) -> u64 {
        self.end.filter(|_| self.is_accepted() || self.is_refused()).map_or(u64::MAX, |(at, _)| at)
    }

    /// True if the task does not run again once this end is accepted.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self.op, Op::Ack | Op::Fail)
    }
}

/// The data of the queue of tasks on its server at the end of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LeftTasks {
    /// True if no task was queued or claimed within a minute after the faults.
    pub(crate) is_done: bool,
    pub(crate) tasks: usize,
    pub(crate) dead: usize,
    /// The fields of the hash of tasks.
    pub(crate) fields: usize,
    pub(crate) claims: usize,
}

impl History {
    /// The claims of each task, in the order of their fencing tokens.
    pub(crate) fn claims_by_task(&self) -> BTreeMap<u64, Vec<&Claim>> {
        let mut tasks: BTreeMap<u64, Vec<&Claim>> = BTreeMap::new();
        for claim in &self.claims {
            tasks.entry(claim.task).or_default().push(claim);
        }
        for claims in tasks.values_mut() {
            claims.sort_unstable_by_key(|claim| claim.fence);
        }
        tasks
    }

    /// The logged events about a task, as lines for a report.
    pub(crate) fn slice_of_task(&self, task: u64) -> Vec<String> {
        let of_task = self.claims.iter().filter(|claim| claim.task == task);
        let sessions: BTreeSet<Session> = of_task.map(|claim| claim.session).collect();
        let is_push = |what: &What| matches!(what, What::Pushed { task: pushed, .. } if *pushed == task);
        let is_about = |event: &&Event| sessions.contains(&event.session) || is_push(&event.what);
        self.events.iter().filter(is_about).map(|event| self.told(event.at, &event.to_string())).collect()
    }
}

/// Adds the event to the claim of its session.
pub(super) fn note_claim(claims: &mut BTreeMap<Session, Claim>, event: &Event) {
    let &Event { at, session, ref what, .. } = event;
    match (what, claims.get_mut(&session)) {
        (&What::Claimed { task, fence, attempt, from }, _) => {
            let claim = Claim { session, task, fence, attempt, from, until: at, looks: Vec::new(), end: None };
            claims.insert(session, claim);
        }
        (What::Check { until: Some(_) }, Some(claim)) => claim.looks.push(at),
        (&What::Call { op, .. }, Some(claim)) => claim.end = Some(EndOfClaim { op, from: at, end: None }),
        (&What::Return { outcome, .. }, Some(Claim { end: Some(end), .. })) => end.end = Some((at, outcome)),
        _ => {}
    }
}
