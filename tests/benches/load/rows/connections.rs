//! How many connections a client needs: what CLIENT LIST says while the other rows run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use redlock_tests::bench::stats::float;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::{ROWS, alone};

/// Two lines, one for notifications, one in reserve.
const MOST: f64 = 4.0;

/// The rows that have run, and the most connections that a client had to a node meanwhile.
static SEEN: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());

/// Notes what a row has seen.
pub(super) fn note(row: &'static str, most: usize) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = seen.entry(row).or_default();
    *known = most.max(*known);
}

fn seen() -> BTreeMap<&'static str, usize> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Rows that were not asked for run in short.
pub(super) fn run(_: Plan) -> Outcome<Vec<Line>> {
    let others = || ROWS.iter().filter(|row| !["connections", "foreign", "queues"].contains(&row.name));
    let missing = || others().filter(|row| !seen().contains_key(row.name));
    for row in missing() {
        (row.run)(Plan { quick: true })?;
    }
    Ok(seen().into_iter().map(|(row, most)| alone(row, "", float(most as u64), Bar::AtMost(MOST))).collect())
}
