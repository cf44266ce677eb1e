//! Checks the counter that only the lock protects: each version has at most one successor.
//!
//! A write counts if the last check before it promised the lock until the end of the write. Other writes are excused,
//! because their client was stopped for too long.

use std::collections::HashMap;

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{History, Write};
use crate::names;

pub(super) fn check(history: &History) -> Verdict {
    if history.beyond {
        return Verdict::excused();
    }
    let mut verdict = Verdict::default();
    let mut followers: HashMap<(usize, u64), &Write> = HashMap::new();
    let holds: HashMap<_, _> = history.holds.iter().map(|hold| (hold.session, hold)).collect();
    let (mut judged, mut excused) = (0, 0);
    for write in &history.writes {
        if !holds.get(&write.session).is_some_and(|hold| hold.was_promised(write.begin, write.end)) {
            excused += 1;
            continue;
        }
        judged += 1;
        if let Some(other) = followers.insert((write.key, write.parent), write) {
            let what = format!(
                "{}: {} and {} both read version {} and wrote over each other",
                names::of(write.key),
                other.session,
                write.session,
                write.parent
            );
            let (from, until) =
                (other.begin.min(write.begin).saturating_sub(100 * MS), other.end.max(write.end) + 50 * MS);
            let slice = history.slice(&[other.session, write.session], from, until);
            verdict.violations.push(Violation { at: write.begin, what, slice });
        }
    }
    verdict.judged = format!("{judged} updates, {excused} excused for a pause beyond the lease");
    verdict
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;

    #[test]
    fn a_chain_of_updates_is_good() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).wrote(1, 130, 1, 0).unlock(1, 150);
        let story = story.hold(2, 150, &[(160, 250)]).wrote(2, 170, 2, 1);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn two_updates_of_one_version_are_found() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).wrote(1, 130, 1, 0);
        let story = story.hold(2, 112, &[(115, 250)]).wrote(2, 131, 2, 0);
        assert_eq!(check(&story.history()).violations.len(), 1);
    }

    #[test]
    fn a_process_that_was_paused_is_excused() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).hold(2, 200, &[(201, 300)]);
        let story = story.wrote(2, 210, 2, 0).wrote(1, 220, 1, 0);
        let verdict = check(&story.history());
        assert!(verdict.violations.is_empty() && verdict.judged.contains("1 excused"), "{verdict:?}");
    }
}
