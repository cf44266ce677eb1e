//! The numbers of a picture in the documentation: the first ten seconds of a run. The program `numbers` draws it.

use redlock_tests::pictures::Data;

use crate::clock::SEC;
use crate::history::History;
use crate::plan::{Kind, Target};

const SECONDS: u64 = 10;

/// The group of a fault of a server, by its place in the picture's list of words. `None` for faults of single commands.
fn group(kind: Kind) -> Option<u8> {
    Some(match kind {
        Kind::Kill | Kind::Empty | Kind::Amnesia => 0,
        Kind::Stop => 1,
        Kind::Reset | Kind::Refuse | Kind::Partition | Kind::Hole => 2,
        Kind::Full | Kind::Password | Kind::Role | Kind::Flush | Kind::Scripts => 3,
        Kind::Latency => 4,
        _ => return None,
    })
}

pub(crate) fn numbers(history: &History) -> String {
    let mut data = Data::default();
    let small = |n: usize| f64::from(u32::try_from(n).expect("a small number"));
    data.add("nodes", small(history.nodes));
    data.add("clients", small(history.clients));
    data.add("locks", small(history.keys));
    let end = history.begin + SECONDS * SEC;
    #[allow(clippy::cast_precision_loss, reason = "a picture is not that exact")]
    let second = |at: u64| ((at.clamp(history.begin, end) - history.begin) / 1_000_000) as f64 / 1e3;
    let is_shown = |from: u64, until: u64| from < end && until > history.begin;
    for struck in history.struck.iter().filter(|struck| is_shown(struck.from, struck.until)) {
        let span = [second(struck.from), second(struck.until)];
        match struck.fault.target {
            Target::Node(node) => {
                let Some(group) = group(struck.fault.kind) else { continue };
                [small(node), f64::from(group)].into_iter().chain(span).for_each(|n| data.add("faults", n));
            }
            Target::Client(client) if struck.fault.kind != Kind::Crowd => {
                [small(client)].into_iter().chain(span).for_each(|n| data.add("away", n));
            }
            Target::Client(_) | Target::Key(_) => {}
        }
    }
    for hold in history.holds.iter().filter(|hold| hold.key < history.keys) {
        let Some((from, until)) = hold.span().filter(|(from, until)| is_shown(*from, *until)) else { continue };
        let client = usize::from(hold.session.client);
        let lost = f64::from(u8::from(hold.is_lost() && until < end));
        for number in [small(hold.key), small(client), second(from), second(until), lost] {
            data.add("holds", number);
        }
    }
    data.text()
}
