//! Checks that a released lock is free soon after the network works again, even if the release did not reach the
//! servers.
//!
//! `residue` judges releases that `unlock()` confirmed. This checker judges the others: an `unlock()` that returned
//! `Unconfirmed`, and guards that were dropped in a partition. A minority of the nodes may keep the token until its
//! lease has ended.

use std::collections::HashMap;

use super::weather::calm;
use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::Outcome;
use crate::history::{History, Hold, Sighting};
use crate::names;
use crate::timing::{GIVEN_UP, slack};

/// The time for which nodes may keep the token of such a lock while there are no faults.
fn bound() -> u64 {
    GIVEN_UP + slack()
}
/// A time that is longer than the pause between two checks of a server.
const LOOKS: u64 = 60 * MS;

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let spans = calm(history, history.nodes, 0);
    let mut seen: HashMap<&str, Vec<&Sighting>> = HashMap::new();
    for sighting in &history.sightings {
        seen.entry(&sighting.token).or_default().push(sighting);
    }
    let mut judged = 0;
    for hold in last_of_each_token(history) {
        let stands = hold.token.as_deref().and_then(|token| seen.get(token));
        let (Some(given_up), Some(stands)) = (given_up(hold), stands) else { continue };
        // If this many nodes keep the token, no other client can acquire the lock.
        let too_many = history.nodes - history.nodes / 2;
        let standing = |until: u64| stands.iter().filter(|s| s.from <= given_up && s.until > until).count() >= too_many;
        if !standing(given_up + LOOKS) {
            continue;
        }
        judged += 1;
        let due = |span: &(u64, u64)| {
            let due = given_up.max(span.0) + bound();
            (due < span.1 && standing(due) && lives(history, hold, due)).then_some(due)
        };
        verdict.violations.extend(spans.iter().find_map(due).map(|due| violation(history, hold, due)));
    }
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict.judged = format!("{judged} locks that were given up in a partition");
    verdict
}

/// The last hold of each token. A lock that is handed over within a process keeps its token, and its last holder
/// releases it.
fn last_of_each_token(history: &History) -> impl Iterator<Item = &Hold> {
    let mut last: HashMap<&str, &Hold> = HashMap::new();
    for hold in &history.holds {
        if let Some(token) = &hold.token {
            last.insert(token, hold);
        }
    }
    last.into_values()
}

/// The time at which this lock was released without a confirmation. `None` if the lock was lost, or if its release was
/// confirmed.
fn given_up(hold: &Hold) -> Option<u64> {
    if hold.saw_loss().is_some() || !hold.told.is_empty() {
        return None;
    }
    let unconfirmed = hold.unlocked.filter(|(_, outcome)| *outcome == Outcome::Unconfirmed).map(|(end, _)| end);
    hold.dropped.or(unconfirmed).map(|end| end.max(hold.begin + hold.wants.min_hold))
}

/// True if the process still runs at this time and can repeat the release.
fn lives(history: &History, hold: &Hold, at: u64) -> bool {
    history.killed(hold.session.client, hold.session.life).is_none_or(|killed| killed > at)
}

fn violation(history: &History, hold: &Hold, due: u64) -> Violation {
    let what = format!(
        "{}: {} gave it up, and its token stands on too many nodes {} ms after all were well again: {}",
        names::of(hold.key),
        hold.session,
        bound() / MS,
        hold.token.as_deref().unwrap_or_default()
    );
    Violation { at: due, what, slice: history.slice(&[hold.session], hold.begin, due) }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::clock::MS;
    use crate::event::{Op, Outcome};
    use crate::history::Sighting;
    use crate::plan::{Kind, Target};

    fn found(mut story: Story, nodes: &[usize], until: u64) -> usize {
        for &node in nodes {
            let token = "a:token1".to_owned();
            story.history.sightings.push(Sighting { node, key: 0, token, from: 10_000 * MS, until: until * MS });
        }
        check(&story.history()).violations.len()
    }

    /// The story of a hold. The network drops all packets to all nodes from 10.05 s to 12 s.
    fn held() -> Story {
        let story = Story::new().hold(1, 10_000, &[(10_001, 10_090)]);
        (0..3).fold(story, |story, node| story.struck(Kind::Hole, Target::Node(node), 10_050, 12_000))
    }

    fn unconfirmed() -> Story {
        held().call(1, Op::Unlock, 10_060, 300).done(1, Op::Unlock, 10_300, Outcome::Unconfirmed)
    }

    fn dropped() -> Story {
        held().call(1, Op::Drop, 10_060, 300).done(1, Op::Drop, 10_160, Outcome::Ok)
    }

    #[test]
    fn a_lock_that_was_given_up_goes_soon_after_the_network_is_back() {
        for story in [unconfirmed, dropped] {
            assert_eq!(found(story(), &[0, 1, 2], 13_000), 0);
            assert_eq!(found(story(), &[0, 1, 2], 15_500), 0);
            assert_eq!(found(story(), &[0, 1, 2], 15_700), 1);
            assert_eq!(found(story(), &[0, 2], 15_700), 1);
        }
    }

    #[test]
    fn a_minority_may_keep_it() {
        assert_eq!(found(dropped(), &[0], 30_000), 0);
        assert_eq!(found(unconfirmed(), &[0], 30_000), 0);
    }

    #[test]
    fn a_process_that_was_killed_gives_nothing_up_any_more() {
        let killed = |at| dropped().struck(Kind::Murder, Target::Client(1), at, at + 10);
        assert_eq!(found(killed(14_000), &[0, 1], 30_000), 0);
        assert_eq!(found(killed(25_000), &[0, 1], 30_000), 1);
    }

    #[test]
    fn confirmed_and_lost_locks_are_judged_elsewhere() {
        assert_eq!(found(held().unlock(1, 10_060), &[0, 1], 30_000), 0);
        assert_eq!(found(dropped().told(1, 10_100), &[0, 1], 30_000), 0);
    }
}
