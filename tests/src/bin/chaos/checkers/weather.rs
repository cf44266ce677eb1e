//! The spans in which the nodes were well and all clients ran.

use crate::clock::MS;
use crate::history::{History, Struck};
use crate::plan::{Kind, QUARANTINE, Target};

/// Returns the spans in which at least `need` nodes were well and no client was stopped. A client that was killed ends
/// a span for `after_death` ns more.
pub(super) fn calm(history: &History, need: usize, after_death: u64) -> Vec<(u64, u64)> {
    let bad: Vec<(Target, u64, u64)> = history
        .struck
        .iter()
        .filter(|s| !matches!(s.fault.kind, Kind::Delete | Kind::Crowd))
        .flat_map(|s| {
            let away = s.fault.away(history.nodes).into_iter().map(|node| (Target::Node(node), s.from, s.until));
            away.chain([(s.fault.target, s.from, s.until + after(history, s, after_death))])
        })
        .collect();
    let mut edges: Vec<u64> = bad.iter().flat_map(|b| [b.1, b.2]).chain([history.begin, history.end]).collect();
    edges.retain(|edge| (history.begin..=history.end).contains(edge));
    edges.sort_unstable();
    edges.dedup();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for edge in edges.windows(2) {
        let (from, until) = (edge[0], edge[1]);
        let now = |b: &&(Target, u64, u64)| b.1 < until && b.2 > from;
        let is_stopped = bad.iter().filter(now).any(|b| matches!(b.0, Target::Client(_)));
        let ill = |node: usize| bad.iter().filter(now).any(|b| b.0 == Target::Node(node));
        let well = (0..history.nodes).filter(|node| !ill(*node)).count();
        if is_stopped || well < need {
            continue;
        }
        match spans.last_mut().filter(|last| last.1 == from) {
            Some(last) => last.1 = until,
            None => spans.push((from, until)),
        }
    }
    spans
}

/// The time for which a fault has effects after its end.
fn after(history: &History, struck: &Struck, after_death: u64) -> u64 {
    match struck.fault.kind {
        // A new master grants no lock until it has run for long enough.
        _ if history.sentinel && matches!(struck.fault.target, Target::Node(_)) => QUARANTINE * MS,
        // A restarted node casts no vote until it has run for long enough.
        kind if kind.is_restart() && history.nodes > 1 => QUARANTINE * MS,
        Kind::Murder => after_death,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::calm;
    use crate::checkers::story::Story;
    use crate::clock::MS;
    use crate::plan::{Kind, Target};

    #[test]
    fn calm_is_where_enough_nodes_are_well() {
        let story = Story::new().struck(Kind::Stop, Target::Node(0), 10_000, 20_000);
        let story = story.struck(Kind::Hole, Target::Node(1), 15_000, 25_000).struck(
            Kind::Pause,
            Target::Client(1),
            40_000,
            41_000,
        );
        let history = story.history();
        let millis = |spans: Vec<(u64, u64)>| spans.iter().map(|s| (s.0 / MS, s.1 / MS)).collect::<Vec<_>>();
        assert_eq!(millis(calm(&history, 2, 0)), [(0, 15_000), (20_000, 40_000), (41_000, 100_000)]);
        assert_eq!(millis(calm(&history, 3, 0)), [(0, 10_000), (25_000, 40_000), (41_000, 100_000)]);
    }

    #[test]
    fn nodes_that_are_away_for_an_amnesia_are_ill() {
        let history = Story::new().struck(Kind::Amnesia, Target::Node(2), 10_000, 12_000).history();
        assert_eq!(calm(&history, 2, 0), [(0, 10_000 * MS), (12_000 * MS, 100_000 * MS)]);
        assert_eq!(calm(&history, 1, 0), [(0, 100_000 * MS)]);
    }

    #[test]
    fn a_restarted_node_is_well_when_it_may_vote() {
        let history = Story::new().struck(Kind::Kill, Target::Node(0), 10_000, 11_000).history();
        assert_eq!(calm(&history, 3, 0).last().unwrap().0, 15_500 * MS);
    }
}
