//! Checks that nothing is left: no key that never expires, no lock that outlives its holder, and no thread or file of a
//! client that has ended.

use std::collections::HashMap;

use super::weather::calm;
use super::{Verdict, Violation};
use crate::clock::MS;
use crate::event::{Outcome, Phase};
use crate::history::{History, Hold, Sighting};
use crate::names;
use crate::timing::{LONGEST_LEASE, TIMEOUT, slack};

/// The time for which a node may keep a token that has no holder: the time of a roll-back, with a margin.
fn cleaned() -> u64 {
    2 * TIMEOUT + slack()
}

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    keys(history, &mut verdict);
    uses(history, &mut verdict);
    let seen = left_tokens(history, &mut verdict);
    let (keys, lives) = (history.left.len(), history.uses.len() / 2);
    verdict.judged = format!("{keys} keys left, {lives} clients ended, {seen} tokens watched in calm weather");
    verdict
}

/// Judges the keys that are left after all leases have ended.
fn keys(history: &History, verdict: &mut Verdict) {
    for left in &history.left {
        let (node, key) = (left.node, &left.key);
        let what = match left.ttl {
            None => format!("node {node}: `{key}` has no time to live"),
            Some(ttl) if names::is_short(key) => format!("node {node}: the lock `{key}` is left, for {ttl} ms more"),
            Some(_) => continue,
        };
        verdict.violations.push(Violation { at: history.end, what, slice: Vec::new() });
    }
}

fn uses(history: &History, verdict: &mut Verdict) {
    for after in history.uses.iter().filter(|uses| uses.phase == Phase::After) {
        let before = history.uses.iter().find(|uses| uses.phase == Phase::Before && uses.session == after.session);
        let Some(before) = before.filter(|b| after.threads > b.threads || after.files > b.files) else { continue };
        let what = format!(
            "{} had {} threads and {} files at its beginning, {} and {} at its end",
            after.session, before.threads, before.files, after.threads, after.files
        );
        verdict.violations.push(Violation { at: history.end, what, slice: Vec::new() });
    }
}

/// Checks that the token of a failed attempt or of a released lock is removed at once while all nodes are well.
fn left_tokens(history: &History, verdict: &mut Verdict) -> usize {
    // The lock of a process that was killed ends with its lease.
    let spans = calm(history, history.nodes, (LONGEST_LEASE + 500) * MS);
    let mut holds: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in &history.holds {
        holds.entry(hold.token.as_deref().unwrap_or("")).or_default().push(hold);
    }
    let mut judged = 0;
    for sighting in history.sightings.iter().filter(|s| !s.token.contains(":granted:") && is_ours(s)) {
        // A node that had a fault when the token arrived may have missed the roll-back.
        let Some(span) =
            spans.iter().find(|span| span.0 + (LONGEST_LEASE + 500) * MS <= sighting.from && span.1 > sighting.from)
        else {
            continue;
        };
        judged += 1;
        let until = sighting.until.min(span.1);
        let (since, whose) = match holds.get(sighting.token.as_str()) {
            // A hold whose token is not known may have this token.
            None if unnamed(history, sighting) => continue,
            None => (sighting.from, "of an attempt that failed"),
            Some(of_token) => match of_token.iter().map(|hold| released(hold)).collect::<Option<Vec<u64>>>() {
                Some(ends) => (ends.into_iter().max().unwrap_or(0).max(sighting.from), "of a lock that was released"),
                None => continue,
            },
        };
        if until.saturating_sub(since) > cleaned() {
            let what = format!(
                "{}: a token {whose} stands on node {} from {} to {}: {}",
                names::of(sighting.key),
                sighting.node,
                history.seconds(since).trim(),
                history.seconds(until).trim(),
                sighting.token
            );
            let sessions: Vec<_> =
                holds.get(sighting.token.as_str()).into_iter().flatten().map(|hold| hold.session).collect();
            let slice = history.slice(&sessions, since.saturating_sub(500 * MS), until);
            verdict.violations.push(Violation { at: since, what, slice });
        }
    }
    judged
}

fn is_ours(sighting: &Sighting) -> bool {
    sighting.token.contains(':')
}

/// The time at which the release was confirmed. `None` if it was not confirmed or the lock was lost.
fn released(hold: &Hold) -> Option<u64> {
    let ended = hold.unlocked.filter(|(_, outcome)| *outcome == Outcome::Ok).map(|(end, _)| end);
    ended.map(|end| end.max(hold.begin + hold.wants.min_hold))
}

fn unnamed(history: &History, sighting: &Sighting) -> bool {
    let near = |hold: &&Hold| {
        hold.begin < sighting.until + cleaned() && hold.unlocked.is_none_or(|(end, _)| end > sighting.from)
    };
    history.holds_of(sighting.key).filter(|hold| hold.token.is_none()).any(|hold| near(&hold))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::{Story, session};
    use crate::clock::MS;
    use crate::event::Phase;
    use crate::history::{Left, Sighting, Uses};
    use crate::plan::{Kind, Target};

    fn seen(mut story: Story, token: &str, from: u64, until: u64) -> usize {
        let sighting = Sighting { node: 0, key: 0, token: token.into(), from: from * MS, until: until * MS };
        story.history.sightings.push(sighting);
        check(&story.history()).violations.len()
    }

    #[test]
    fn keys_have_an_end_and_locks_have_had_it() {
        for (key, ttl, found) in
            [("{order}:fence", Some(9), 0), ("{order}:fence", None, 1), ("{order}", Some(9), 1), ("slow0", Some(9), 0)]
        {
            let mut story = Story::new();
            story.history.left.push(Left { node: 0, key: key.into(), ttl });
            assert_eq!(check(&story.history()).violations.len(), found, "{key}");
        }
    }

    #[test]
    fn threads_and_files_go() {
        for (threads, files, found) in [(1, 5, 0), (2, 5, 1), (1, 6, 1)] {
            let mut story = Story::new();
            story.history.uses.push(Uses { session: session(1), phase: Phase::Before, threads: 1, files: 5 });
            story.history.uses.push(Uses { session: session(1), phase: Phase::After, threads, files });
            assert_eq!(check(&story.history()).violations.len(), found);
        }
    }

    #[test]
    fn the_token_of_a_holder_may_stand() {
        let held = || Story::new().hold(1, 10_000, &[(10_001, 10_090)]);
        assert_eq!(seen(held(), "a:token1", 9999, 20_000), 0);
        assert_eq!(seen(held().unlock(1, 10_050), "a:token1", 9999, 10_060), 0);
    }

    #[test]
    fn tokens_without_a_holder_are_found() {
        assert_eq!(seen(Story::new(), "a:lost", 9000, 9500), 0);
        assert_eq!(seen(Story::new(), "a:lost", 9000, 9900), 1);
        let ill = Story::new().struck(Kind::Hole, Target::Node(0), 8000, 8500);
        assert_eq!(seen(ill, "a:lost", 9000, 9900), 0);
    }
}
