//! Checks exclusion: no two holders have one lock at the same time.
//!
//! A hold counts from the return of its acquire until the end of what its checks promised. The unlock ends it earlier.

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{History, Hold};
use crate::names::{self, LEADER};

pub(super) fn check(history: &History) -> Verdict {
    apart(history, names::exclusive(history.keys), Hold::span)
}

/// Checks that no two leaders lead at the same time. A leader counts from its first successful check to its last one. A
/// new leader can follow as soon as the old one resigns, even if the last check promised more time.
pub(super) fn leaders(history: &History) -> Verdict {
    let first = |hold: &Hold| hold.looks.iter().filter(|look| look.until.is_some()).map(|look| look.at).min();
    apart(history, [LEADER], |hold| first(hold).zip(hold.last_look()))
}

/// Checks that these spans of holds do not overlap.
fn apart(
    history: &History,
    keys: impl IntoIterator<Item = usize>,
    span: impl Fn(&Hold) -> Option<(u64, u64)>,
) -> Verdict {
    if history.beyond {
        return Verdict::excused();
    }
    let mut verdict = Verdict::default();
    let mut judged = 0;
    for key in keys {
        let mut spans: Vec<(u64, u64, &Hold)> =
            history.holds_of(key).filter_map(|hold| span(hold).map(|(from, until)| (from, until, hold))).collect();
        spans.sort_by_key(|span| span.0);
        judged += spans.len();
        let mut longest: Option<(u64, u64, &Hold)> = None;
        for span in spans {
            if let Some(before) = longest.filter(|before| before.1 > span.0) {
                verdict.violations.push(violation(history, before, span));
            }
            longest = Some(longest.filter(|before| before.1 >= span.1).unwrap_or(span));
        }
    }
    verdict.judged = format!("{judged} holds, by their own looks");
    verdict
}

fn violation(history: &History, a: (u64, u64, &Hold), b: (u64, u64, &Hold)) -> Violation {
    let both = a.1.min(b.1) - b.0;
    let what = format!(
        "{} was held by {} until {} and by {} from {}: {} us of both",
        names::of(b.2.key),
        a.2.session,
        history.seconds(a.1).trim(),
        b.2.session,
        history.seconds(b.0).trim(),
        both / 1000,
    );
    let sessions = [a.2.session, b.2.session];
    Violation { at: b.0, what, slice: history.slice(&sessions, a.0.saturating_sub(10 * MS), b.1 + 100 * MS) }
}

#[cfg(test)]
mod tests {
    use super::{check, leaders};
    use crate::checkers::story::Story;
    use crate::names::LEADER;

    #[test]
    fn one_after_the_other_is_good() {
        let story = Story::new().hold(1, 10, &[(20, 90)]).unlock(1, 50).hold(2, 50, &[(60, 150)]);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_paused_holder_that_does_not_look_is_good() {
        let story = Story::new().hold(1, 10, &[(20, 90)]).hold(2, 95, &[(100, 150)]).lost(1, 120);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_holder_that_is_told_of_the_loss_holds_no_more() {
        let story = Story::new().hold(1, 10, &[(20, 90)]).lost(1, 40).hold(2, 45, &[(50, 99)]);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_promise_that_overlaps_is_found() {
        let story = Story::new().hold(1, 10, &[(20, 90)]).hold(2, 80, &[(85, 150)]);
        let violations = check(&story.history()).violations;
        assert_eq!(violations.len(), 1);
        assert!(violations[0].what.contains("c1.0.0.1") && violations[0].slice.len() > 3, "{violations:?}");
    }

    #[test]
    fn a_long_hold_is_seen_behind_short_ones() {
        let story =
            Story::new().hold(1, 10, &[(20, 200)]).hold(2, 30, &[(31, 32)]).unlock(2, 40).hold(3, 60, &[(61, 99)]);
        assert_eq!(check(&story.history()).violations.len(), 2);
    }

    #[test]
    fn leaders_are_judged_from_look_to_look() {
        let first = || Story::new().of(LEADER).hold(1, 10, &[(20, 120), (40, 140)]).lost(1, 70);
        assert!(leaders(&first().hold(2, 45, &[(50, 150)]).history()).violations.is_empty());
        assert_eq!(leaders(&first().hold(2, 25, &[(30, 130)]).history()).violations.len(), 1);
    }
}
