//! Checks that the fencing token of each hold is larger than those of all earlier holds of the lock.

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{History, Hold};
use crate::names;

pub(super) fn check(history: &History) -> Verdict {
    if history.beyond {
        return Verdict::excused();
    }
    let mut verdict = Verdict::default();
    let mut judged = 0;
    for key in names::exclusive(history.keys) {
        let mut highest: Option<(u64, &Hold)> = None;
        for hold in history.holds_of(key).filter(|hold| hold.span().is_some()) {
            let Some(fence) = hold.fence else { continue };
            judged += 1;
            if let Some((before, other)) = highest.filter(|(before, _)| *before >= fence) {
                let what = format!(
                    "{}: {} has the token {fence}, and {}, which held the lock before, had {before}",
                    names::of(key),
                    hold.session,
                    other.session
                );
                let slice = history.slice(
                    &[other.session, hold.session],
                    other.begin.saturating_sub(10 * MS),
                    hold.begin + 500 * MS,
                );
                verdict.violations.push(Violation { at: hold.begin, what, slice });
            }
            if highest.is_none_or(|(before, _)| before < fence) {
                highest = Some((fence, hold));
            }
        }
    }
    verdict.judged = format!("{judged} tokens");
    verdict
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;

    #[test]
    fn rising_tokens_are_good() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).number(1, 120, 7).unlock(1, 150);
        let story = story.hold(2, 150, &[(160, 250)]).number(2, 170, 8).unlock(2, 180).hold(3, 190, &[(195, 250)]);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_token_that_falls_or_stays_is_found() {
        for second in [6, 7] {
            let story = Story::new().hold(1, 110, &[(120, 190)]).number(1, 120, 7).unlock(1, 150);
            let story = story.hold(2, 150, &[(160, 250)]).number(2, 170, second);
            assert_eq!(check(&story.history()).violations.len(), 1);
        }
    }
}
