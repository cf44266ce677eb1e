//! Checks that each client soon acquires locks again at half of its usual pace or more. A client has one second after
//! the end of the last fault.
//!
//! Gauges measure the pace. The other locks cannot show it, because dead clients can hold them until their leases end.

use super::weather::calm;
use super::{Verdict, Violation};
use crate::clock::{MS, SEC};
use crate::history::{History, Struck};
use crate::plan::Kind;
use crate::timing::{CROWD_WAIT, LONGEST_LEASE};

/// The time that a client has until its pace must be back, and the time for which the pace is then measured.
const GRACE: u64 = SEC;
const WINDOW: u64 = SEC;
/// The shortest calm in which the pace can be measured.
const SHORTEST: u64 = 3500 * MS;
/// The least number of calls per second to compare with. Below it, the machine is too busy for a judgement.
const LEAST_PACE: u64 = 5;
/// A client that did not run for longer than this is excused.
const STOOD_STILL: u64 = 100 * MS;

pub(super) fn check(history: &History) -> Verdict {
    let spans = quiet(history);
    let all: Vec<Span> = spans.iter().flat_map(|&(from, until)| of_clients(history, from, until)).collect();
    let pace = median(all.iter().map(Span::pace).collect());
    let mut verdict =
        Verdict { judged: format!("{} calms of clients at {pace} calls per s", all.len()), ..Verdict::default() };
    if pace < LEAST_PACE {
        return verdict;
    }
    let slow = all.iter().filter(|span| span.first * 2 < pace * WINDOW / SEC);
    verdict.violations = slow.map(|span| violation(history, span, pace)).collect();
    verdict
}

fn violation(history: &History, span: &Span, pace: u64) -> Violation {
    let &Span { client, life, from, first, .. } = span;
    let what = format!(
        "client {client}.{life}: {first} calls in the second after the first one behind a storm, which ended at {}, instead of {pace}",
        history.seconds(from).trim()
    );
    let beats = history.beats.iter().filter(|beat| (beat.0, beat.1) == (client, life));
    let near = beats.filter(|beat| (from..span.until).contains(&beat.2));
    Violation { at: from + GRACE, what, slice: near.map(|beat| history.told(beat.2, "beat")).collect() }
}

/// The spans without faults in which a majority is well and no lock of a dead client can be left.
fn quiet(history: &History) -> Vec<(u64, u64)> {
    // In a span of `calm`, a minority of the nodes may have a fault.
    let well = calm(history, history.nodes / 2 + 1, LONGEST_LEASE * MS);
    let mut found = Vec::new();
    for (from, until) in well {
        let mut at = from;
        // A crowd keeps the processors busy until its threads have ended.
        let end = |s: &Struck| if s.fault.kind == Kind::Crowd { s.until + CROWD_WAIT * MS } else { s.until };
        let mut faults: Vec<(u64, u64)> = history.struck.iter().map(|s| (s.from, end(s))).collect();
        faults.retain(|fault| fault.1 > from && fault.0 < until);
        faults.sort_unstable();
        for (begin, end) in faults.into_iter().chain([(until, until)]) {
            if begin > at && begin - at >= SHORTEST && at > history.begin {
                found.push((at, begin));
            }
            at = at.max(end);
        }
    }
    found
}

/// The calm of one client.
struct Span {
    client: u8,
    life: u8,
    from: u64,
    until: u64,
    /// The number of calls in the measured second.
    first: u64,
    /// The number of calls after the measured second.
    later: u64,
}

impl Span {
    /// The usual pace: calls per second after the measured second.
    fn pace(&self) -> u64 {
        self.later * SEC / (self.until - self.from - GRACE - WINDOW)
    }
}

/// The spans of clients that lived all the time and ran during the measured second.
fn of_clients(history: &History, from: u64, until: u64) -> Vec<Span> {
    let lives = (0..history.clients).filter_map(|client| {
        let client = u8::try_from(client).ok()?;
        let life = history.beats.iter().filter(|beat| beat.0 == client && beat.2 < until).map(|beat| beat.1).max()?;
        let is_sane = history.stopped(client, from, from + GRACE + WINDOW) < STOOD_STILL;
        is_sane.then_some((client, life))
    });
    let counted = |(client, life): (u8, u8)| {
        let count = |from, until| {
            let mine = history.beats.iter().filter(|beat| (beat.0, beat.1) == (client, life));
            mine.filter(|beat| (from..until).contains(&beat.2)).count() as u64
        };
        let [begin, end] = [from + GRACE, from + GRACE + WINDOW];
        Span { client, life, from, until, first: count(begin, end), later: count(end, until) }
    };
    lives.map(counted).collect()
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::event::What;
    use crate::plan::{Kind, Target};

    /// Three clients beat 20 times per second. After the fault, the first client beats from `first_from` on.
    fn beats(story: Story, first_from: u64) -> usize {
        let story = story.struck(Kind::Hole, Target::Node(0), 10_000, 20_000);
        let story = (0..3).fold(story, |story, client| {
            let from = if client == 0 { first_from } else { 20_000 };
            let moments = (0..10_000).step_by(50).chain((from..30_000).step_by(50));
            moments.fold(story, |story, at| story.event(at, client, What::Beat))
        });
        let mut history = story.history();
        history.end = 30_000 * crate::clock::MS;
        check(&history).violations.len()
    }

    #[test]
    fn while_a_crowd_works_no_pace_is_measured() {
        let crowd = Story::new().struck(Kind::Crowd, Target::Client(0), 20_000, 20_000);
        assert_eq!(beats(crowd, 21_700), 0);
    }

    #[test]
    fn a_client_that_is_back_in_a_second_is_fine() {
        assert_eq!(beats(Story::new(), 20_900), 0);
    }

    #[test]
    fn a_client_that_comes_back_late_is_found() {
        assert_eq!(beats(Story::new(), 21_700), 1);
        assert_eq!(beats(Story::new(), 30_000), 1);
    }

    #[test]
    fn what_a_client_does_not_get_to_while_it_stands_still_is_excused() {
        let late = Story::new().event(21_900, 0, What::Stalled { from: 21_000 * crate::clock::MS });
        assert_eq!(beats(late, 21_900), 0);
    }
}
