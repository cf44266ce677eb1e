//! Checks that a latch opens when all workers have arrived, not before, and stays open.
//!
//! The documentation permits that lost data closes a latch. This needs the loss of the data on a majority, or on a node
//! whose vote counts: it did not restart, or all nodes have restarted within the lifetime. No fault may open a latch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{Arrival, History, Saw};
use crate::names;
use crate::plan::{Kind, Target};
use crate::timing::{LATCH_LIFE, WORKERS, slack};

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut latches: BTreeMap<u64, (Vec<&Arrival>, Vec<&Saw>)> = BTreeMap::new();
    for arrival in &history.arrivals {
        latches.entry(arrival.latch).or_default().0.push(arrival);
    }
    for saw in &history.saw {
        latches.entry(saw.latch).or_default().1.push(saw);
    }
    let opened = latches.values().filter(|latch| latch.1.iter().any(|saw| saw.is_open)).count();
    for (arrivals, saws) in latches.values() {
        verdict.violations.extend(saws.iter().find(|saw| is_early(arrivals, saw)).map(|saw| early(history, saw)));
        verdict.violations.extend(closed_again(history, arrivals, saws));
    }
    verdict.judged = format!("{} latches, {opened} of them opened, {} looks", latches.len(), history.saw.len());
    verdict
}

/// True if the call found the latch open before the last worker had begun to arrive.
fn is_early(arrivals: &[&Arrival], saw: &Saw) -> bool {
    let workers: BTreeSet<u8> =
        arrivals.iter().filter(|arrival| arrival.at <= saw.until).map(|arrival| arrival.worker).collect();
    saw.is_open && workers.len() < usize::from(WORKERS)
}

fn early(history: &History, saw: &Saw) -> Violation {
    let what = format!("{} opened for {} before all workers had arrived", names::latch(saw.latch), saw.session);
    let slice = history.slice(&[saw.session], saw.from.saturating_sub(MS), saw.until + MS);
    Violation { at: saw.until, what, slice }
}

/// Finds the first call that found the latch closed, although it began after another call had found it open.
fn closed_again(history: &History, arrivals: &[&Arrival], saws: &[&Saw]) -> Option<Violation> {
    let begin = arrivals.iter().map(|arrival| arrival.at).min()?;
    let open = saws.iter().filter(|saw| saw.is_open).min_by_key(|saw| saw.until)?;
    let life = u64::try_from(LATCH_LIFE.as_nanos()).unwrap_or(u64::MAX) - slack();
    let is_in_time = |saw: &&&Saw| saw.from > open.until && saw.until < begin + life;
    let closed = saws.iter().find(|saw| !saw.is_open && is_in_time(saw))?;
    if history.beyond || may_be_lost(history, begin, &(closed.from..closed.until), LATCH_LIFE) {
        return None;
    }
    let what = format!(
        "{} was open for {} at {}, and closed for {} later",
        names::latch(closed.latch),
        open.session,
        history.seconds(open.until).trim(),
        closed.session,
    );
    let slice = history.slice(&[open.session, closed.session], open.from.saturating_sub(MS), closed.until + MS);
    Some(Violation { at: closed.until, what, slice })
}

/// True if enough nodes lost their data from this time to the end of a call: a majority, or one node whose vote counts.
/// The vote of a node that restarted within `life` counts if no node is older. That of a node that lost its data
/// without a restart always does.
pub(super) fn may_be_lost(history: &History, from: u64, call: &Range<u64>, life: Duration) -> bool {
    let near = history.struck.iter().filter(|s| s.from <= call.end && s.until + slack() >= from);
    let mut lost: BTreeSet<Target> = BTreeSet::new();
    for struck in near {
        match struck.fault.kind {
            Kind::Flush | Kind::Role => return true,
            Kind::Empty | Kind::Amnesia | Kind::Forget => _ = lost.insert(struck.fault.target),
            _ => {}
        }
    }
    lost.len() > history.nodes / 2 || (!lost.is_empty() && !has_old_node(history, call.start, life))
}

/// True if some node has been up for `life` at this time. A server tells its age in whole seconds.
fn has_old_node(history: &History, at: u64, life: Duration) -> bool {
    let old = u64::try_from(life.as_nanos()).unwrap_or(u64::MAX) + 1000 * MS;
    let up_since = |node| {
        let faults = history.struck.iter().filter(|s| s.from <= at && s.fault.target == Target::Node(node));
        faults.filter(|s| s.fault.kind.is_restart()).map(|s| s.until).fold(history.begin, u64::max)
    };
    (0..history.nodes).any(|node| up_since(node) + old <= at)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::clock::MS;
    use crate::event::What;
    use crate::plan::{Kind, Target};
    use crate::timing::WORKERS;

    fn arrive(story: Story, workers: impl IntoIterator<Item = u8>) -> Story {
        arrive_at(story, 100, workers)
    }

    fn arrive_at(story: Story, at: u64, workers: impl IntoIterator<Item = u8>) -> Story {
        let arrives = |story: Story, worker| story.event(at, worker, What::Arrives { latch: 7, worker });
        workers.into_iter().fold(story, arrives)
    }

    fn saw(story: Story, at: u64, is_open: bool) -> Story {
        story.event(at, 9, What::Saw { latch: 7, from: (at - 5) * MS, is_open })
    }

    fn found(story: Story) -> usize {
        check(&story.history()).violations.len()
    }

    #[test]
    fn a_latch_that_opens_once_all_have_arrived_is_good() {
        let story = saw(saw(arrive(Story::new(), 0..WORKERS), 90, false), 120, true);
        assert_eq!(found(saw(story, 130, true)), 0);
    }

    #[test]
    fn one_that_opens_early_is_found_also_where_one_arrived_twice() {
        assert_eq!(found(saw(arrive(Story::new(), 0..WORKERS - 1), 120, true)), 1);
        assert_eq!(found(saw(arrive(Story::new(), (1..WORKERS).chain([1])), 120, true)), 1);
        assert_eq!(found(saw(arrive(Story::new(), 0..WORKERS), 99, true)), 1);
    }

    /// True if it is found that a latch of this time opens after 20 ms, and closes again 30 ms later. After 10 ms these
    /// nodes have lost their data.
    fn is_found(at: u64, kind: Kind, nodes: &[usize]) -> bool {
        let lost = |story: Story, &node| story.struck(kind, Target::Node(node), at + 10, at + 11);
        let story = nodes.iter().fold(arrive_at(Story::new(), at, 0..WORKERS), lost);
        found(saw(saw(story, at + 20, true), at + 50, false)) == 1
    }

    #[test]
    fn one_that_closes_again_is_found_unless_its_data_may_be_lost() {
        assert!(is_found(100, Kind::Empty, &[]));
        assert!(!is_found(100, Kind::Empty, &[0]), "no node is old enough");
        assert!(is_found(20_000, Kind::Empty, &[0]));
        assert!(!is_found(20_000, Kind::Amnesia, &[0, 1]));
        assert!(!is_found(20_000, Kind::Flush, &[0]));
    }

    #[test]
    fn calls_at_the_same_time_and_after_its_life_are_good() {
        assert_eq!(found(saw(saw(arrive(Story::new(), 0..WORKERS), 148, true), 150, false)), 0);
        assert_eq!(found(saw(saw(arrive(Story::new(), 0..WORKERS), 120, true), 15_000, false)), 0);
    }
}
