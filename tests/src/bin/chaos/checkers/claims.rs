//! Checks the claims of tasks: a task has one claimant at a time, and each claim is known to a worker.
//!
//! Unlike a lock, a task may be claimed again while its claimant does not look. So a claim counts from the return of
//! its call. It ends when a later claim of the task, one with a larger fencing token, has returned.

use std::collections::{BTreeMap, BTreeSet};

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::{Op, Outcome, Session};
use crate::history::{Call, Claim, EndOfClaim, History};
use crate::plan::Kind;

/// The calls of a thread that follow each other within this time count as one wait.
const NEXT_CALL: u64 = 10 * MS;

/// Checks that the server accepts no end of a claim after another worker has claimed the task.
pub(super) fn stale(history: &History) -> Verdict {
    let claims = history.claims_by_task();
    let ends: Vec<(&Claim, EndOfClaim)> =
        history.claims.iter().filter_map(|claim| claim.end.map(|end| (claim, end))).collect();
    let accepted = || ends.iter().filter(|(_, end)| end.is_accepted());
    let is_stale = |(claim, end): &&(&Claim, EndOfClaim)| is_overtaken(&claims, claim, end.from);
    let violation = |(claim, end): &(&Claim, EndOfClaim)| {
        let what = format!("the end by fence {} is accepted, though a later claim was there", claim.fence);
        of_task(history, end.from, &what, claim.task)
    };
    let refused = ends.iter().filter(|(_, end)| end.is_refused()).count();
    Verdict {
        judged: format!("{} ends that were accepted, {refused} refused", accepted().count()),
        violations: accepted().filter(is_stale).map(violation).collect(),
        excused: false,
    }
}

/// Checks that no `check()` of a claim is `Ok` after a later claim has returned.
pub(super) fn exclusive(history: &History) -> Verdict {
    let claims = history.claims_by_task();
    let looks = || history.claims.iter().flat_map(|claim| claim.looks.iter().map(move |look| (claim, *look)));
    let wrong = looks().filter(|(claim, look)| is_overtaken(&claims, claim, *look));
    let violation = |(claim, look): (&Claim, u64)| {
        let what = format!("fence {} counts on the task, though a later claim was there", claim.fence);
        of_task(history, look, &what, claim.task)
    };
    Verdict { violations: wrong.map(violation).collect(), judged: format!("{} looks", looks().count()), excused: false }
}

/// True if a later claim of the task had returned by this time.
fn is_overtaken(claims: &BTreeMap<u64, Vec<&Claim>>, claim: &Claim, by: u64) -> bool {
    claims[&claim.task].iter().any(|later| later.fence > claim.fence && later.until <= by)
}

/// Checks that fencing tokens rise from claim to claim, over all tasks.
pub(super) fn fences(history: &History) -> Verdict {
    let mut begun: Vec<&Claim> = history.claims.iter().collect();
    let mut returned = begun.clone();
    begun.sort_unstable_by_key(|claim| claim.from);
    returned.sort_unstable_by_key(|claim| claim.until);
    let (mut before, mut last, mut verdict) = (returned.into_iter().peekable(), 0, Verdict::default());
    for claim in begun {
        while let Some(earlier) = before.next_if(|earlier| earlier.until <= claim.from) {
            last = last.max(earlier.fence);
        }
        if claim.fence <= last {
            let what = format!("fence {} after {last}", claim.fence);
            verdict.violations.push(of_task(history, claim.until, &what, claim.task));
        }
    }
    verdict.judged = format!("{} claims", history.claims.len());
    verdict
}

/// Checks that the server counts no more attempts than claims were made. A call of unknown outcome may have claimed a
/// task. So may a call during which a worker was paused: it gives a task back that it got too late.
pub(super) fn attempts(history: &History) -> Verdict {
    let mut unexplained: Vec<(u64, &Claim)> = Vec::new();
    for claims in history.claims_by_task().into_values() {
        let more = claims.iter().zip(1..).map(|(claim, known)| claim.attempt.saturating_sub(known)).max();
        unexplained.extend(more.filter(|more| *more > 0).map(|more| (more, claims[0])));
    }
    let all: u64 = unexplained.iter().map(|(more, _)| more).sum();
    let unknown = unknown(history) + in_pauses(history);
    let violation = |(more, first): &(u64, &Claim)| {
        of_task(history, first.until, &format!("{more} attempts more than claims that are told of"), first.task)
    };
    let is_wrong = all > unknown as u64;
    Verdict {
        violations: unexplained.iter().filter(|_| is_wrong).map(violation).collect(),
        judged: format!("{all} attempts that no worker told of, {unknown} calls of unknown end or in a pause"),
        excused: false,
    }
}

/// The number of calls that may have claimed a task which no worker told of.
pub(crate) fn unknown(history: &History) -> usize {
    let known: BTreeSet<Session> = history.claims.iter().map(|claim| claim.session).collect();
    let is_unknown = |call: &&Call| {
        let is_empty = call.end.is_some_and(|(_, outcome)| outcome == Outcome::Busy);
        call.op == Op::Claim && !is_empty && !known.contains(&call.session)
    };
    history.calls.iter().filter(is_unknown).count()
}

/// The number of waits during which a worker was paused.
fn in_pauses(history: &History) -> usize {
    let waits = waits(history);
    let pauses = history.struck.iter().filter(|struck| struck.fault.kind == Kind::Pause);
    let in_pause = |from: u64, until: u64| {
        waits.iter().filter(|spans| spans.iter().any(|span| span.0 < until && from < span.1)).count()
    };
    pauses.map(|pause| in_pause(pause.from, pause.until)).sum()
}

/// The spans in which each thread of a worker waited for a task.
pub(super) fn waits(history: &History) -> Vec<Vec<(u64, u64)>> {
    let mut threads: BTreeMap<Session, Vec<(u64, u64)>> = BTreeMap::new();
    for call in history.calls.iter().filter(|call| call.op == Op::Claim) {
        let Some((until, _)) = call.end else { continue };
        let spans = threads.entry(Session { number: 0, ..call.session }).or_default();
        match spans.last_mut() {
            Some(last) if call.from.saturating_sub(last.1) < NEXT_CALL => last.1 = until,
            _ => spans.push((call.from, until)),
        }
    }
    threads.into_values().collect()
}

pub(super) fn of_task(history: &History, at: u64, what: &str, task: u64) -> Violation {
    Violation { at, what: format!("task {task}: {what}"), slice: history.slice_of_task(task) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::checkers::{ALL, Runs};
    use crate::event::read;
    use crate::history::Struck;
    use crate::plan::{Fault, Target};

    /// A task that is pushed, claimed, retried, claimed again and acknowledged.
    pub(in crate::checkers) const GOOD: &str = "20 c255.0.0.1 0 pushed 1 10 true
5 c0.0.0.1 0 call claim 9
30 c0.0.0.1 0 claimed 1 100 1 5
31 c0.0.0.1 0 return claim ok
35 c0.0.0.1 0 check ok 90
40 c0.0.0.1 0 call retry 9
45 c0.0.0.1 0 return retry ok
46 c0.0.0.2 0 call claim 9
50 c0.0.0.2 0 claimed 1 110 2 46
51 c0.0.0.2 0 return claim ok
52 c0.0.0.2 0 check ok 90
60 c0.0.0.2 0 call ack 9
70 c0.0.0.2 0 return ack ok
";

    pub(in crate::checkers) fn history(log: &str) -> History {
        let history = History { has_tasks: true, clients: 1, ..History::default() };
        history.with_events(read(log))
    }

    /// The names of the checkers of tasks that find a violation.
    pub(in crate::checkers) fn names(history: &History) -> Vec<&'static str> {
        let of_tasks = ALL.iter().filter(|checker| checker.runs == Runs::OfTasks);
        of_tasks.filter(|checker| !(checker.check)(history).violations.is_empty()).map(|checker| checker.name).collect()
    }

    pub(in crate::checkers) fn found(log: &str) -> Vec<&'static str> {
        names(&history(log))
    }

    pub(in crate::checkers) fn changed(changes: &[(&str, &str)]) -> String {
        changes.iter().fold(GOOD.to_owned(), |log, (from, to)| {
            assert!(log.contains(from), "{from}");
            log.replace(from, to)
        })
    }

    pub(in crate::checkers) fn with_fault(log: &str, kind: Kind, from: u64, until: u64) -> History {
        let fault = Fault { at: 0, length: 0, target: Target::Client(1), kind, command: "", each: false, amount: 0 };
        let mut history = history(log);
        history.struck.push(Struck { fault, from, until, hits: 1 });
        history
    }

    pub(in crate::checkers) const NONE: [&str; 0] = [];

    #[test]
    fn a_good_run_is_good() {
        assert_eq!(found(GOOD), NONE);
        assert_eq!(history(GOOD).slice_of_task(1).len(), 13);
        assert_eq!(unknown(&history(GOOD)), 0);
    }

    /// The first claim ends with these lines in place of its retry.
    fn first_end(lines: &str) -> Vec<&'static str> {
        found(&changed(&[("40 c0.0.0.1 0 call retry 9\n", ""), ("45 c0.0.0.1 0 return retry ok\n", lines)]))
    }

    #[test]
    fn a_stale_end_is_found() {
        let end = |from: u64, outcome: &str| {
            first_end(&format!("{from} c0.0.0.1 0 call ack 9\n58 c0.0.0.1 0 return ack {outcome}\n"))
        };
        assert_eq!(end(55, "ok"), ["stale"]);
        assert_eq!(end(55, "lost"), NONE);
        assert_eq!(end(48, "ok"), NONE, "the calls cross");
        assert_eq!(first_end("55 c0.0.0.1 0 call retry 9\n"), NONE, "it is not known whether it was accepted");
        assert_eq!(first_end("55 c0.0.0.1 0 call drop 9\n58 c0.0.0.1 0 return drop ok\n"), NONE, "nor is it of a drop");
    }

    #[test]
    fn two_claimants_at_once_are_found() {
        assert_eq!(found(&changed(&[("35 c0.0.0.1 0 check", "51 c0.0.0.1 0 check")])), ["claims"]);
        assert_eq!(found(&changed(&[("35 c0.0.0.1 0 check", "49 c0.0.0.1 0 check")])), NONE);
        assert_eq!(found(&changed(&[("35 c0.0.0.1 0 check ok 90", "51 c0.0.0.1 0 check lost")])), NONE);
    }

    #[test]
    fn fences_that_do_not_rise_are_found() {
        assert!(found(&changed(&[("1 110 2", "1 90 2")])).contains(&"fences"));
    }

    #[test]
    fn attempts_that_no_claim_explains_are_found() {
        let more = changed(&[("1 110 2", "1 110 3")]);
        assert_eq!(found(&more), ["attempts"]);
        assert_eq!(found(&(more.clone() + "60 c0.0.3.1 0 call claim 9\n")), NONE, "of unknown end");
        let failed = "60 c0.0.3.1 0 call claim 9\n61 c0.0.3.1 0 return claim ";
        assert_eq!(found(&format!("{more}{failed}unavailable\n")), NONE, "of unknown end");
        assert_eq!(found(&format!("{more}{failed}busy\n")), ["attempts"], "it claimed nothing");
        assert_eq!(names(&with_fault(&more, Kind::Pause, 24, 28)), NONE);
        assert_eq!(names(&with_fault(&more, Kind::Stop, 24, 28)), ["attempts"]);
    }
}
