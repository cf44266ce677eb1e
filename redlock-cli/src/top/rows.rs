//! The rows of the table: one for each lock and each latch. Nothing here does I/O.

use std::cmp::Reverse;
use std::time::Duration;

use redlock_sync::{HeldLock, LockKind, Snapshot};

use crate::look::is_of_library;
use crate::text::escaped;

/// An order of the rows: its name, and the function that sorts them.
type Order = (&'static str, fn(&mut [Row]));

/// The orders, the first one being the default.
pub(super) const ORDERS: [Order; 4] = [
    ("waiting", |rows| rows.sort_by_key(|row| Reverse((row.waiting, row.held_for)))),
    ("held for", |rows| rows.sort_by_key(|row| Reverse(row.held_for))),
    ("lease left", |rows| rows.sort_by_key(|row| (row.lease.is_none(), row.left))),
    ("name", |rows| rows.sort_by(|one, other| one.name.cmp(&other.name))),
];

/// A lock with its holders, or a latch, which has none.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) holder: String,
    pub(super) held_for: Option<Duration>,
    pub(super) left: Option<Duration>,
    pub(super) lease: Option<Duration>,
    pub(super) waiting: u64,
    /// The name of the lock's problem; empty if there is none.
    pub(super) mark: &'static str,
    pub(super) holders: Vec<HeldLock>,
}

/// The rows whose name or holder contains the text, not sorted. `age` is the age of the snapshot.
pub(super) fn rows(seen: &Snapshot, age: Duration, filter: &str) -> Vec<Row> {
    // A server that does not answer does not count as a server with a different holder.
    let answered = seen.round_trips.iter().flatten().count();
    let same = seen.locks.chunk_by(|one, next| one.name == next.name);
    let locks = same.filter_map(|holders| lock(holders, age, answered));
    let latches = seen.latches.iter().map(|latch| Row {
        name: latch.name.clone(),
        kind: "latch",
        holder: format!("{} arrived{}", latch.arrived, if latch.is_open { ", open" } else { "" }),
        held_for: None,
        left: latch.remaining.map(|left| left.saturating_sub(age)),
        lease: None,
        waiting: latch.waiting,
        mark: "",
        holders: Vec::new(),
    });
    let has = |row: &Row| filter.is_empty() || row.name.contains(filter) || row.holder.contains(filter);
    locks.chain(latches).filter(has).collect()
}

fn lock(holders: &[HeldLock], age: Duration, answered: usize) -> Option<Row> {
    // The row shows the holder with the most nodes. Among permits and readers, that is the one that has been seen for
    // longest.
    let first = holders.iter().max_by_key(|held| (held.nodes, held.seen_for))?;
    let others = holders.len() - 1;
    let left = first.holder.remaining.map(|left| left.saturating_sub(age));
    Some(Row {
        name: first.name.clone(),
        kind: first.kind.as_str(),
        holder: if others == 0 { holder(first) } else { format!("{} +{others}", holder(first)) },
        held_for: Some(first.seen_for),
        left,
        lease: first.lease,
        waiting: first.waiting,
        // The time at which the lock was seen counts, since an old scan does not show a missed renewal.
        mark: mark(first, first.holder.remaining, answered),
        holders: holders.to_vec(),
    })
}

fn mark(held: &HeldLock, left: Option<Duration>, answered: usize) -> &'static str {
    // A renewal is due at a third of the lease and is repeated soon. In the second half of a lease, none has succeeded.
    let is_late = |lease: Duration| held.seen_for > lease / 2 && left.is_some_and(|left| left < lease / 2);
    if held.seen_for.is_zero() {
        // The servers are not read at one moment. So a lock that is taken or released meanwhile is seen on some only.
        ""
    } else if held.nodes <= held.of / 2 {
        "no majority"
    } else if held.lease.is_some_and(is_late) {
        "not renewed"
    } else if held.nodes < answered {
        "servers differ"
    } else {
        ""
    }
}

/// The name of the holder, or its token if it has no name, escaped.
pub(super) fn holder(held: &HeldLock) -> String {
    let name = held.holder.name();
    if name.is_empty() { held.holder.id.to_string() } else { escaped(name) }
}

/// The holder, or the reason why this lock cannot be released by force.
pub(super) fn releasable(row: &Row) -> Result<&HeldLock, &'static str> {
    match row.holders.first().map(|held| held.kind) {
        Some(LockKind::Mutex) => {
            let ours = row.holders.iter().filter(|held| is_of_library(held)).max_by_key(|held| held.nodes);
            ours.ok_or("it has no time to live, so another program set it: delete the key by hand")
        }
        Some(_) => Err("only a mutex can be taken away: end the process of the holder, and its lease runs out"),
        None => Err("a latch has no holder; `reset` of the latch forgets what has arrived"),
    }
}
