//! Checks the queue of tasks: a task that was pushed is claimed in time, and done once its push returned.

use std::collections::BTreeMap;

use super::claims::{of_task, waits};
use super::{Verdict, Violation};
use crate::clock::{MS, SEC};
use crate::history::History;

/// The longest time for which a task may be due while a thread waits, on a busy machine too.
const MOST_IDLE: u64 = 1500 * MS;
/// The time after a fault in which idle workers are not judged.
const UNREST: u64 = 4 * SEC;

/// Checks that a due task is claimed while threads of workers wait and there are no faults.
pub(super) fn idle(history: &History) -> Verdict {
    let (claims, waits) = (history.claims_by_task(), waits(history));
    let is_calm = |at: u64| history.struck.iter().all(|s| at + MOST_IDLE < s.from || s.until + UNREST < at);
    let has_idle = |at: u64| {
        let covers = |(from, until): &(u64, u64)| *from <= at + MOST_IDLE / 10 && *until >= at + MOST_IDLE;
        waits.iter().flatten().any(covers)
    };
    let (mut judged, mut verdict) = (0, Verdict::default());
    for push in history.pushes.iter().filter(|push| push.is_fresh && is_calm(push.until)) {
        let claimed = claims.get(&push.task).and_then(|claims| claims.iter().map(|claim| claim.until).min());
        let Some(claimed) = claimed else { continue };
        judged += 1;
        if claimed > push.until + MOST_IDLE && has_idle(push.until) {
            let waited = (claimed - push.until) / MS;
            let what = format!("it was due for {waited} ms while a thread waited for a task");
            verdict.violations.push(of_task(history, push.until, &what, push.task));
        }
    }
    verdict.judged = format!("{judged} tasks in calm weather");
    verdict
}

/// Checks that each task whose push returned `Ok` has a claim that ended it.
pub(super) fn lost(history: &History) -> Verdict {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for claim in &history.claims {
        if let Some(end) = claim.end.filter(|end| end.is_last() && !end.is_refused()) {
            let until = last.entry(claim.task).or_default();
            *until = end.until().max(*until);
        }
    }
    let forgotten = history.pushes.iter().filter(|push| last.get(&push.task).is_none_or(|until| *until < push.from));
    let what = "it was pushed, and no accepted end follows";
    Verdict {
        violations: forgotten.map(|push| of_task(history, push.from, what, push.task)).collect(),
        judged: format!("{} pushes", history.pushes.len()),
        excused: false,
    }
}

/// Checks that no data of a task is left on the server at the end.
pub(super) fn left(history: &History) -> Verdict {
    let Some(left) = history.left_tasks else { return Verdict::default() };
    let is_clean = left.is_done && left.tasks == 0 && left.claims == 0;
    // A dead task has a body and a state.
    let is_whole = left.fields == 2 * left.dead;
    let wrong = (!is_clean || !is_whole).then(|| format!("{left:?}"));
    let violation = |what| Violation { at: history.end, what, slice: Vec::new() };
    Verdict {
        judged: format!("{} dead", left.dead),
        violations: wrong.map(violation).into_iter().collect(),
        excused: false,
    }
}

#[cfg(test)]
mod tests {
    use super::left;
    use crate::checkers::claims::tests::{GOOD, NONE, changed, found, history, names, with_fault};
    use crate::clock::MS;
    use crate::history::{History, LeftTasks};
    use crate::plan::Kind;

    #[test]
    fn lost_tasks_are_found() {
        assert_eq!(found(&changed(&[("return ack ok", "return ack lost")])), ["lost"]);
        assert_eq!(found(&changed(&[("return ack ok", "return ack unconfirmed")])), NONE);
        assert_eq!(found(&changed(&[("70 c0.0.0.2 0 return ack ok\n", "")])), NONE, "it may have been accepted");
        assert_eq!(found(&format!("{GOOD}85 c255.0.0.2 0 pushed 1 80 true\n")), ["lost"], "pushed once more");
        assert_eq!(found(&format!("{GOOD}58 c255.0.0.2 0 pushed 1 55 false\n")), NONE);
    }

    #[test]
    fn what_is_left_is_found() {
        let is_found = |data| !left(&History { left_tasks: Some(data), ..history(GOOD) }).violations.is_empty();
        let good = LeftTasks { is_done: true, dead: 2, fields: 4, ..LeftTasks::default() };
        assert!(!is_found(good));
        for bad in [
            LeftTasks { is_done: false, ..good },
            LeftTasks { tasks: 1, ..good },
            LeftTasks { claims: 1, ..good },
            LeftTasks { fields: 5, ..good },
        ] {
            assert!(is_found(bad), "{bad:?}");
        }
    }

    /// The log of a task that was pushed at 10 ms and claimed at `claimed`. A thread waited from the begin to `idle`.
    fn waited(claimed: u64, idle: u64) -> String {
        let ms = |n: u64| n * MS;
        let lines = [
            format!("{} c255.0.0.1 0 pushed 1 {} true", ms(10), ms(9)),
            format!("{} c0.0.0.1 0 call claim 9", ms(claimed - 1)),
            format!("{} c0.0.0.1 0 claimed 1 100 1 {}", ms(claimed), ms(claimed - 1)),
            format!("{} c0.0.0.1 0 return claim ok", ms(claimed)),
            format!("{} c0.0.0.1 0 call ack 9", ms(claimed)),
            format!("{} c0.0.0.1 0 return ack ok", ms(claimed + 1)),
            "1 c0.0.1.1 0 call claim 9".to_owned(),
            format!("{} c0.0.1.1 0 return claim busy", ms(idle)),
        ];
        lines.join("\n") + "\n"
    }

    #[test]
    fn a_task_that_waits_beside_idle_threads_is_found() {
        assert_eq!(found(&waited(1600, 1600)), ["idle"]);
        assert_eq!(found(&waited(1400, 1600)), NONE);
        assert_eq!(found(&waited(1600, 1300)), NONE, "no thread waited all the time");
        assert_eq!(names(&with_fault(&waited(1600, 1600), Kind::Reset, 1000, 2000)), NONE, "not calm");
    }
}
