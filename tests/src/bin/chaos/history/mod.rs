//! The history of a run. It is collected from the logs of the clients, the nemesis, the store and the observers. The
//! checkers are functions of the history.

mod claims;

use std::collections::{BTreeMap, HashMap};

use crate::event::{Event, Op, Outcome, Phase, Session, UNKNOWN, Wants, What, words};
use crate::names::{ACCOUNT, CROWD};
use crate::plan::{self, Kind, Target};
use claims::note_claim;
pub(crate) use claims::{Claim, EndOfClaim, LeftTasks, Push};

/// One call of the library.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) session: Session,
    pub(crate) key: usize,
    pub(crate) op: Op,
    pub(crate) from: u64,
    /// The time limit of the call. `u64::MAX` means without a limit.
    pub(crate) limit: u64,
    /// The time at which the call ended, and its outcome. `None` if the client was killed during the call, or if the
    /// call never ended.
    pub(crate) end: Option<(u64, Outcome)>,
}

/// A call that checks whether the lock is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) at: u64,
    /// The time until which the library claims the lock. `None` if the lock is lost.
    pub(crate) until: Option<u64>,
}

/// A hold of a lock, from its acquisition to the end of its guard.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) session: Session,
    pub(crate) key: usize,
    pub(crate) wants: Wants,
    /// The time at which the acquire returned.
    pub(crate) begin: u64,
    /// The token of the hold. `None` if the client had no guard to ask for it.
    pub(crate) token: Option<String>,
    /// The slots of a semaphore that are held. Each slot is one bit.
    pub(crate) slots: u64,
    pub(crate) looks: Vec<Look>,
    pub(crate) fence: Option<u64>,
    /// The times at which the handlers of a loss were called.
    pub(crate) told: Vec<u64>,
    /// The times at which an `extend` ended, with any outcome.
    pub(crate) extended: Vec<u64>,
    /// The time at which the client called unlock or dropped the guard.
    pub(crate) unlock: Option<u64>,
    /// The time at which unlock returned, and its outcome.
    pub(crate) unlocked: Option<(u64, Outcome)>,
    /// The time at which the drop of the guard ended. A drop reports no outcome.
    pub(crate) dropped: Option<u64>,
}

impl Hold {
    fn new(session: Session, key: usize, wants: Wants, begin: u64, token: Option<String>) -> Self {
        Self {
            session,
            key,
            wants,
            begin,
            token,
            slots: 0,
            looks: Vec::new(),
            fence: None,
            told: Vec::new(),
            extended: Vec::new(),
            unlock: None,
            unlocked: None,
            dropped: None,
        }
    }

    fn called(&mut self, op: Op, at: u64) {
        if matches!(op, Op::Unlock | Op::Drop) {
            self.unlock = Some(at);
        }
    }

    fn returned(&mut self, op: Op, at: u64, outcome: Outcome) {
        match op {
            Op::Unlock | Op::Attribute => self.unlocked = Some((at, outcome)),
            Op::Drop => self.dropped = Some(at),
            Op::Extend => self.extended.push(at),
            _ => {}
        }
    }

    /// The span in which the lock was certainly held. It begins when the acquire returned and ends with the latest time
    /// that a check promised.
    ///
    /// A check that reported the loss, or the unlock, ends the span earlier. The result is `None` if no check promised
    /// a time.
    ///
    /// If one key of a multi-lock is lost, the library releases the other keys. The promises of the checks for these
    /// keys end then, at a time that is not known exactly.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let end = self.looks.iter().filter_map(|look| look.until).max()?;
        let lost = self.looks.iter().filter(|look| look.until.is_none()).map(|look| look.at).min();
        let is_given_up = (ACCOUNT..CROWD).contains(&self.key) && !self.told.is_empty();
        let end = if is_given_up { self.begin } else { end };
        let end = [lost, self.unlock].into_iter().flatten().fold(end, u64::min);
        Some((self.begin, end.max(self.last_look()?)))
    }

    /// The time of the last check that found the lock held.
    pub(crate) fn last_look(&self) -> Option<u64> {
        self.looks.iter().filter(|look| look.until.is_some()).map(|look| look.at).max()
    }

    /// True if a check or the unlock reported the loss.
    pub(crate) fn is_lost(&self) -> bool {
        self.saw_loss().is_some() || self.unlocked.is_some_and(|(_, outcome)| outcome == Outcome::Lost)
    }

    /// The time of the first check that reported the loss.
    pub(crate) fn saw_loss(&self) -> Option<u64> {
        self.looks.iter().filter(|look| look.until.is_none()).map(|look| look.at).min()
    }
}

/// A write to the fenced store. The writes are in the order in which they arrived.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) at: u64,
    pub(crate) session: Session,
    pub(crate) key: usize,
    pub(crate) fence: u64,
    pub(crate) accepted: bool,
}

/// The event that a worker is about to arrive at a latch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) latch: u64,
    pub(crate) worker: u8,
}

/// The state of a latch that a call reported, with the span of the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saw {
    pub(crate) session: Session,
    pub(crate) latch: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) is_open: bool,
}

/// A call for a job that returned `Ran`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ran {
    pub(crate) at: u64,
    pub(crate) session: Session,
    pub(crate) job: u64,
}

/// A fault that the nemesis has executed.
#[derive(Debug, Clone)]
pub(crate) struct Struck {
    pub(crate) fault: plan::Fault,
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The number of times that the fault took effect.
    pub(crate) hits: usize,
}

/// A key that the nemesis deleted on this many nodes while the lock was held.
#[derive(Debug, Clone)]
pub(crate) struct Deleted {
    pub(crate) at: u64,
    pub(crate) token: String,
    pub(crate) nodes: usize,
}

/// A token that a node had in all checks from the first to the last time, without another token in between.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    pub(crate) node: usize,
    pub(crate) key: usize,
    pub(crate) token: String,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

words! {
    /// The use of an id: for a wait for a lock, or for the hold that follows a grant.
    IdOf { Wait = "wait", Grant = "grant" }
}

/// An id that was used for two different things.
#[derive(Debug, Clone)]
pub(crate) struct Reused {
    pub(crate) at: u64,
    pub(crate) what: IdOf,
    pub(crate) id: String,
    pub(crate) first: String,
    pub(crate) second: String,
}

/// A key that was still on a node at the end of the run.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    pub(crate) node: usize,
    pub(crate) key: String,
    /// The time to live of the key in ms. `None` if the key never expires.
    pub(crate) ttl: Option<u64>,
}

/// The threads and files of a client, before or after its work.
#[derive(Debug, Clone)]
pub(crate) struct Uses {
    pub(crate) session: Session,
    pub(crate) phase: Phase,
    pub(crate) threads: u64,
    pub(crate) files: u64,
}

/// A client that did not end as it should. It ended early, it failed, or it did not end at all.
#[derive(Debug, Clone)]
pub(crate) struct Fallen {
    pub(crate) at: u64,
    pub(crate) client: u8,
    pub(crate) life: u8,
    pub(crate) how: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) nodes: usize,
    /// True if the node is a Sentinel group.
    pub(crate) sentinel: bool,
    /// True if the clients are workers of a queue of tasks.
    pub(crate) has_tasks: bool,
    pub(crate) keys: usize,
    pub(crate) clients: usize,
    /// The time at which the clients began, and the time at which the run ordered them to end.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) beyond: bool,
    pub(crate) events: Vec<Event>,
    pub(crate) calls: Vec<Call>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) stored: Vec<Stored>,
    pub(crate) arrivals: Vec<Arrival>,
    /// The states of latches, in the order in which the calls ended.
    pub(crate) saw: Vec<Saw>,
    pub(crate) ran: Vec<Ran>,
    pub(crate) pushes: Vec<Push>,
    /// The claims of tasks, in the order of their sessions.
    pub(crate) claims: Vec<Claim>,
    /// `None` until the end of the run.
    pub(crate) left_tasks: Option<LeftTasks>,
    pub(crate) uses: Vec<Uses>,
    /// The spans in which a client did not run: the client, the start and the end. It was stopped, or it got no
    /// processor.
    pub(crate) stalls: Vec<(u8, u64, u64)>,
    /// The times at which the gauges of clients acquired their locks, with the client and its life.
    pub(crate) beats: Vec<(u8, u8, u64)>,
    pub(crate) struck: Vec<Struck>,
    pub(crate) deleted: Vec<Deleted>,
    pub(crate) sightings: Vec<Sighting>,
    /// The last time at which a client asked a node to extend the lease of a token.
    pub(crate) extended: HashMap<String, u64>,
    /// The numbers of the ids of waits and of grants, and the ids that were used twice.
    pub(crate) waits: usize,
    pub(crate) grants: usize,
    pub(crate) reused: Vec<Reused>,
    pub(crate) left: Vec<Left>,
    pub(crate) fallen: Vec<Fallen>,
}

impl History {
    /// Adds the logs of the clients.
    pub(crate) fn with_events(mut self, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        let mut holds: BTreeMap<Session, Hold> = BTreeMap::new();
        let mut open: HashMap<(Session, Op), usize> = HashMap::new();
        let mut wants: HashMap<Session, Wants> = HashMap::new();
        let mut claims: BTreeMap<Session, Claim> = BTreeMap::new();
        for event in &events {
            let &Event { at, session, key, ref what } = event;
            note_claim(&mut claims, event);
            let hold = holds.get_mut(&session);
            match (what, hold) {
                (What::Wants(wanted), _) => {
                    wants.insert(session, *wanted);
                }
                (What::Call { op, limit }, hold) => {
                    open.insert((session, *op), self.calls.len());
                    self.calls.push(Call { session, key, op: *op, from: at, limit: *limit, end: None });
                    if let Some(hold) = hold {
                        hold.called(*op, at);
                    }
                }
                (What::Return { op, outcome }, hold) => {
                    if let Some(call) = open.remove(&(session, *op)) {
                        self.calls[call].end = Some((at, *outcome));
                    }
                    if let Some(hold) = hold {
                        hold.returned(*op, at, *outcome);
                    }
                }
                (What::Held { token }, _) => {
                    let token = (token != UNKNOWN).then(|| token.clone());
                    let wanted = wants.get(&session).copied().unwrap_or(Wants::plain(0));
                    holds.insert(session, Hold::new(session, key, wanted, at, token));
                }
                (&What::Slots { slots }, Some(hold)) => hold.slots = slots,
                (What::Check { until }, Some(hold)) => hold.looks.push(Look { at, until: *until }),
                (What::Number { fence }, Some(hold)) => hold.fence = Some(*fence),
                (What::Told, Some(hold)) => hold.told.push(at),
                (&What::Arrives { latch, worker }, _) => self.arrivals.push(Arrival { at, latch, worker }),
                (&What::Saw { latch, from, is_open }, _) => {
                    self.saw.push(Saw { session, latch, from, until: at, is_open });
                }
                (&What::Pushed { task, from, is_fresh }, _) => {
                    self.pushes.push(Push { task, from, until: at, is_fresh });
                }
                (&What::Ran { job }, _) => self.ran.push(Ran { at, session, job }),
                (What::Beat, _) => self.beats.push((session.client, session.life, at)),
                (&What::Stalled { from }, _) => self.stalls.push((session.client, from, at)),
                (&What::Uses { phase, threads, files }, _) => {
                    self.uses.push(Uses { session, phase, threads, files });
                }
                _ => {}
            }
        }
        self.claims = claims.into_values().collect();
        self.holds = holds.into_values().collect();
        self.holds.sort_by_key(|hold| hold.begin);
        self.events = events;
        self
    }

    /// The holds of one key, in the order in which they began.
    pub(crate) fn holds_of(&self, key: usize) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |hold| hold.key == key)
    }

    /// The stops of the client: the spans in which the nemesis had stopped it, or it got no processor. The spans are in
    /// order and may overlap.
    fn stops(&self, client: u8) -> Vec<(u64, u64)> {
        let is_pause = |s: &&Struck| s.fault.kind == Kind::Pause && s.fault.target == Target::Client(client.into());
        let pauses = self.struck.iter().filter(is_pause).map(|s| (s.from, s.until));
        let stalls = self.stalls.iter().filter(|stall| stall.0 == client).map(|stall| (stall.1, stall.2));
        let mut stops: Vec<(u64, u64)> = pauses.chain(stalls).collect();
        stops.sort_unstable();
        stops
    }

    /// The time for which the client did not run within this span.
    pub(crate) fn stopped(&self, client: u8, from: u64, until: u64) -> u64 {
        let (mut sum, mut at) = (0, from);
        for (begin, end) in self.stops(client) {
            sum += end.min(until).saturating_sub(begin.max(at));
            at = at.max(end);
        }
        sum
    }

    /// The time at which the client has run for the time `time` since `from`. A stop that begins later does not count.
    pub(crate) fn awake_for(&self, client: u8, from: u64, time: u64) -> u64 {
        let (mut by, mut at) = (from + time, from);
        for (begin, end) in self.stops(client).into_iter().filter(|stop| stop.1 > from) {
            if begin >= by {
                break;
            }
            by += end.saturating_sub(begin.max(at));
            at = at.max(end);
        }
        by
    }

    /// The time at which the nemesis killed the client in this life.
    pub(crate) fn killed(&self, client: u8, life: u8) -> Option<u64> {
        let of_client = |s: &&Struck| s.fault.kind == Kind::Murder && s.fault.target == Target::Client(client.into());
        let mut deaths: Vec<u64> = self.struck.iter().filter(of_client).map(|s| s.from).collect();
        deaths.sort_unstable();
        deaths.get(usize::from(life)).copied()
    }

    /// The logged events of these sessions within this span, as lines for a report.
    pub(crate) fn slice(&self, sessions: &[Session], from: u64, until: u64) -> Vec<String> {
        let near = |event: &&Event| sessions.contains(&event.session) && event.at >= from && event.at <= until;
        self.events.iter().filter(near).map(|event| self.told(event.at, &event.to_string())).collect()
    }

    /// A line for a report that begins with its time in seconds since the beginning of the run.
    pub(crate) fn told(&self, at: u64, line: &str) -> String {
        format!("{} {line}", self.seconds(at))
    }

    #[allow(clippy::cast_precision_loss, reason = "a run is shorter than a year")]
    pub(crate) fn seconds(&self, at: u64) -> String {
        let nanos = i128::from(at) - i128::from(self.begin);
        format!("{:>10.4} s", nanos as f64 / 1e9)
    }
}
