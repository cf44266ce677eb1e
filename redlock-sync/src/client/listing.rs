//! Lists the locks that are held, for operators and their tools.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use std::{panic, thread};

use super::Redlock;
use crate::error::Error;
use crate::lock::holder::{HoldMode, Holder};
use crate::observer::LockKind;
use crate::protocol::list::{Listed, Page, START, more, page};
use crate::protocol::read_write::read_holder;
use crate::protocol::reply::Vote;
use crate::quorum::Ballot;

/// A held lock, or a held permit of a semaphore, as the servers show it. The holder may have it on less than a majority
/// of the nodes: see [`nodes`](HeldLock::nodes).
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{LockKind, Redlock, SnapshotOptions};
/// let locks = Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").holder_name("billing").lock()?;
/// let held = &locks.snapshot(&SnapshotOptions::default().pattern("order:*"))?.locks[0];
/// assert_eq!((&*held.name, held.kind, held.nodes), ("order:42", LockKind::Mutex, 1));
/// assert_eq!(held.holder.name(), "billing");
/// # drop(guard);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The name of the lock: its key without the client's prefix.
    pub name: String,
    /// The kind of the lock, and for a read-write lock the side.
    pub kind: LockKind,
    /// The holder, with the longest time that a node keeps the lock for it.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub holder: Holder,
    /// On how many nodes the holder has the lock. If that is no majority, the holder did not get the lock, or has lost
    /// it. The key then ends with its time-to-live.
    pub nodes: usize,
    /// How many nodes the client has.
    pub of: usize,
    /// How many waiters the lock has, on both sides of a read-write lock: the largest number that a node reported.
    /// Threads of one client that want the same lock in the same way count once, but each thread that waits for permits
    /// counts. Waiters of other libraries do not count.
    pub waiting: u64,
    /// For how long this holder was seen with the lock, at least. Servers do not store when a holder got a lock. So
    /// this is zero, except in a [`Snapshot`](crate::Snapshot) that [follows](crate::Snapshot::following) another one.
    #[cfg_attr(feature = "serde", serde(rename = "seen_for_ms", serialize_with = "crate::serial::millis"))]
    pub seen_for: Duration,
    /// The longest remaining time that was seen for this holder. After a renewal was seen, this is nearly the lease.
    #[cfg_attr(feature = "serde", serde(rename = "lease_ms", serialize_with = "crate::serial::some_millis"))]
    pub lease: Option<Duration>,
}

/// The longest time for which a server is assumed to be busy with one page. It reports a longer time only if its clock
/// was set meanwhile.
const LONGEST_PAGE: Duration = Duration::from_millis(100);
/// About the time that a server needs to read a call and to write its reply. It is added to the time of the script and
/// a fifth of that.
const CALL_OVERHEAD: Duration = Duration::from_micros(40);
/// The smallest share. With a smaller one a scan would hardly end.
const SMALLEST_SHARE: f64 = 0.0001;

/// The part of a listing that one node returned, or its failure.
pub(super) type NodeListing = Vote<Page>;

impl Redlock {
    /// Lists the holders of the lock of this name, without a scan.
    pub(super) fn list_one(&self, name: &str) -> Result<Vec<NodeListing>, Error> {
        let key = self.key(&name)?;
        self.inner.check_not_ended()?;
        let quorum = &self.inner.quorum;
        let list = more(&[key.as_str()], true, 0);
        let ballot = quorum.round(&list, quorum.round_deadline());
        let whole = |(node, vote)| if let Vote::Yes(page) = vote { self.complete(node, page, true) } else { vote };
        let votes = ballot.votes.into_iter().enumerate().map(whole).collect();
        let listings = self.check_answered("inspect", key.as_str(), votes)?;
        if let Some((node, _)) = listed(&listings).find(|(_, listed)| ["other", "latch"].contains(&&*listed.kind)) {
            let node = quorum.node_error(node, "a value that is no lock".to_owned());
            return Err(Error::WrongType { op: "inspect", key: key.as_str().to_owned(), node });
        }
        Ok(listings)
    }

    /// The pattern of keys for a pattern of names.
    pub(super) fn pattern(&self, names: &str) -> String {
        format!("{}{}", escape_pattern(&self.prefix), escape_sets(names))
    }

    /// Lists all pages of all nodes at the same time, with the shortest round trip to each. The servers are kept busy
    /// for `share` of the time at most.
    pub(super) fn scan(
        &self,
        patterns: &[String],
        share: f64,
    ) -> Result<(Vec<NodeListing>, Vec<Option<Duration>>), Error> {
        self.inner.check_not_ended()?;
        let pages = |node: usize| self.pages(node, patterns, share);
        // Each node but the first has a thread. If a node were read after another one, locks would change meanwhile.
        let (votes, round_trips): (Vec<_>, Vec<_>) = thread::scope(|scope| {
            let start = |node: usize| {
                let name = "redlock-scan".to_owned();
                (node, thread::Builder::new().name(name).spawn_scoped(scope, move || pages(node)))
            };
            let others: Vec<_> = (1..self.inner.quorum.len()).map(start).collect();
            let first = pages(0);
            let rest = others.into_iter().map(|(node, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause)),
                // The system cannot start another thread.
                Err(_) => pages(node),
            });
            [first].into_iter().chain(rest).unzip()
        });
        self.inner.check_not_ended()?;
        let names = patterns.first().map_or("", String::as_str);
        Ok((self.check_answered("list", names, votes)?, round_trips))
    }

    /// All pages of a node as one, with the time for which its servers were busy, and the shortest round trip.
    fn pages(&self, node: usize, patterns: &[String], share: f64) -> (NodeListing, Option<Duration>) {
        let (quorum, mut all, mut shortest) = (&self.inner.quorum, Page::default(), None);
        let clock = &quorum.clock;
        for slot in quorum.nodes.parts(node) {
            let mut next = START.to_owned();
            // Checked for each page, since a scan can take long.
            while self.inner.check_not_ended().is_ok() {
                let asked = clock.now();
                let reply = Vote::<Page>::from_result(quorum.ask_one(node, &page(&next, patterns, slot).call));
                let took = clock.now().since(asked);
                let reply = if let Vote::Yes(page) = reply { self.complete(node, page, false) } else { reply };
                let Vote::Yes(page) = reply else { return (reply, shortest) };
                shortest = Some(shortest.map_or(took, |least: Duration| least.min(took)));
                all.listed.extend(page.listed);
                let busy = page.took.min(LONGEST_PAGE).mul_f64(1.2) + CALL_OVERHEAD;
                all.took += busy;
                if share < 1.0 {
                    clock.sleep(busy.mul_f64(1.0 / share.max(SMALLEST_SHARE) - 1.0));
                }
                next = page.next;
                if next == START {
                    break;
                }
            }
        }
        (Vote::Yes(all), shortest)
    }

    /// Completes a page with the details that the node did not return in its first reply.
    fn complete(&self, node: usize, mut page: Page, is_named: bool) -> NodeListing {
        let quorum = &self.inner.quorum;
        // A call to a cluster cannot name keys of several slots.
        let most = if quorum.nodes.are_in_slots() { 1 } else { usize::MAX };
        while let Some((kind, keys)) = page.more.pop_first() {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            for keys in keys.chunks(most) {
                match Vote::<Page>::from_result(quorum.ask_one(node, &more(keys, is_named, kind).call)) {
                    Vote::Yes(rest) => {
                        page.listed.extend(rest.listed);
                        page.took += rest.took;
                        rest.more.into_iter().for_each(|(kind, keys)| page.more.entry(kind).or_default().extend(keys));
                    }
                    other => return other,
                }
            }
        }
        Vote::Yes(page)
    }

    fn check_answered(&self, op: &'static str, key: &str, votes: Vec<NodeListing>) -> Result<Vec<NodeListing>, Error> {
        let quorum = &self.inner.quorum;
        let ballot = Ballot { votes: votes.into(), started: quorum.now(), duplicate: false };
        if ballot.is_answered() { Ok(ballot.votes.into_vec()) } else { Err(quorum.failed(op, key, &ballot)) }
    }

    /// The holders that any node listed, each with the number of its nodes.
    pub(super) fn merge_holders(&self, listings: &[NodeListing]) -> Vec<HeldLock> {
        // A server can list a key twice, so each node is counted once.
        let mut held: BTreeMap<_, (BTreeSet<usize>, Duration)> = BTreeMap::new();
        let waiting = waits(listings);
        for (node, Listed { key, kind, token, remaining }) in listed(listings) {
            let (nodes, longest) = held.entry((key, kind, token)).or_default();
            nodes.insert(node);
            *longest = (*longest).max(remaining.unwrap_or(Duration::MAX));
        }
        let read = |((key, kind, token), (nodes, longest)): ((&String, &String, &String), (BTreeSet<usize>, _))| {
            let (kind, token) = holder_of(kind, token)?;
            let lease = (longest != Duration::MAX).then_some(longest);
            let is_exclusive = matches!(kind, LockKind::Mutex | LockKind::Write);
            let mode = if is_exclusive { HoldMode::Exclusive } else { HoldMode::Shared };
            let holder = Holder::new(mode, token, lease);
            let name = key.strip_prefix(&*self.prefix)?.to_owned();
            let (nodes, of) = (nodes.len(), listings.len());
            let waiting = waiting.get(key.as_str()).copied().unwrap_or(0);
            let seen_for = Duration::ZERO;
            let held = HeldLock { name, kind, holder, nodes, of, waiting, seen_for, lease };
            (!held.holder.id.is_reservation()).then_some(held)
        };
        held.into_iter().filter_map(read).collect()
    }
}

/// The number of waits for each lock: the largest number of any node.
pub(super) fn waits(listings: &[NodeListing]) -> BTreeMap<&str, u64> {
    let mut all = BTreeMap::new();
    for (_, listed) in listed(listings).filter(|(_, listed)| listed.kind == "waits") {
        let most = all.entry(listed.key.as_str()).or_default();
        *most = listed.token.parse().unwrap_or(0).max(*most);
    }
    all
}

/// The entries of all nodes that answered, each with its node.
pub(super) fn listed(listings: &[NodeListing]) -> impl Iterator<Item = (usize, &Listed)> {
    answered(listings).flat_map(|(node, page)| page.listed.iter().map(move |listed| (node, listed)))
}

/// The longest time for which a scan kept a node busy.
pub(super) fn busy(listings: &[NodeListing]) -> Duration {
    answered(listings).map(|(_, page)| page.took).max().unwrap_or_default()
}

fn answered(listings: &[NodeListing]) -> impl Iterator<Item = (usize, &Page)> {
    listings.iter().enumerate().filter_map(|(node, listing)| match listing {
        Vote::Yes(page) => Some((node, page)),
        _ => None,
    })
}

/// The kind and the token of an entry that a server listed. `None` if it is no lock.
fn holder_of<'a>(kind: &str, token: &'a str) -> Option<(LockKind, &'a str)> {
    match kind {
        "mutex" => Some((LockKind::Mutex, token)),
        "rw" => {
            let (writes, token) = read_holder(token);
            Some((if writes { LockKind::Write } else { LockKind::Read }, token))
        }
        "semaphore" => Some((LockKind::Semaphore, token.split_once(' ')?.1)),
        _ => None,
    }
}

/// In a pattern of Redis, `[…]` matches one of several characters. Here a `[` matches itself, so it is escaped.
fn escape_sets(pattern: &str) -> String {
    let mut is_escaped = false;
    let each = |c| {
        let opens = c == '[' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ["\\".repeat(usize::from(opens)), String::from(c)]
    };
    pattern.chars().flat_map(each).collect()
}

/// A pattern that matches this text only.
fn escape_pattern(text: &str) -> String {
    let escaped = |c| ["\\".repeat(usize::from("*?[]^\\".contains(c))), String::from(c)];
    text.chars().flat_map(escaped).collect()
}
