//! Checks that a hold keeps to its own settings, whatever the settings of the hold before it were.
//!
//! The checker compares the times that the library reports on the clock of the client. They must be right on a busy
//! machine too.

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::Outcome;
use crate::history::{History, Hold, Look};
use crate::names;
use crate::timing::{TIMEOUT, slack};

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let (mut looks, mut bounded, mut least) = (0, 0, 0);
    // A holder without a guard gets no report from the library.
    for hold in history.holds.iter().filter(|hold| hold.token.is_some()) {
        looks += hold.looks.len();
        bounded += usize::from(hold.wants.renewals < u64::MAX || hold.wants.max_hold < u64::MAX);
        // One violation for each hold is enough.
        if let Some((at, what)) = hold.looks.iter().find_map(|look| wrong(hold, look).map(|what| (look.at, what))) {
            verdict.violations.push(violation(history, hold, None, at, &what));
        }
        if let Some((due, next)) = least_of(history, hold) {
            least += 1;
            if next.begin < due {
                let what = format!("was followed by {} before its minimum hold was over", next.session);
                verdict.violations.push(violation(history, hold, Some(next), next.begin, &what));
            }
        }
    }
    verdict.judged = format!("{looks} looks; {bounded} holds that end by themselves, {least} with a minimum");
    verdict
}

/// Describes what is wrong with the time that this check promised, if anything is.
fn wrong(hold: &Hold, look: &Look) -> Option<String> {
    let until = look.until?;
    let wants = &hold.wants;
    let remaining = until.saturating_sub(look.at);
    if remaining > wants.lease {
        return Some(format!("has a lease of {} ms, and {} ms remained", wants.lease / MS, remaining / MS));
    }
    let in_all = until.saturating_sub(hold.begin);
    if in_all > wants.max_hold {
        return Some(format!("is to be held for {} ms at most, and counts on {} ms", wants.max_hold / MS, in_all / MS));
    }
    if wants.renewals == u64::MAX {
        return None;
    }
    // An extension by the client prolongs the hold. Then the renewals count from the extension on.
    let since = hold.extended.iter().filter(|extended| **extended <= look.at).max().unwrap_or(&hold.begin);
    let most = wants.lease.saturating_mul(wants.renewals + 1);
    let in_all = until.saturating_sub(*since);
    // The renewal of a grant is not counted. It can be late on a busy machine.
    (in_all > most + slack()).then(|| {
        let (lease, renewals) = (wants.lease / MS, wants.renewals);
        format!("has a lease of {lease} ms and {renewals} renewals, and counts on {} ms", in_all / MS)
    })
}

/// The earliest permitted time of the next hold, and the next hold. `None` if this hold was not released or has no
/// minimum hold.
fn least_of<'a>(history: &'a History, hold: &Hold) -> Option<(u64, &'a Hold)> {
    let margin = TIMEOUT + slack();
    let is_released = hold.dropped.is_some() || hold.unlocked.is_some_and(|(_, outcome)| outcome == Outcome::Ok);
    // Slow locks are excluded, because nodes can lose them early.
    let is_kept = !history.beyond && hold.key < names::SLOW;
    if !is_kept || !is_released || hold.saw_loss().is_some() || !hold.told.is_empty() {
        return None;
    }
    // A server executed the acquire at most one node timeout before the call returned, if the client ran all the time.
    let stood = history.stopped(hold.session.client, hold.begin.saturating_sub(margin), hold.begin);
    let due = (hold.begin + hold.wants.min_hold).checked_sub(margin + stood).filter(|due| *due > hold.begin)?;
    let next = history.holds_of(hold.key).find(|next| next.begin > hold.begin && next.span().is_some())?;
    (hold.wants.min_hold > margin).then_some((due, next))
}

fn violation(history: &History, hold: &Hold, other: Option<&Hold>, at: u64, what: &str) -> Violation {
    let sessions: Vec<_> = [Some(hold), other].into_iter().flatten().map(|hold| hold.session).collect();
    Violation {
        at,
        what: format!("{}: {} {what}", names::of(hold.key), hold.session),
        slice: history.slice(&sessions, hold.begin.saturating_sub(500 * MS), at + 100 * MS),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::clock::MS;
    use crate::event::{Op, Outcome, Wants};

    const PLAIN: Wants = Wants::plain(1000 * MS);

    fn found(story: Story) -> usize {
        check(&story.history()).violations.len()
    }

    #[test]
    fn no_more_than_the_lease_remains() {
        for (until, wrong) in [(1100, 0), (1150, 1), (9999, 1)] {
            assert_eq!(found(Story::new().hold_with(1, 100, PLAIN, &[(110, until)])), wrong, "{until}");
        }
    }

    #[test]
    fn no_process_counts_on_a_lock_beyond_its_longest_hold() {
        let wants = Wants { max_hold: 1500 * MS, ..PLAIN };
        for (until, wrong) in [(1600, 0), (1650, 1)] {
            assert_eq!(found(Story::new().hold_with(1, 100, wants, &[(110, 900), (1000, until)])), wrong, "{until}");
        }
    }

    #[test]
    fn renewals_come_to_an_end() {
        let looks = [(110, 1000), (1000, 2000), (2000, 3000)];
        for (renewals, wrong) in [(u64::MAX, 0), (2, 0), (1, 1), (0, 1)] {
            let wants = Wants { renewals, ..PLAIN };
            assert_eq!(found(Story::new().hold_with(1, 100, wants, &looks)), wrong, "{renewals}");
        }
    }

    #[test]
    fn an_extension_counts_from_its_end() {
        let extended = |n| {
            let story = Story::new().hold_with(1, 100, Wants { renewals: 0, ..PLAIN }, &[(110, 1000)]);
            let story = story.call(1, Op::Extend, 900, 300).done(1, Op::Extend, 910, Outcome::Ok);
            story.looks(1, &[(920, 1900), (n, n + 900)])
        };
        assert_eq!(found(extended(1500)), 0);
        assert_eq!(found(extended(2000)), 1);
    }

    #[test]
    fn a_minimum_hold_keeps_others_out() {
        for (next, wrong) in [(300, 1), (1200, 0)] {
            let wants = Wants { min_hold: 1000 * MS, ..PLAIN };
            let story = Story::new().hold_with(1, 100, wants, &[(110, 1000)]).unlock(1, 200);
            assert_eq!(found(story.hold(2, next, &[(next + 1, next + 90)])), wrong, "{next}");
        }
    }
}
