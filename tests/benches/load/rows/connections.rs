//! The number of connections that a client needs. CLIENT LIST reports it while the other rows run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use redlock_tests::bench::stats::float;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use super::{ROWS, alone};

/// The largest permitted number: two connections for calls, one for notifications, and one in reserve.
const MOST: f64 = 4.0;

/// The rows that have run. Each has the largest number of connections that a client had to a node.
static SEEN: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());

/// Records the number of connections in a row.
pub(super) fn note(row: &'static str, most: usize) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = seen.entry(row).or_default();
    *known = most.max(*known);
}

fn seen() -> BTreeMap<&'static str, usize> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Lists the numbers of all rows. Rows that have not run yet are run in their quick form.
pub(super) fn run(_: Plan) -> Outcome<Vec<Line>> {
    let others = || ROWS.iter().filter(|row| !["connections", "foreign", "queues"].contains(&row.name));
    let missing = || others().filter(|row| !seen().contains_key(row.name));
    for row in missing() {
        (row.run)(Plan { quick: true })?;
    }
    Ok(seen().into_iter().map(|(row, most)| alone(row, "", float(most as u64), Bar::AtMost(MOST))).collect())
}
