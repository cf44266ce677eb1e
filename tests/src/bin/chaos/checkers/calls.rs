//! Checks that each call ends within its time limit and one node timeout. The outcome must be one that the
//! documentation of the call names.

use std::collections::BTreeMap;

use super::{Verdict, Violation};
use crate::clock::{MS, SEC};
use crate::event::{Op, Outcome};
use crate::history::{Call, History};
use crate::names;
use crate::plan::Kind;
use crate::timing::slack;

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut slowest: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &history.calls {
        let what = match call.end.map(|end| end.0).or_else(|| killed(history, call)) {
            None => Some("never ended".to_owned()),
            Some(end) => {
                let (took, over) = took(history, call, end);
                let worst = slowest.entry(call.op.word()).or_default();
                *worst = (*worst).max(over);
                if over > slack() {
                    let how = if call.end.is_some() { "took" } else { "was killed after" };
                    Some(format!("{how} {} ms, {} more than it may", took / MS, over / MS))
                } else {
                    let outcome = call.end.map(|end| end.1).filter(|o| !is_documented(history, call, end, *o));
                    outcome.map(|outcome| format!("ended with {}", outcome.word()))
                }
            }
        };
        if let Some(what) = what {
            let what = format!("{}: {} of {} {what}", names::of(call.key), call.op.word(), call.session);
            let until = call.end.map(|end| end.0).or_else(|| killed(history, call)).unwrap_or(history.end);
            let slice = history.slice(&[call.session], call.from.saturating_sub(10 * MS), until + 10 * MS);
            verdict.violations.push(Violation { at: call.from, what, slice });
        }
    }
    let worst = slowest.values().max().copied().unwrap_or(0);
    verdict.judged = format!("{} calls; the slowest was {} ms over its limit", history.calls.len(), worst / MS);
    verdict
}

/// The time at which the client of the call was killed. A call without an end is judged as if it had ended then.
fn killed(history: &History, call: &Call) -> Option<u64> {
    history.killed(call.session.client, call.session.life)
}

/// Returns how long the call took until this time, without the time for which its client did not run. The second value
/// is by how much that exceeds the limit of the call.
fn took(history: &History, call: &Call, end: u64) -> (u64, u64) {
    let took = end.saturating_sub(call.from);
    let took = took.saturating_sub(history.stopped(call.session.client, call.from, end));
    // A call without a limit is judged by `liveness`.
    (took, if call.limit == u64::MAX { 0 } else { took.saturating_sub(call.limit) })
}

/// True if the documentation of the call names the outcome. `Config` is permitted only near the time at which a server
/// had the wrong password or role.
fn is_documented(history: &History, call: &Call, end: u64, outcome: Outcome) -> bool {
    use Outcome::{Busy, Config, Lost, Ok, Skipped, Unavailable, Unconfirmed};
    if outcome == Config {
        // A call can still return, once, an error that its connection got shortly before.
        let near = |from: u64, until: u64| from <= end && call.from <= until + 3 * SEC;
        let misuse = |kind: Kind| matches!(kind, Kind::Password | Kind::Role);
        let is_end = matches!(call.op, Op::Unlock | Op::Ack | Op::Retry | Op::Fail);
        return !is_end && history.struck.iter().any(|s| misuse(s.fault.kind) && near(s.from, s.until));
    }
    match call.op {
        Op::Lock | Op::TryLock | Op::TryLockFor => matches!(outcome, Ok | Busy | Unavailable),
        Op::Nested => matches!(outcome, Ok | Lost),
        Op::Unlock | Op::Ack | Op::Retry | Op::Fail => matches!(outcome, Ok | Lost | Unconfirmed),
        // A claim that comes too late for its lease has no fencing token.
        Op::Claim => matches!(outcome, Ok | Busy | Unavailable | Lost),
        Op::Drop | Op::Lead | Op::Resign => outcome == Ok,
        Op::Arrive | Op::Look => matches!(outcome, Ok | Unavailable),
        Op::Await => matches!(outcome, Ok | Busy | Unavailable),
        Op::Once => matches!(outcome, Ok | Busy | Skipped | Lost | Unavailable),
        Op::Extend | Op::Fence => matches!(outcome, Ok | Lost | Unavailable),
        Op::Attribute => matches!(outcome, Ok | Skipped | Lost | Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::event::{Op, Outcome};
    use crate::plan::{Kind, Target};

    fn call(took: u64, outcome: Outcome) -> Story {
        Story::new().call(1, Op::TryLockFor, 100, 200).done(1, Op::TryLockFor, 100 + took, outcome)
    }

    #[test]
    fn calls_in_time_are_good() {
        assert!(check(&call(250, Outcome::Busy).history()).violations.is_empty());
        let stopped = call(2250, Outcome::Ok).struck(Kind::Pause, Target::Client(1), 150, 2150);
        assert!(check(&stopped.history()).violations.is_empty());
    }

    #[test]
    fn a_slow_call_is_found() {
        assert_eq!(check(&call(2250, Outcome::Busy).history()).violations.len(), 1);
        let other = call(2250, Outcome::Ok).struck(Kind::Pause, Target::Client(2), 150, 2150);
        assert_eq!(check(&other.history()).violations.len(), 1);
    }

    #[test]
    fn an_outcome_that_is_documented_nowhere_is_found() {
        assert_eq!(check(&call(50, Outcome::Unconfirmed).history()).violations.len(), 1);
        assert_eq!(check(&call(50, Outcome::Config).history()).violations.len(), 1);
        let refused = call(50, Outcome::Config).struck(Kind::Password, Target::Node(0), 90, 120);
        assert!(check(&refused.history()).violations.is_empty());
    }

    #[test]
    fn a_call_that_never_ends_is_found() {
        let story = Story::new().call(1, Op::Lock, 100, u64::MAX);
        assert_eq!(check(&story.history()).violations.len(), 1);
        let killed = Story::new().call(1, Op::Lock, 100, u64::MAX).struck(Kind::Murder, Target::Client(1), 200, 300);
        assert!(check(&killed.history()).violations.is_empty());
    }

    #[test]
    fn a_call_that_hung_long_before_its_client_was_killed_is_found() {
        let open = || Story::new().call(1, Op::TryLockFor, 100, 200);
        let killed = open().struck(Kind::Murder, Target::Client(1), 60_000, 60_100);
        assert_eq!(check(&killed.history()).violations.len(), 1);
        let soon = open().struck(Kind::Murder, Target::Client(1), 850, 900);
        assert!(check(&soon.history()).violations.is_empty());
    }

    #[test]
    fn a_call_whose_client_stood_still_until_it_was_killed_is_good() {
        let story = Story::new().call(1, Op::TryLockFor, 100, 200).struck(Kind::Pause, Target::Client(1), 150, 9000);
        let story = story.struck(Kind::Murder, Target::Client(1), 9500, 9600);
        assert!(check(&story.history()).violations.is_empty());
    }
}
