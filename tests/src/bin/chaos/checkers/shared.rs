//! Checks locks with several holders. Readers never overlap with a writer. The number of permits that are held never
//! exceeds the size of the semaphore, and no slot is held twice.
//!
//! A hold counts as in `overlap`: from the return of the acquire to the end of what its checks promised. The unlock
//! ends it earlier.

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{History, Hold};
use crate::names::{self, PERMIT, PERMITS, READ, RW_LOCKS, WRITE};

/// A hold with the span in which the lock was certainly held.
type Span<'a> = (u64, u64, &'a Hold);

pub(super) fn readers(history: &History) -> Verdict {
    if history.beyond {
        return Verdict::excused();
    }
    let mut verdict = Verdict::default();
    let mut holds = (0, 0);
    for nth in 0..RW_LOCKS {
        let (readers, writers) = (spans(history, READ + nth), spans(history, WRITE + nth));
        holds = (holds.0 + readers.len(), holds.1 + writers.len());
        for (at, writer) in writers.iter().enumerate() {
            // Each pair of writers is compared only once.
            let others = readers.iter().chain(&writers[at + 1..]);
            for other in others.filter(|other| other.0 < writer.1 && writer.0 < other.1) {
                verdict.violations.push(beside(history, writer, other));
            }
        }
    }
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict.judged = format!("{} holds of readers, {} of writers", holds.0, holds.1);
    verdict
}

pub(super) fn permits(history: &History) -> Verdict {
    if history.beyond {
        return Verdict::excused();
    }
    let mut verdict = Verdict::default();
    let mut judged = 0;
    for (nth, &most) in PERMITS.iter().enumerate() {
        let mut out: Vec<Span<'_>> = Vec::new();
        for span in spans(history, PERMIT + nth) {
            judged += 1;
            out.retain(|other| other.1 > span.0);
            let is_twice = out.iter().any(|other| other.2.slots & span.2.slots != 0);
            out.push(span);
            // A client that was killed may not have logged its slots. Then its hold counts as one permit.
            let held: u32 = out.iter().map(|span| span.2.slots.count_ones().max(1)).sum();
            if held > most || is_twice {
                verdict.violations.push(too_many(history, &out, most));
            }
        }
    }
    verdict.judged = format!("{judged} holds of permits");
    verdict
}

/// The holds of a key, in the order in which they began.
fn spans(history: &History, key: usize) -> Vec<Span<'_>> {
    let holds = history.holds_of(key).filter_map(|hold| hold.span().map(|(from, until)| (from, until, hold)));
    let mut spans: Vec<_> = holds.filter(|span| span.0 < span.1).collect();
    spans.sort_by_key(|span| span.0);
    spans
}

fn beside(history: &History, writer: &Span<'_>, other: &Span<'_>) -> Violation {
    let (from, until) = (writer.0.max(other.0), writer.1.min(other.1));
    let who = if other.2.key < WRITE { "reader" } else { "writer" };
    let what = format!(
        "{} was held by the writer {} and the {who} {} from {}: {} us of both",
        names::of(writer.2.key),
        writer.2.session,
        other.2.session,
        history.seconds(from).trim(),
        (until - from) / 1000,
    );
    let slice = history.slice(&[writer.2.session, other.2.session], from.saturating_sub(500 * MS), until + 100 * MS);
    Violation { at: from, what, slice }
}

fn too_many(history: &History, out: &[Span<'_>], most: u32) -> Violation {
    let at = out.iter().map(|span| span.0).max().unwrap_or(0);
    let sessions: Vec<_> = out.iter().map(|span| span.2.session).collect();
    let slots = |span: &Span<'_>| format!("those of {} (slots {:#b})", span.2.session, span.2.slots);
    let holders = out.iter().map(slots).collect::<Vec<_>>().join(", ");
    let name = out.first().map_or_else(String::new, |span| names::of(span.2.key));
    let what =
        format!("{name} has {most} permits, each for one, and at {} held are {holders}", history.seconds(at).trim());
    Violation { at, what, slice: history.slice(&sessions, at.saturating_sub(500 * MS), at + 100 * MS) }
}

#[cfg(test)]
mod tests {
    use super::{permits, readers};
    use crate::checkers::story::Story;
    use crate::event::What;
    use crate::names::{PERMIT, READ, WRITE};

    fn lock(holds: &[(usize, u64, u64)]) -> usize {
        let story = (1..)
            .zip(holds)
            .fold(Story::new(), |story, (n, &(key, at, until))| story.of(key).hold(n, at, &[(at + 1, until)]));
        readers(&story.history()).violations.len()
    }

    #[test]
    fn readers_are_together_and_writers_alone() {
        assert_eq!(lock(&[(READ, 10, 90), (READ, 20, 80), (WRITE, 90, 150), (READ, 150, 190)]), 0);
        assert_eq!(lock(&[(READ, 10, 90), (WRITE + 1, 20, 80)]), 0, "they are different locks");
    }

    #[test]
    fn a_reader_beside_a_writer_is_found() {
        assert_eq!(lock(&[(READ, 10, 90), (WRITE, 80, 150)]), 1);
        assert_eq!(lock(&[(WRITE, 10, 200), (READ, 20, 30), (READ, 40, 50)]), 2);
        assert_eq!(lock(&[(WRITE + 1, 10, 90), (WRITE + 1, 80, 150)]), 1);
    }

    fn semaphore(key: usize, holders: u8) -> usize {
        let story = (1..=holders).fold(Story::new(), |story, n| story.of(key).hold(n, 10, &[(20 + u64::from(n), 90)]));
        // This hold begins when all others have ended, so it adds no violation.
        permits(&story.hold(9, 90, &[(95, 150)]).history()).violations.len()
    }

    #[test]
    fn a_permit_too_many_is_found() {
        assert_eq!((semaphore(PERMIT, 2), semaphore(PERMIT, 3), semaphore(PERMIT, 4)), (0, 1, 2));
        assert_eq!((semaphore(PERMIT + 1, 3), semaphore(PERMIT + 1, 4)), (0, 1));
    }

    #[test]
    fn a_permit_that_two_have_is_found_and_two_of_one_holder_count_twice() {
        for (slots, found) in [([0b1, 0b110], 0), ([0b1, 0b11], 1), ([0b11, 0b1100], 1)] {
            let story = (1..).zip(slots).fold(Story::new().of(PERMIT + 1), |story, (n, slots)| {
                story.hold(n, 10, &[(20 + u64::from(n), 90)]).event(15, n, What::Slots { slots })
            });
            assert_eq!(permits(&story.history()).violations.len(), found, "{slots:?}");
        }
    }
}
