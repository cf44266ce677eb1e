//! Checks that no client extends a lease after its unlock has returned.

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::Outcome;
use crate::history::{History, Hold};
use crate::names;
use crate::timing::slack;

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let ended = |hold: &&Hold| hold.unlocked.is_some_and(|(_, outcome)| outcome == Outcome::Ok);
    let mut judged = 0;
    // A lock that is handed over within a process keeps its token, and readers of a process can share a token. So the
    // hold that ends last counts.
    let end = |hold: &Hold| hold.unlocked.map_or(u64::MAX, |(end, _)| end);
    let mut last: std::collections::HashMap<&str, &Hold> = std::collections::HashMap::new();
    for hold in &history.holds {
        let Some(token) = &hold.token else { continue };
        if last.get(token.as_str()).is_none_or(|other| end(other) <= end(hold)) {
            last.insert(token, hold);
        }
    }
    for (token, hold) in last {
        let Some((end, _)) = Some(hold).filter(ended).and_then(|hold| hold.unlocked) else { continue };
        judged += 1;
        // Earlier requests may still be on their way.
        let Some(&sent) = history.extended.get(token).filter(|sent| **sent > end + slack()) else { continue };
        let what = format!(
            "{}: {} unlocked, and its lease was extended {} ms later",
            names::of(hold.key),
            hold.session,
            (sent - end) / MS
        );
        let slice = history.slice(&[hold.session], end.saturating_sub(500 * MS), sent);
        verdict.violations.push(Violation { at: sent, what, slice });
    }
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict.judged = format!("{judged} releases");
    verdict
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::clock::MS;

    #[test]
    fn extensions_after_the_unlock_are_found() {
        for (at, found) in [(140, 0), (700, 0), (900, 1)] {
            let mut story = Story::new().hold(1, 110, &[(120, 190)]).unlock(1, 150);
            story.history.extended.insert("a:token1".into(), at * MS);
            assert_eq!(check(&story.history()).violations.len(), found, "{at}");
        }
    }
}
