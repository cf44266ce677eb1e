//! Checks that a multi-lock holds all of its keys or none. While it claims all of its keys, no other client holds one
//! of them. Once one key is lost, it keeps none.
//!
//! Each key is a hold of its own, which the other checkers judge like that of a mutex. This checker judges the keys
//! together.

use std::collections::BTreeMap;

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::Session;
use crate::history::{History, Hold};
use crate::names::{self, SEVERAL};
use crate::timing::{TIMEOUT, slack};

pub(super) fn check(history: &History) -> Verdict {
    if history.beyond {
        return Verdict::excused();
    }
    let mut parts: BTreeMap<Session, Vec<&Hold>> = BTreeMap::new();
    for hold in &history.holds {
        if let Some(whole) = hold.session.whole() {
            parts.entry(whole).or_default().push(hold);
        }
    }
    let mut verdict = Verdict::default();
    let (mut judged, mut lost) = (0, 0);
    for whole in history.holds_of(SEVERAL) {
        judged += 1;
        lost += usize::from(whole.saw_loss().is_some());
        for part in parts.get(&whole.session).into_iter().flatten() {
            let found = [believed(whole, part), stolen(history, whole, part), kept(history, whole, part)];
            verdict
                .violations
                .extend(found.into_iter().flatten().map(|(at, what)| violation(history, whole, part, at, &what)));
        }
    }
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict.judged = format!("{judged} multi-locks, {lost} of them lost");
    verdict
}

/// Finds a check that claimed all keys after this key was lost.
fn believed(whole: &Hold, part: &Hold) -> Option<(u64, String)> {
    let lost_at = part.saw_loss()?;
    let looked_at = whole.last_look().filter(|looked_at| *looked_at > lost_at)?;
    Some((looked_at, "is said to be held with all others after it was seen to be lost".to_owned()))
}

/// Finds another holder of this key while the multi-lock claimed all keys.
fn stolen(history: &History, whole: &Hold, part: &Hold) -> Option<(u64, String)> {
    let ((from, until), (_, part_until)) = (whole.span()?, part.span()?);
    let until = until.min(part_until);
    let is_other = |hold: &&Hold| hold.session != part.session && hold.begin > from && hold.begin < until;
    let other = history.holds_of(part.key).filter(|hold| hold.span().is_some()).find(is_other)?;
    Some((other.begin, format!("went to {} while all were said to be held", other.session)))
}

/// Finds an extension of the lease of this key long after another key was lost.
fn kept(history: &History, whole: &Hold, part: &Hold) -> Option<(u64, String)> {
    let lost = whole.saw_loss()?;
    let by = history.awake_for(whole.session.client, lost, 2 * TIMEOUT + slack());
    let extended = *history.extended.get(part.token.as_deref()?)?;
    let kept = part.last_look().max(Some(extended)).filter(|at| *at > by)?;
    Some((kept, format!("is kept {} ms after another key of it was lost", (kept - lost) / MS)))
}

fn violation(history: &History, whole: &Hold, part: &Hold, at: u64, what: &str) -> Violation {
    let sessions = [whole.session, part.session];
    Violation {
        at,
        what: format!("{} of the multi-lock {} {what}", names::of(part.key), whole.session),
        slice: history.slice(&sessions, at.saturating_sub(1500 * MS), at + 100 * MS),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::clock::MS;

    fn found(story: Story) -> usize {
        check(&story.history()).violations.len()
    }

    /// The story of two keys that are held. A check finds at 150 ms that the second key is lost.
    fn lost(until: u64) -> Story {
        Story::new().several(1, 100, &[(110, 190), (until, until + 40)]).part_lost(1, 1, 150)
    }

    #[test]
    fn what_is_held_and_given_up_together_is_good() {
        let story = Story::new().several(1, 100, &[(110, 190)]).unlock(1, 150);
        assert_eq!(found(story.hold(2, 160, &[(165, 250)])), 0);
        assert_eq!(found(lost(140).lost(1, 151)), 0);
    }

    #[test]
    fn one_that_is_believed_to_be_whole_is_found() {
        assert_eq!(found(lost(160)), 1);
    }

    #[test]
    fn a_key_that_another_has_is_found() {
        let story = Story::new().several(1, 100, &[(110, 190)]).hold(2, 120, &[(125, 250)]);
        assert_eq!(found(story), 1);
    }

    #[test]
    fn a_key_that_is_kept_is_found() {
        for (at, count) in [(400, 0), (1200, 1)] {
            let mut story = lost(140).lost(1, 151);
            story.history.extended.insert(Story::token_of_part(1, 0), at * MS);
            assert_eq!(found(story), count, "{at}");
        }
    }
}
