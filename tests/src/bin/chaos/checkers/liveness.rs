//! Checks that each wanted lock gets a holder in time while a majority of the nodes is up. The limit is the longest
//! lease plus 5 s.

use super::weather::calm;
use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::History;
use crate::names::{self, LATCH, READ, SEVERAL};
use crate::timing::{CAP, LONGEST_LEASE, slack};

fn bound() -> u64 {
    LONGEST_LEASE * MS + CAP + slack()
}

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let spans = calm(history, history.nodes / 2 + 1, 0);
    let (mut judged, mut longest) = (0, 0);
    // The keys include those of readers, writers and multi-locks.
    for key in (0..history.keys).chain((READ..=SEVERAL).filter(|key| !(LATCH..SEVERAL).contains(key))) {
        // The loop judges each gap from the end of a hold to the start of the next one.
        let holds: Vec<(u64, u64)> =
            history.holds_of(key).map(|hold| (hold.begin, hold.span().map_or(hold.begin, |s| s.1))).collect();
        for &(from, until) in &spans {
            let mut free = from;
            for (begin, end) in holds.iter().copied().chain([(until, until)]) {
                if begin > free && begin <= until {
                    judged += 1;
                    let gap = begin - free;
                    let is_wanted = gap > bound() && is_wanted(history, key, free, free + bound());
                    if begin < until || is_wanted {
                        longest = longest.max(gap);
                    }
                    if is_wanted {
                        let what = format!(
                            "{}: no client got it for {} ms, from {}",
                            names::of(key),
                            gap / MS,
                            history.seconds(free).trim()
                        );
                        let of_key = |call: &&crate::history::Call| {
                            call.key == key && call.from < begin && call.from + bound() > free
                        };
                        let sessions: Vec<_> = history.calls.iter().filter(of_key).map(|call| call.session).collect();
                        let slice = history.slice(&sessions, free.saturating_sub(500 * MS), begin + 100 * MS);
                        verdict.violations.push(Violation { at: free, what, slice });
                    }
                }
                free = free.max(end);
            }
        }
    }
    let calm: u64 = spans.iter().map(|span| span.1 - span.0).sum();
    verdict.judged =
        format!("{judged} gaps in {} s with a majority; the longest {} ms", calm / (1000 * MS), longest / MS);
    verdict
}

/// True if threads were in calls for this lock for at least three quarters of the span.
fn is_wanted(history: &History, key: usize, from: u64, until: u64) -> bool {
    let of_key = history.calls.iter().filter(|call| call.key == key);
    let mut waits: Vec<(u64, u64)> = of_key
        .map(|call| (call.from.max(from), call.end.map_or(until, |end| end.0).min(until)))
        .filter(|wait| wait.0 < wait.1)
        .collect();
    waits.sort_unstable();
    let (mut covered, mut at) = (0, from);
    for (begin, end) in waits {
        covered += end.saturating_sub(begin.max(at));
        at = at.max(end);
    }
    covered >= (until - from) / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::event::{Op, Outcome};
    use crate::plan::{Kind, Target};

    fn gap(story: Story) -> usize {
        let story = story.hold(1, 1000, &[(1001, 1090)]).unlock(1, 1050);
        check(&story.hold(2, 30_000, &[(30_010, 99_000)]).history()).violations.len()
    }

    fn wanted() -> Story {
        Story::new().call(3, Op::TryLockFor, 1100, 25_000).done(3, Op::TryLockFor, 26_000, Outcome::Busy)
    }

    #[test]
    fn a_lock_that_is_not_wanted_may_stay_free() {
        assert_eq!(gap(Story::new()), 0);
    }

    #[test]
    fn a_free_lock_that_is_not_taken_is_found() {
        assert_eq!(gap(wanted()), 1);
    }

    #[test]
    fn without_a_majority_it_cannot_be_taken() {
        let dark = wanted().struck(Kind::Hole, Target::Node(0), 2000, 29_000).struck(
            Kind::Kill,
            Target::Node(2),
            1500,
            24_600,
        );
        assert_eq!(gap(dark), 0);
    }
}
