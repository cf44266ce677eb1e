//! Checks that, a second after the last fault has ended, each client takes locks at half of its usual pace at least.
//!
//! Gauges measure that. The other locks can be held by dead clients until their leases end.

use super::weather::calm;
use super::{Verdict, Violation};
use crate::clock::{MS, SEC};
use crate::history::History;
use crate::timing::LONGEST_LEASE;

/// When the pace must be back, and how long it is measured from then on.
const GRACE: u64 = SEC;
const WINDOW: u64 = SEC;
/// A shorter calm is too short to measure the pace.
const SHORTEST: u64 = 3500 * MS;
/// With fewer calls in a second there is no pace to compare with: the machine is too busy.
const LEAST_PACE: u64 = 5;
/// A client that stood still for longer than this is excused.
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

/// Spans without faults, in which a majority is well and no lock of a dead client can be left.
fn quiet(history: &History) -> Vec<(u64, u64)> {
    // Although a majority is well, there may be a fault of a minority.
    let well = calm(history, history.nodes / 2 + 1, LONGEST_LEASE * MS);
    let mut found = Vec::new();
    for (from, until) in well {
        let mut at = from;
        let mut faults: Vec<(u64, u64)> = history.struck.iter().map(|s| (s.from, s.until)).collect();
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
    /// The calls in the measured second.
    first: u64,
    /// The calls from then on.
    later: u64,
}

impl Span {
    /// The calls per second after the calm has lasted for a while.
    fn pace(&self) -> u64 {
        self.later * SEC / (self.until - self.from - GRACE - WINDOW)
    }
}

/// The spans of clients that lived all the time, and did not stand still in the measured time.
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

    /// Three clients that beat 20 times in a second, the first of them from a moment on.
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
