//! The checkers. Each checker judges a history. It reports what it has judged, and the violations.

mod calls;
mod clients;
mod counter;
mod fenced;
mod ids;
mod latch;
mod leaks;
mod liveness;
mod once;
mod overlap;
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
const OF_SPEED: [&str; 3] = ["liveness", "recovery", "leaks"];

/// True if a violation that this checker finds fails the run.
pub(crate) fn is_judged(name: &str) -> bool {
    !is_safety_only() || !OF_SPEED.contains(&name)
}

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

type Checker = fn(&History) -> Verdict;

/// All checkers: the name, a description of the violation, and the function.
pub(crate) const ALL: [(&str, &str, Checker); 20] = [
    ("overlap", "two hold one lock at once", overlap::check),
    ("leaders", "two leaders pass their check at one moment", overlap::leaders),
    ("readers", "a reader or a writer is beside a writer", shared::readers),
    ("permits", "more permits are held than there are, or one is held twice", shared::permits),
    ("latch", "a latch opens early or closes again", latch::check),
    ("once", "two calls have run one job", once::check),
    ("several", "a multi-lock is half held", several::check),
    ("counter", "an update of the unprotected counter is lost", counter::check),
    ("store", "the fenced store takes a stale write or refuses a rightful one", fenced::check),
    ("tokens", "fencing tokens do not rise from holder to holder", tokens::check),
    ("signals", "a loss is not signalled, too late, or where there is none", signals::check),
    ("silence", "a lease is extended after its unlock returned", silence::check),
    ("liveness", "a lock has no holder though a majority is up", liveness::check),
    ("recovery", "a second after a storm a client takes locks at less than half of its pace", recovery::check),
    ("settings", "a hold does not keep to its own settings", settings::check),
    ("ids", "what is to be unique is not", ids::check),
    ("leaks", "a lock that was given up in a partition stands long after", leaks::check),
    ("residue", "keys, threads or files are left", residue::check),
    ("clients", "a client ends by itself, with a failure, or not at all", clients::check),
    ("calls", "a call takes too long or ends as documented nowhere", calls::check),
];

/// True if one of the named checkers finds a violation.
pub(crate) fn find_any(history: &History, named: &[&str]) -> bool {
    ALL.iter().any(|(name, _, check)| named.contains(name) && !check(history).violations.is_empty())
}

pub(crate) fn judge(history: &History) -> Vec<(&'static str, &'static str, Verdict)> {
    ALL.iter().map(|&(name, about, check)| (name, about, check(history))).collect()
}
