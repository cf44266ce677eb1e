//! Checks the fenced store. Once the store has accepted a write of a later holder, it must refuse all writes of earlier
//! holders. It must not refuse a write of a holder whose checks before and after the write found the lock held.

use std::collections::HashMap;

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::Session;
use crate::history::{History, Hold, Stored};
use crate::names;

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let holds: HashMap<Session, &Hold> = history.holds.iter().map(|hold| (hold.session, hold)).collect();
    let (mut taken, mut refused) = (0, 0);
    // The accepted write of the holder that acquired the lock last, for each key.
    let mut latest: HashMap<usize, &Hold> = HashMap::new();
    for write in &history.stored {
        let Some(&hold) = holds.get(&write.session) else { continue };
        if write.accepted {
            taken += 1;
            if let Some(later) = latest.get(&write.key).filter(|later| came_before(hold, later)) {
                let what = format!(
                    "{}: the store took a write of {} with {} after one of {}, which got the lock later",
                    names::of(write.key),
                    write.session,
                    write.fence,
                    later.session
                );
                verdict.violations.push(violation(history, what, write, later));
            }
            if hold.span().is_some() && latest.get(&write.key).is_none_or(|other| other.begin < hold.begin) {
                latest.insert(write.key, hold);
            }
        } else {
            refused += 1;
            if is_rightful(hold, write) && !is_disputed(history, hold, write.at) {
                let what = format!(
                    "{}: the store refused a write of {} with {}, whose lock it was before and after",
                    names::of(write.key),
                    write.session,
                    write.fence
                );
                verdict.violations.push(violation(history, what, write, hold));
            }
        }
    }
    verdict.judged = format!("{taken} writes taken, {refused} refused as stale");
    verdict
}

/// True if the hold had certainly ended when the other one began.
fn came_before(hold: &Hold, other: &Hold) -> bool {
    hold.session != other.session
        && hold.last_look().is_some_and(|last| last < other.begin)
        && other.last_look().is_some()
}

/// True if the checks found the lock held before the write and after it.
fn is_rightful(hold: &Hold, write: &Stored) -> bool {
    hold.looks.iter().any(|look| look.at <= write.at && look.until.is_some())
        && hold.last_look().is_some_and(|last| last >= write.at)
}

/// True if another holder may have relied on the same lock. This can happen only beyond the promises.
fn is_disputed(history: &History, hold: &Hold, at: u64) -> bool {
    history.beyond
        && history
            .holds_of(hold.key)
            .filter(|other| other.session != hold.session && other.begin <= at)
            .any(|other| other.begin > hold.begin || other.span().is_some_and(|span| span.1 > hold.begin))
}

fn violation(history: &History, what: String, write: &Stored, other: &Hold) -> Violation {
    let sessions = [write.session, other.session];
    Violation {
        at: write.at,
        what,
        slice: history.slice(&sessions, write.at.saturating_sub(4000 * MS), write.at + 200 * MS),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;

    fn two_holders() -> Story {
        Story::new().hold(1, 110, &[(120, 190)]).number(1, 121, 5).hold(2, 200, &[(210, 300)]).number(2, 211, 6)
    }

    #[test]
    fn a_stale_write_that_is_refused_is_good() {
        let story = two_holders().stored(2, 220, 6, true).stored(1, 230, 5, false);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_late_write_before_the_next_holders_first_is_good() {
        let story = two_holders().stored(1, 215, 5, true).stored(2, 220, 6, true);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_stale_write_that_is_taken_is_found() {
        let story = two_holders().stored(2, 220, 6, true).stored(1, 230, 7, true);
        assert_eq!(check(&story.history()).violations.len(), 1);
    }

    #[test]
    fn a_rightful_write_that_is_refused_is_found() {
        let story = Story::new().hold(1, 110, &[(120, 190), (140, 190)]).stored(1, 130, 5, false);
        assert_eq!(check(&story.history()).violations.len(), 1);
        let lost = Story::new().hold(1, 110, &[(120, 190)]).stored(1, 230, 5, false).lost(1, 240);
        assert!(check(&lost.history()).violations.is_empty());
    }
}
