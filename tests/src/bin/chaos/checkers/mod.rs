//! The checkers. Each checker judges a history. It reports what it has judged, and the violations.

mod calls;
pub(crate) mod claims;
mod clients;
mod fenced;
mod ids;
mod latch;
mod leaks;
mod liveness;
mod once;
mod overlap;
mod queue;
mod recovery;
mod residue;
mod settings;
mod several;
mod shared;
mod signals;
mod silence;
#[cfg(test)]
mod story;
mod tokens;
mod weather;

use crate::history::History;
use crate::timing::is_safety_only;

/// The result of a checker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    /// A description of what the checker has judged, with numbers.
    pub(crate) judged: String,
    pub(crate) violations: Vec<Violation>,
    /// True if the checker does not judge runs of this sort.
    pub(crate) excused: bool,
}

/// The checkers of the speed of clients. Load on the machine can make them fail.
const OF_SPEED: [&str; 5] = ["liveness", "recovery", "leaks", "idle", "attempts"];

/// The checkers that judge whole runs only. During a run, a call under way would look like a violation.
const OF_WHOLE_RUNS: [&str; 2] = ["lost", "attempts"];

/// True if a violation that this checker finds fails the run.
pub(crate) fn is_judged(name: &str) -> bool {
    !is_safety_only() || !OF_SPEED.contains(&name)
}

/// The verdicts, each with the name and the description of its checker.
pub(crate) type Verdicts = Vec<(&'static str, &'static str, Verdict)>;

/// A violation, with the part of the history that shows it.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) what: String,
    pub(crate) slice: Vec<String>,
}

impl Verdict {
    fn excused() -> Self {
        Self { judged: "not judged beyond the promises".to_owned(), excused: true, ..Self::default() }
    }
}

/// The runs that a checker judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    OfLocks,
    OfTasks,
    All,
}

pub(crate) struct Checker {
    pub(crate) runs: Runs,
    pub(crate) name: &'static str,
    /// A description of the violation.
    pub(crate) about: &'static str,
    pub(crate) check: fn(&History) -> Verdict,
}

const fn of(runs: Runs, name: &'static str, about: &'static str, check: fn(&History) -> Verdict) -> Checker {
    Checker { runs, name, about, check }
}

pub(crate) const ALL: [Checker; 26] = [
    of(Runs::OfLocks, "overlap", "two hold one lock at once", overlap::check),
    of(Runs::OfLocks, "leaders", "two leaders pass their check at one moment", overlap::leaders),
    of(Runs::OfLocks, "readers", "a reader or a writer is beside a writer", shared::readers),
    of(Runs::OfLocks, "permits", "more permits are held than there are, or one is held twice", shared::permits),
    of(Runs::OfLocks, "latch", "a latch opens early or closes again", latch::check),
    of(Runs::OfLocks, "once", "two calls have run one job", once::check),
    of(Runs::OfLocks, "several", "a multi-lock is half held", several::check),
    of(Runs::OfLocks, "store", "the fenced store takes a stale write or refuses a rightful one", fenced::check),
    of(Runs::OfLocks, "tokens", "fencing tokens do not rise from holder to holder", tokens::check),
    of(Runs::OfLocks, "signals", "a loss is not signalled, too late, or where there is none", signals::check),
    of(Runs::OfLocks, "silence", "a lease is extended after its unlock returned", silence::check),
    of(Runs::OfLocks, "liveness", "a lock has no holder though a majority is up", liveness::check),
    of(
        Runs::OfLocks,
        "recovery",
        "a second after a storm a client takes locks at less than half of its pace",
        recovery::check,
    ),
    of(Runs::OfLocks, "settings", "a hold does not keep to its own settings", settings::check),
    of(Runs::OfLocks, "ids", "what is to be unique is not", ids::check),
    of(Runs::OfLocks, "leaks", "a lock that was given up in a partition stands long after", leaks::check),
    of(Runs::OfTasks, "stale", "an end of a claim is accepted though a later claim was there", claims::stale),
    of(Runs::OfTasks, "claims", "two workers count on one task", claims::exclusive),
    of(Runs::OfTasks, "fences", "fencing tokens do not rise from claim to claim", claims::fences),
    of(Runs::OfTasks, "attempts", "the server counts attempts that no claim explains", claims::attempts),
    of(Runs::OfTasks, "lost", "a task that was pushed is not done", queue::lost),
    of(Runs::OfTasks, "left", "tasks or their data are left", queue::left),
    of(Runs::OfTasks, "idle", "a task is due while a thread waits for one", queue::idle),
    of(Runs::All, "residue", "keys, threads or files are left", residue::check),
    of(Runs::All, "clients", "a client ends by itself, with a failure, or not at all", clients::check),
    of(Runs::All, "calls", "a call takes too long or ends as documented nowhere", calls::check),
];

impl Checker {
    fn is_for(&self, history: &History) -> bool {
        self.runs == Runs::All || (self.runs == Runs::OfTasks) == history.has_tasks
    }
}

/// True if one of the named checkers finds a violation in the history so far.
pub(crate) fn find_any(history: &History, named: &[&str]) -> bool {
    let is_named = |name: &str| named.contains(&name) && !OF_WHOLE_RUNS.contains(&name);
    ALL.iter().any(|checker| is_named(checker.name) && !(checker.check)(history).violations.is_empty())
}

pub(crate) fn judge(history: &History) -> Verdicts {
    let of_run = ALL.iter().filter(|checker| checker.is_for(history));
    of_run.map(|checker| (checker.name, checker.about, (checker.check)(history))).collect()
}
