//! The checkers of a run with workers.

use std::collections::BTreeMap;

use super::history::{Claim, History, Outcome};
use crate::clock::{MS, SEC};
use crate::timing::is_safety_only;

/// The result of a checker.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) name: &'static str,
    /// A description of what the checker has judged, with numbers.
    pub(crate) judged: String,
    pub(crate) violations: Vec<Violation>,
}

impl Verdict {
    /// True if a violation of this checker fails the run. Load decides how soon an idle worker claims a task, and whether
    /// a claim comes too late for its lease. So `idle` and `attempts` do not count with `--safety`.
    pub(crate) fn is_judged(&self) -> bool {
        !is_safety_only() || !["idle", "attempts"].contains(&self.name)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) what: String,
    /// The task whose events show the violation.
    pub(crate) task: Option<u64>,
}

pub(crate) type Verdicts = Vec<Verdict>;
type Found = (String, Vec<Violation>);
type Checker = fn(&History) -> Found;

const ALL: [(&str, Checker); 8] = [
    ("stale", stale),
    ("overlap", overlap),
    ("fences", fences),
    ("attempts", attempts),
    ("lost", lost),
    ("left", left),
    ("idle", idle),
    ("workers", workers),
];

pub(crate) const NAMES: [&str; 8] = ["stale", "overlap", "fences", "attempts", "lost", "left", "idle", "workers"];

/// The longest time for which a task may be due while a thread waits, on a busy machine too.
const MOST_IDLE: u64 = 1500 * MS;
/// The time after a fault in which idle workers are not judged.
const UNREST: u64 = 4 * SEC;

pub(crate) fn judge(history: &History) -> Verdicts {
    let verdict = |(name, check): (&'static str, Checker)| {
        let (judged, violations) = check(history);
        Verdict { name, judged, violations }
    };
    ALL.into_iter().map(verdict).collect()
}

/// True if one of the named checkers finds a violation in the history so far.
pub(crate) fn find_any(history: &History, named: &[&str]) -> bool {
    // These checkers need the whole run. A call under way is not lost yet.
    let is_early = |name: &str| !["lost", "left", "workers", "attempts"].contains(&name);
    ALL.iter().any(|(name, check)| named.contains(name) && is_early(name) && !check(history).1.is_empty())
}

/// The claims of each task, sorted by fencing token.
fn by_task(history: &History) -> BTreeMap<u64, Vec<&Claim>> {
    let mut tasks: BTreeMap<u64, Vec<&Claim>> = BTreeMap::new();
    for claim in &history.claims {
        tasks.entry(claim.task).or_default().push(claim);
    }
    for claims in tasks.values_mut() {
        claims.sort_unstable_by_key(|claim| claim.fence);
    }
    tasks
}

/// The first later claim of the task that had returned by this time.
fn overtaken<'a>(claims: &BTreeMap<u64, Vec<&'a Claim>>, task: u64, fence: u64, by: u64) -> Option<&'a Claim> {
    claims.get(&task)?.iter().copied().find(|claim| claim.fence > fence && claim.to <= by)
}

/// Checks that the server accepts no end of a claim after another worker has claimed the task.
fn stale(history: &History) -> Found {
    let claims = by_task(history);
    let accepted = || history.ends.iter().filter(|end| end.outcome == Outcome::Accepted);
    let refused = history.ends.iter().filter(|end| end.outcome == Outcome::Refused).count();
    let is_stale = |end: &&super::history::End| overtaken(&claims, end.task, end.fence, end.from).is_some();
    let violation = |end: &super::history::End| Violation {
        at: end.from,
        what: format!("the end by fence {} is accepted, though a later claim was there", end.fence),
        task: Some(end.task),
    };
    let judged = format!("{} ends that were accepted, {refused} refused", accepted().count());
    (judged, accepted().filter(is_stale).map(violation).collect())
}

/// Checks that a task has one claimant at a time: no `check()` returns `Ok` after a later claim has returned.
fn overlap(history: &History) -> Found {
    let claims = by_task(history);
    let is_wrong = |check: &&super::history::Check| overtaken(&claims, check.task, check.fence, check.from).is_some();
    let wrong = history.checks.iter().filter(is_wrong).map(|check| Violation {
        at: check.from,
        what: format!("fence {} counts on the task, though a later claim was there", check.fence),
        task: Some(check.task),
    });
    (format!("{} looks", history.checks.len()), wrong.collect())
}

/// Checks that fencing tokens rise from claim to claim, over all tasks.
fn fences(history: &History) -> Found {
    let mut begun: Vec<&Claim> = history.claims.iter().collect();
    let mut returned = begun.clone();
    begun.sort_unstable_by_key(|claim| claim.from);
    returned.sort_unstable_by_key(|claim| claim.to);
    let (mut before, mut last, mut wrong) = (returned.into_iter().peekable(), 0, Vec::new());
    for claim in begun {
        while let Some(earlier) = before.next_if(|earlier| earlier.to <= claim.from) {
            last = last.max(earlier.fence);
        }
        if claim.fence <= last {
            let what = format!("fence {} after {last}", claim.fence);
            wrong.push(Violation { at: claim.to, what, task: Some(claim.task) });
        }
    }
    (format!("{} claims", history.claims.len()), wrong)
}

/// Checks that the server counts no more attempts than claims were made. A call of unknown outcome may have claimed a
/// task. So may a call during which its worker was paused: it gives a task back that it got too late.
fn attempts(history: &History) -> Found {
    let mut unexplained = Vec::new();
    for (task, claims) in by_task(history) {
        let more = claims.iter().enumerate().map(|(earlier, claim)| claim.attempt.saturating_sub(earlier as u64 + 1));
        if let Some(more) = more.max().filter(|more| *more > 0) {
            unexplained.push((more, task, claims[0].to));
        }
    }
    let all: u64 = unexplained.iter().map(|(more, ..)| more).sum();
    let pauses = history.faults.iter().filter(|(.., what)| what.starts_with("pause "));
    let overlaps = |from: u64, to: u64| move |span: &(u64, u64)| span.0 < to && from < span.1;
    let in_pause = |(from, to, _): &(u64, u64, String)| {
        history.waits.values().filter(|spans| spans.iter().any(overlaps(*from, *to))).count()
    };
    let unknown = history.unknown + pauses.map(in_pause).sum::<usize>();
    let judged = format!("{all} attempts that no worker told of, {unknown} calls of unknown end or in a pause");
    let is_wrong = all > unknown as u64;
    let violation = |(more, task, at): (u64, u64, u64)| Violation {
        at,
        what: format!("{more} attempts more than claims that are told of"),
        task: Some(task),
    };
    (judged, unexplained.into_iter().filter(|_| is_wrong).map(violation).collect())
}

/// Checks that each task whose push returned `Ok` has a claim that ended it.
fn lost(history: &History) -> Found {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for end in history.ends.iter().filter(|end| end.is_last && end.outcome != Outcome::Refused) {
        let until = last.entry(end.task).or_default();
        *until = (*until).max(end.to);
    }
    let is_lost = |push: &&super::history::Push| last.get(&push.task).is_none_or(|to| *to < push.from);
    let violation = |push: &super::history::Push| Violation {
        at: push.from,
        what: "the task was pushed, and no accepted end follows".to_owned(),
        task: Some(push.task),
    };
    (format!("{} pushes", history.pushes.len()), history.pushes.iter().filter(is_lost).map(violation).collect())
}

/// Checks that no data of a task is left on the server at the end.
fn left(history: &History) -> Found {
    let Some(left) = history.left else { return ("the run is not over".to_owned(), Vec::new()) };
    let is_clean = left.is_done && left.tasks == 0 && left.claims == 0;
    // A dead task has a body and a state.
    let is_whole = left.fields == 2 * left.dead;
    let wrong = Violation { at: history.end, what: format!("{left:?}"), task: None };
    (format!("{} dead", left.dead), if is_clean && is_whole { Vec::new() } else { vec![wrong] })
}

/// Checks that a due task is claimed while threads of workers wait and there are no faults.
fn idle(history: &History) -> Found {
    let claims = by_task(history);
    let is_calm = |at: u64| history.faults.iter().all(|(from, to, _)| at + MOST_IDLE < *from || *to + UNREST < at);
    let has_idle = |at: u64| {
        let covers = |(from, to): &(u64, u64)| *from <= at + MOST_IDLE / 10 && *to >= at + MOST_IDLE;
        history.waits.values().any(|waits| waits.iter().any(covers))
    };
    let (mut judged, mut wrong) = (0, Vec::new());
    for push in history.pushes.iter().filter(|push| push.is_fresh && is_calm(push.to)) {
        let claimed = claims.get(&push.task).and_then(|claims| claims.iter().map(|claim| claim.to).min());
        let Some(claimed) = claimed else { continue };
        judged += 1;
        if claimed > push.to + MOST_IDLE && has_idle(push.to) {
            let waited = (claimed - push.to) / MS;
            let what = format!("the task was due for {waited} ms while a thread waited for one");
            wrong.push(Violation { at: push.to, what, task: Some(push.task) });
        }
    }
    (format!("{judged} tasks in calm weather"), wrong)
}

/// Checks that no worker ended early, failed, or ended late.
fn workers(history: &History) -> Found {
    let wrong = |(at, how): &(u64, String)| Violation { at: *at, what: how.clone(), task: None };
    (format!("{} that did not end as they must", history.fallen.len()), history.fallen.iter().map(wrong).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::history::Left;

    /// A task that is pushed, claimed, retried, claimed again and acknowledged.
    const GOOD: &str = "push 1 10 20 due New\nwait 0 5\nclaim 0 5 30 1 100 1\ncheck 1 100 35\nending 1 100 40 retry\n\
        ended 1 100 40 45 retry ok\nwait 0 46\nclaim 0 46 50 1 110 2\ncheck 1 110 52\nending 1 110 60 ack\nended 1 110 60 70 ack ok\n";

    fn read(text: &str) -> History {
        let mut history = History::default();
        history.add("c0.log", text);
        history.left = Some(Left { is_done: true, ..Left::default() });
        history
    }

    /// The names of the checkers that find a violation in this log.
    fn found(text: &str) -> Vec<&'static str> {
        judge(&read(text)).into_iter().filter(|verdict| !verdict.violations.is_empty()).map(|v| v.name).collect()
    }

    fn changed(from: &str, to: &str) -> Vec<&'static str> {
        assert!(GOOD.contains(from), "{from}");
        found(&GOOD.replace(from, to))
    }

    #[test]
    fn a_good_run_is_good() {
        assert_eq!(NAMES, ALL.map(|(name, _)| name));
        assert_eq!(found(GOOD), Vec::<&str>::new());
        assert_eq!(read(GOOD).slice(1).len(), 9);
    }

    #[test]
    fn a_stale_end_is_found() {
        assert_eq!(
            changed("ended 1 100 40 45 retry ok\n", ""),
            Vec::<&str>::new(),
            "it is not known whether it was accepted"
        );
        let late = "ending 1 100 55 ack\nended 1 100 55 58 ack ok\n";
        assert_eq!(changed("ending 1 100 40 retry\nended 1 100 40 45 retry ok\n", late), ["stale"]);
        let refused = "ending 1 100 55 ack\nended 1 100 55 58 ack lost\n";
        assert_eq!(changed("ending 1 100 40 retry\nended 1 100 40 45 retry ok\n", refused), Vec::<&str>::new());
        let crossing = "ending 1 100 48 ack\nended 1 100 48 58 ack ok\n";
        assert_eq!(changed("ending 1 100 40 retry\nended 1 100 40 45 retry ok\n", crossing), Vec::<&str>::new());
    }

    #[test]
    fn two_claimants_at_once_are_found() {
        assert_eq!(changed("check 1 100 35", "check 1 100 51"), ["overlap"]);
        assert_eq!(changed("check 1 100 35", "check 1 100 49"), Vec::<&str>::new());
    }

    #[test]
    fn fences_that_do_not_rise_are_found() {
        let smaller = GOOD.replace(" 110 2", " 90 2").replace(" 110 ", " 90 ");
        assert!(found(&smaller).contains(&"fences"));
    }

    #[test]
    fn attempts_that_no_claim_explains_are_found() {
        assert_eq!(changed("1 110 2", "1 110 3"), ["attempts"]);
        let more = GOOD.replace("1 110 2", "1 110 3");
        assert_eq!(found(&(more.clone() + "wait 3 60\n")), Vec::<&str>::new(), "of unknown end");
        assert_eq!(found(&(more.clone() + "fault 24 28 pause c1\n")), Vec::<&str>::new(), "in a pause");
        assert_eq!(found(&(more + "fault 24 28 stop\n")), ["attempts"]);
    }

    #[test]
    fn lost_tasks_are_found() {
        assert_eq!(changed("60 70 ack ok", "60 70 ack lost"), ["lost"]);
        assert_eq!(changed("60 70 ack ok", "60 70 ack unconfirmed"), Vec::<&str>::new());
        assert_eq!(found(&(GOOD.to_owned() + "push 1 80 85 due New\n")), ["lost"], "pushed once more");
        assert_eq!(found(&(GOOD.to_owned() + "push 1 55 58 later Again\n")), Vec::<&str>::new());
    }

    #[test]
    fn what_is_left_is_found() {
        let with = |left: Left| {
            let history = History { left: Some(left), ..read(GOOD) };
            !left_of(&history).is_empty()
        };
        let good = Left { is_done: true, dead: 2, fields: 4, ..Left::default() };
        assert!(!with(good));
        for bad in [
            Left { is_done: false, ..good },
            Left { tasks: 1, ..good },
            Left { claims: 1, ..good },
            Left { fields: 5, ..good },
        ] {
            assert!(with(bad), "{bad:?}");
        }
    }

    fn left_of(history: &History) -> Vec<Violation> {
        left(history).1
    }

    #[test]
    fn a_task_that_waits_beside_idle_threads_is_found() {
        let ms = |n: u64| n * MS;
        let story = |claimed: u64, idle_until: u64, rest: &str| {
            format!(
                "push 1 {} {} due New\nclaim 0 {} {} 1 100 1\nending 1 100 {} ack\nended 1 100 {} {} ack ok\nnone 1 1 {}\n{rest}",
                ms(9),
                ms(10),
                ms(claimed - 1),
                ms(claimed),
                ms(claimed),
                ms(claimed),
                ms(claimed + 1),
                ms(idle_until)
            )
        };
        assert_eq!(found(&story(1600, 1600, "")), ["idle"]);
        assert_eq!(found(&story(1400, 1600, "")), Vec::<&str>::new());
        assert_eq!(found(&story(1600, 1300, "")), Vec::<&str>::new(), "no thread waited all the time");
        assert_eq!(found(&story(1600, 1600, "fault 1000 2000 reset\n")), Vec::<&str>::new(), "not calm");
    }

    #[test]
    fn workers_that_fall_are_found() {
        assert_eq!(found(&(GOOD.to_owned() + "fallen 9 c1 ended with signal 6\n")), ["workers"]);
    }
}
