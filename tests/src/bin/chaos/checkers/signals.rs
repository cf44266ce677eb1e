//! Checks that a loss is signalled once and before another hold begins, and never after a release.
//!
//! `overlap` judges the strict rule: `check()` fails before another hold begins. A handler runs on a thread that must
//! wake up first, so this checker adds a margin for a busy machine. The time for which a client did not run does not
//! count.

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::Outcome;
use crate::history::{History, Hold};
use crate::names;
use crate::timing::{TIMEOUT, slack};

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let (mut losses, mut latest) = (0, 0);
    for key in names::exclusive(history.keys) {
        let holds: Vec<&Hold> = history.holds_of(key).filter(|hold| hold.token.is_some()).collect();
        for (i, &hold) in holds.iter().enumerate() {
            let next = holds.iter().skip(i + 1).find(|next| next.begin > hold.begin && next.last_look().is_some());
            let due = due(hold, next.copied());
            losses += usize::from(due.is_some());
            if let (Some(due), Some(&told)) = (due, hold.told.first()) {
                latest = latest.max(told.saturating_sub(due + stood(history, hold, due, told)));
            }
            if let Some(what) = wrong(history, hold, due) {
                let sessions: Vec<_> = [Some(hold), next.copied()].into_iter().flatten().map(|h| h.session).collect();
                let at = hold.looks.last().map_or(hold.begin, |look| look.at);
                let slice = history.slice(&sessions, hold.begin.saturating_sub(10 * MS), at + 2000 * MS);
                verdict.violations.push(Violation {
                    at,
                    what: format!("{}: {} {what}", names::of(key), hold.session),
                    slice,
                });
            }
        }
    }
    for deleted in history.deleted.iter().filter(|deleted| deleted.nodes > history.nodes / 2) {
        let held = history.holds.iter().filter(|hold| hold.token.as_deref() == Some(&deleted.token));
        for hold in held {
            let late = deleted.at + hold.wants.lease + 2 * TIMEOUT + slack();
            if let Some(look) = hold.last_look().filter(|last| *last > late + stood(history, hold, deleted.at, *last)) {
                let what = format!(
                    "{}: {} believes to hold a lock that was deleted long ago",
                    names::of(hold.key),
                    hold.session
                );
                let slice = history.slice(&[hold.session], deleted.at.saturating_sub(500 * MS), look + 100 * MS);
                verdict.violations.push(Violation { at: look, what, slice });
            }
        }
    }
    verdict.judged = format!("{losses} losses, told at most {} ms late", latest / MS);
    verdict
}

/// The time by which the loss of this lock must have been signalled. `None` if the lock was not lost.
fn due(hold: &Hold, next: Option<&Hold>) -> Option<u64> {
    let taken = next.map(|next| next.begin).filter(|begin| hold.unlock.is_none_or(|unlock| *begin < unlock));
    let seen = hold.saw_loss().filter(|seen| hold.unlock.is_none_or(|unlock| *seen < unlock));
    // Some losses are found only by the unlock.
    let found = hold.unlocked.filter(|(_, outcome)| *outcome == Outcome::Lost).map(|(at, _)| at);
    [taken, seen, found].into_iter().flatten().min()
}

fn wrong(history: &History, hold: &Hold, due: Option<u64>) -> Option<String> {
    let released = hold.unlocked.filter(|(_, outcome)| *outcome == Outcome::Ok).and(hold.unlock);
    if let (Some(_), Some(told)) = (released, hold.told.first()) {
        return Some(format!("released the lock, and was told of a loss at {}", history.seconds(*told).trim()));
    }
    if hold.told.len() > 1 {
        return Some(format!("was told {} times of one loss", hold.told.len()));
    }
    let due = due?;
    let (client, life) = (hold.session.client, hold.session.life);
    // A client that did not run shortly before has a lot of work to catch up on.
    let before = due.saturating_sub(slack());
    let by = history.awake_for(client, before, due - before + slack());
    if history.killed(client, life).is_some_and(|end| end <= by) || by > history.end {
        return None;
    }
    match hold.told.first() {
        None => Some(format!("lost the lock before {} and was never told", history.seconds(due).trim())),
        Some(&told) if told > by => {
            Some(format!("lost the lock before {} and was told late", history.seconds(due).trim()))
        }
        Some(_) => None,
    }
}

fn stood(history: &History, hold: &Hold, from: u64, until: u64) -> u64 {
    history.stopped(hold.session.client, from, until)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::event::{Op, Outcome};
    use crate::history::Deleted;
    use crate::plan::{Kind, Target};

    fn lost_and_told(at: u64) -> Story {
        Story::new().hold(1, 110, &[(120, 190)]).told(1, at).hold(2, 200, &[(210, 300)]).lost(1, 5000).unlock(2, 250)
    }

    #[test]
    fn a_loss_that_is_told_in_time_is_good() {
        assert!(check(&lost_and_told(191).history()).violations.is_empty());
        assert_eq!(check(&lost_and_told(3000).history()).violations.len(), 1);
    }

    #[test]
    fn a_process_that_stood_still_hears_later() {
        let story = lost_and_told(3000).struck(Kind::Pause, Target::Client(1), 150, 2990);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_loss_that_is_never_told_is_found() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).hold(2, 200, &[(210, 300)]).lost(1, 400);
        assert_eq!(check(&story.history()).violations.len(), 1);
        let killed = Story::new().hold(1, 110, &[(120, 190)]).hold(2, 200, &[(210, 300)]);
        let killed = killed.struck(Kind::Murder, Target::Client(1), 150, 160);
        assert!(check(&killed.history()).violations.is_empty());
    }

    #[test]
    fn a_release_is_no_loss() {
        let good = Story::new().hold(1, 110, &[(120, 190)]).unlock(1, 150).hold(2, 200, &[(210, 300)]).unlock(2, 250);
        assert!(check(&good.history()).violations.is_empty());
        let told = Story::new().hold(1, 110, &[(120, 190)]).unlock(1, 150).told(1, 180);
        assert_eq!(check(&told.history()).violations.len(), 1);
    }

    #[test]
    fn a_deleted_lock_is_noticed() {
        let deleted = Deleted { at: 130_000_000, token: "a:token1".into(), nodes: 3 };
        let mut story = Story::new().hold(1, 110, &[(120, 190), (3000, 3100)]).unlock(1, 3050);
        story.history.deleted.push(deleted);
        assert_eq!(check(&story.history()).violations.len(), 1);
    }

    #[test]
    fn a_loss_that_only_the_unlock_found_has_to_be_told_too() {
        let story = || {
            let story = Story::new().hold(1, 110, &[(120, 190)]).call(1, Op::Unlock, 150, 300);
            story.done(1, Op::Unlock, 151, Outcome::Lost)
        };
        assert_eq!(check(&story().history()).violations.len(), 1);
        assert!(check(&story().told(1, 150).history()).violations.is_empty());
    }

    #[test]
    fn a_pause_after_the_late_signal_excuses_nothing() {
        let story = lost_and_told(3000).struck(Kind::Pause, Target::Client(1), 6000, 9000);
        assert_eq!(check(&story.history()).violations.len(), 1);
        // A pause that begins before the limit moves the limit. Then the next pause can also begin before the limit.
        let moved = lost_and_told(3000).struck(Kind::Pause, Target::Client(1), 700, 1700);
        let moved = moved.struck(Kind::Pause, Target::Client(1), 1750, 2990);
        assert!(check(&moved.history()).violations.is_empty());
    }
}
