//! Which locks are held, for operators and their tools.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Redlock;
use crate::error::Error;
use crate::key::LockKey;
use crate::lock::holder::{HoldMode, Holder};
use crate::names::queue_of;
use crate::node::Priority;
use crate::observer::LockKind;
use crate::protocol::TypedCall;
use crate::protocol::list::{Listed, Page, START, more, of_key, page};
use crate::protocol::reply::Vote;
use crate::protocol::rw_lock::read_holder;
use crate::queue::on_one_node;
use crate::quorum::Ballot;

/// A lock that is held, or a permit of a semaphore, as the servers show it. The holder may have no majority of them:
/// see [`nodes`](HeldLock::nodes).
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// use redlock_sync::{LockKind, Redlock};
/// let locks = Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").holder_name("billing").lock()?;
/// let held = &locks.held_locks("order:*")?[0];
/// assert_eq!((&*held.name, held.kind, held.nodes), ("order:42", LockKind::Mutex, 1));
/// assert_eq!(held.holder.id.holder_name(), "billing");
/// # drop(guard);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The name of the lock: its key without the client's prefix.
    pub name: String,
    /// Which kind of lock it is, and for a read-write lock which side.
    pub kind: LockKind,
    /// The holder, with the longest time that a node keeps the lock for it.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub holder: Holder,
    /// On how many nodes it holds the lock. Where that is no majority, the lock was not acquired, or is lost, and ends
    /// there with its time.
    pub nodes: usize,
    /// How many nodes the client has.
    pub of: usize,
    /// How many wait for the lock, whichever side of it they want: the largest number that a node told. Threads of one
    /// client that want the same lock in the same way count once. Waits of other libraries are not known.
    pub waiting: u64,
    /// For how long this holder was seen with the lock, at least. Servers do not keep when a lock was taken, so it is
    /// zero but in a [`Snapshot`](crate::Snapshot) that [follows](crate::Snapshot::following) another one.
    #[cfg_attr(feature = "serde", serde(rename = "seen_for_ms", serialize_with = "crate::serial::millis"))]
    pub seen_for: Duration,
    /// The longest time that was seen to remain: nearly the lease, once one renewal was seen.
    #[cfg_attr(feature = "serde", serde(rename = "lease_ms", serialize_with = "crate::serial::some_millis"))]
    pub lease: Option<Duration>,
}

/// A server is busy with one page for no longer, but where its clock was set.
const MOST_PAGE: Duration = Duration::from_millis(100);
/// A server reads a call and writes its reply in about that time, and a fifth of that of the script.
const EACH_CALL: Duration = Duration::from_micros(40);
/// A smaller share would make a pass endless.
const LEAST_SHARE: f64 = 0.0001;

/// What one node said, or why it did not.
pub(super) type Said = Vote<Page>;

/// # Looking from outside
impl Redlock {
    /// The holders of the lock of that name, of whatever kind it is; empty if it is free. Unlike the `inspect` of a
    /// handle it also shows holders that have no majority. One round for each 100 holders; of a lock with more, one
    /// that is renewed between two rounds can be left out.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - [`WrongType`](Error::WrongType) if the key is no lock
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// assert!(locks.holders("prices")?.is_empty());
    /// let reader = locks.rw_lock("prices").read()?;
    /// assert_eq!(locks.holders("prices")?[0].kind, redlock_sync::LockKind::Read);
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn holders(&self, key: impl LockKey) -> Result<Vec<HeldLock>, Error> {
        let key = self.key(&key)?;
        self.inner.serves_holders()?;
        let quorum = &self.inner.quorum;
        let ballot = quorum.round(&of_key(&key), Priority::Normal, quorum.round_deadline(), &|_| true);
        let whole = |(node, vote)| if let Vote::Yes(page) = vote { self.rest(node, page, true) } else { vote };
        let votes = ballot.votes.into_iter().enumerate().map(whole).collect();
        let said = self.answered("inspect", key.as_str(), votes)?;
        if let Some((node, _)) = listed(&said).find(|(_, listed)| ["other", "latch"].contains(&&*listed.kind)) {
            let node = quorum.node_error(node, "a value that is no lock".to_owned());
            return Err(Error::WrongType { op: "inspect", key: key.as_str().to_owned(), node });
        }
        Ok(self.together(&said))
    }

    /// All locks that are held, those with tokens of this library, sorted by name. In the pattern `*` stands for any
    /// text, `?` for one character, and `\` stands before a character that stands for itself. Meant for operators that
    /// look and not for programs that decide: it goes through all keys of the servers, 100 at a time and for about 2
    /// ms, and what it shows was so at different moments. Of a Redis Cluster it asks one master after the other.
    ///
    /// On servers that restrict their users it needs the permission `+scan`, and should have `+getrange`: without that
    /// it copies whole values, which takes a server long if they are large. Keys that the user may not read are left
    /// out.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guards = (locks.mutex("order:42").lock()?, locks.semaphore("geocoder", 3).acquire()?);
    /// let names: Vec<String> = locks.held_locks("*")?.into_iter().map(|held| held.name).collect();
    /// assert_eq!(names, ["geocoder", "order:42"]);
    /// # drop(guards);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn held_locks(&self, pattern: &str) -> Result<Vec<HeldLock>, Error> {
        Ok(self.together(&self.scan(&[self.pattern(pattern)], 1.0)?.0))
    }

    /// The names of all queues that have tasks, dead ones too, sorted. It goes through all keys, as
    /// [`held_locks`](Redlock::held_locks) does.
    ///
    /// # Errors
    /// The errors of [`held_locks`](Redlock::held_locks); [`Config`](Error::Config) also on a client of several nodes,
    /// as queues live on one.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// locks.queue("emails").push("welcome")?;
    /// assert_eq!(locks.queues()?, ["emails"]);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn queues(&self) -> Result<Vec<String>, Error> {
        on_one_node(self.inner.quorum.len())?;
        let (said, _) = self.scan(&["*:q:d*".to_owned()], 1.0)?;
        let names = listed(&said).filter_map(|(_, listed)| queue_of(&listed.key)?.strip_prefix(&*self.prefix));
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        Ok(names.into_iter().collect())
    }

    /// A pattern of names as one of keys.
    pub(super) fn pattern(&self, names: &str) -> String {
        format!("{}{}", literally(&self.prefix), without_sets(names))
    }

    /// All pages of all nodes, of one node after the other, and the shortest round trip to each. The servers are kept
    /// busy for `share` of the time at most.
    pub(super) fn scan(&self, patterns: &[String], share: f64) -> Result<(Vec<Said>, Vec<Option<Duration>>), Error> {
        self.inner.serves_holders()?;
        let each = (0..self.inner.quorum.len()).map(|node| self.pages(node, patterns, share));
        let (votes, round_trips) = each.unzip();
        self.inner.serves_holders()?;
        let names = patterns.first().map_or("", String::as_str);
        Ok((self.answered("list", names, votes)?, round_trips))
    }

    fn pages(&self, node: usize, patterns: &[String], share: f64) -> (Said, Option<Duration>) {
        let (mut all, clock, mut shortest) = (Page::default(), &self.inner.quorum.clock, None);
        for slot in self.inner.quorum.nodes.parts(node) {
            let mut next = START.to_owned();
            // A pass can take long.
            while self.inner.serves_holders().is_ok() {
                let asked = clock.now();
                let said = self.ask(node, &page(&next, patterns, slot));
                let took = clock.now().since(asked);
                let said = if let Vote::Yes(page) = said { self.rest(node, page, false) } else { said };
                let Vote::Yes(page) = said else { return (said, shortest) };
                shortest = Some(shortest.map_or(took, |least: Duration| least.min(took)));
                all.listed.extend(page.listed);
                let busy = page.took.min(MOST_PAGE).mul_f64(1.2) + EACH_CALL;
                if share < 1.0 {
                    clock.sleep(busy.mul_f64(1.0 / share.max(LEAST_SHARE) - 1.0));
                }
                next = page.next;
                if next == START {
                    break;
                }
            }
        }
        (Vote::Yes(all), shortest)
    }

    /// A page with what the node did not tell in its first answer.
    fn rest(&self, node: usize, mut page: Page, is_named: bool) -> Said {
        // No call to a cluster can name keys of several slots.
        let most = if self.inner.quorum.nodes.are_in_slots() { 1 } else { usize::MAX };
        while let Some((told, keys)) = page.more.pop_first() {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            for keys in keys.chunks(most) {
                match self.ask(node, &more(keys, is_named, told)) {
                    Vote::Yes(rest) => {
                        page.listed.extend(rest.listed);
                        page.took += rest.took;
                        rest.more.into_iter().for_each(|(told, keys)| page.more.entry(told).or_default().extend(keys));
                    }
                    other => return other,
                }
            }
        }
        Vote::Yes(page)
    }

    fn ask(&self, node: usize, call: &TypedCall<Page>) -> Said {
        let quorum = &self.inner.quorum;
        Vote::from_result(quorum.ask_one(node, &call.call, quorum.round_deadline()))
    }

    fn answered(&self, op: &'static str, key: &str, votes: Vec<Said>) -> Result<Vec<Said>, Error> {
        let quorum = &self.inner.quorum;
        let ballot = Ballot { votes, started: quorum.now(), duplicate: false };
        if ballot.tally().is_answered() { Ok(ballot.votes) } else { Err(quorum.failed(op, key, &ballot)) }
    }

    pub(super) fn together(&self, said: &[Said]) -> Vec<HeldLock> {
        // A server can name a key twice: nodes are counted once.
        let mut held: BTreeMap<_, (BTreeSet<usize>, Duration)> = BTreeMap::new();
        let waiting = waits(said);
        for (node, Listed { key, kind, token, remaining }) in listed(said) {
            let (nodes, longest) = held.entry((key, kind, token)).or_default();
            nodes.insert(node);
            *longest = (*longest).max(remaining.unwrap_or(Duration::MAX));
        }
        let read = |((key, kind, token), (nodes, longest)): ((&String, &String, &String), (BTreeSet<usize>, _))| {
            let (kind, token) = holder_of(kind, token)?;
            let lease = (longest != Duration::MAX).then_some(longest);
            let holder = Holder::new(mode(kind), token, lease);
            let name = key.strip_prefix(&*self.prefix)?.to_owned();
            let (nodes, of) = (nodes.len(), said.len());
            let waiting = waiting.get(key.as_str()).copied().unwrap_or(0);
            let seen_for = Duration::ZERO;
            (!holder.id.is_reservation()).then_some(HeldLock {
                name,
                kind,
                holder,
                nodes,
                of,
                waiting,
                seen_for,
                lease,
            })
        };
        held.into_iter().filter_map(read).collect()
    }
}

/// The waits for each lock: those of the node that has most.
pub(super) fn waits(said: &[Said]) -> BTreeMap<&str, u64> {
    let mut all = BTreeMap::new();
    for (_, listed) in listed(said).filter(|(_, listed)| listed.kind == "waits") {
        let most = all.entry(listed.key.as_str()).or_default();
        *most = listed.token.parse().unwrap_or(0).max(*most);
    }
    all
}

/// What the nodes that answered listed, each with its node.
pub(super) fn listed(said: &[Said]) -> impl Iterator<Item = (usize, &Listed)> {
    let answered = said.iter().enumerate().filter_map(|(node, said)| match said {
        Vote::Yes(page) => Some((node, page)),
        _ => None,
    });
    answered.flat_map(|(node, page)| page.listed.iter().map(move |listed| (node, listed)))
}

/// The kind and the token of what a server listed; `None` for what is no lock.
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

fn mode(kind: LockKind) -> HoldMode {
    match kind {
        LockKind::Mutex | LockKind::Write => HoldMode::Exclusive,
        LockKind::Read | LockKind::Semaphore => HoldMode::Shared,
    }
}

/// To a server `[…]` is one of several characters; here a `[` stands for itself.
fn without_sets(pattern: &str) -> String {
    let mut is_escaped = false;
    let each = |c| {
        let opens = c == '[' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ["\\".repeat(usize::from(opens)), String::from(c)]
    };
    pattern.chars().flat_map(each).collect()
}

/// A text as a pattern that matches it alone.
fn literally(text: &str) -> String {
    let escaped = |c| ["\\".repeat(usize::from("*?[]^\\".contains(c))), String::from(c)];
    text.chars().flat_map(escaped).collect()
}
